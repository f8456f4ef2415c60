"""The SavedModels of runs: translators, readers of images, models of histories."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_attention import SearchResult
from training.data.rules import END_ID, PAD_ID, TOKEN_BYTES
from training.decode.labels import attends, predict
from training.decode.search import Encoded, bound_of, encode, score_targets, search
from training.decode.settings import SearchSettings
from training.decode.steps import PlainStep, constant_steps
from training.decode.texts import dense_ids, replace_unknown, shown_first, tokens_to_copy, words_of
from training.decode.windows import join, spelling_of, windows
from training.graphs import graph
from training.runs.run import Run

WARMUP_TEXTS = "warm up", "", "a longer text to warm up with, of some more words"


class Exported:
    """Signatures of a translator, and the `module` to save: its variables and tokenizers.

    The C++ loader of TensorFlow Serving cannot load a SavedModel that holds a Keras model, so the
    module has none. Several runs are used as an ensemble. Where that is faster, kernels are
    constants of the graph. Raises ValueError if several runs are given and `precision` is
    "bfloat16".
    """

    def __init__(self, runs: Sequence[Run], search_settings: SearchSettings) -> None:
        self._models, self._run = [run.model for run in runs], runs[0]
        self._settings, self._spelling = search_settings, spelling_of(runs)
        self._bound = bound_of(runs)
        width, precision = search_settings.beam_width, search_settings.precision
        self._steps = constant_steps(self._models, width, precision)
        self._copies = runs[0].config.copy or search_settings.replaces_unknown
        self.source_tokenizer = runs[0].source_tokenizer
        self.target_tokenizer = runs[0].target_tokenizer
        constants = [weight for step in self._steps or () for weight in step.taken]
        tokenizers = self.source_tokenizer, self.target_tokenizer
        self.module = saved_module(self._models, tokenizers, without=constants)
        # All signatures begin alike: a function that they share is traced, saved and loaded once.
        text, ids = tf.TensorSpec([None], tf.string), tf.TensorSpec([None, None], tf.int32)
        self._read = graph(text)(self._ids)
        self._encode = graph(ids)(self._encoded)
        # With products in bfloat16 a step knows the best tokens alone; what a model copies is no
        # token of a text that is given.
        copies = any("copy" in {layer.name for layer in model.layers} for model in self._models)
        self.scores = search_settings.precision == "float32" and not copies
        self.attends = all(run.config.attention != "none" for run in runs)

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """Return the functions by the name they are served under."""
        functions: dict[str, Callable[..., dict[str, tf.Tensor]]] = {
            "serving_default": self.translate,
            "nbest": self.nbest,
        }
        if self.attends:
            functions["align"] = self.align
        if self.scores:
            functions["score"] = self.score
        made = {
            name: traced(
                function, dict.fromkeys(inspect.signature(function).parameters, ((None,), "string"))
            )
            for name, function in functions.items()
        }
        return {**made, "translate": made["serving_default"]}

    def translate(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Text `(B,)` to `translation` `(B,)`, `score` `(B,)` and `truncated` `(B,)`.

        `unknown` `(B,)` has the letters of the text that training never saw.
        `words` `(B, W)` are those of the translation, and `word_probabilities` `(B, W)` says how
        sure each is: see `words_of`.
        """
        ids, empty, told = self._read(text)
        result, copied = self._search(ids), self._copied(text)
        return {
            "translation": self._text(result.ids[:, 0], empty, copied),
            "score": tf.where(empty, 0.0, result.scores[:, 0]),
            **told,
            **self._words(result, empty, copied),
        }

    def nbest(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Text `(B,)` to `translations` `(B, N)` and `scores` `(B, N)`, the best first.

        `truncated` and `unknown` are those of `translate`.
        """
        ids, empty, told = self._read(text)
        count = self._settings.num_results
        result = self._search(ids, self._settings)
        each, copied = tf.repeat(empty, count), self._copied(text, count)
        flat = tf.reshape(result.ids, [-1, tf.shape(result.ids)[2]])
        return {
            "translations": tf.reshape(self._text(flat, each, copied), [-1, count]),
            "scores": tf.where(empty[:, None], 0.0, result.scores),
            **told,
        }

    def align(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Text `(B,)` to `translation` `(B,)`, the tokens of both sides, and the weights.

        `truncated`, `unknown`, `words` and `word_probabilities` are those of `translate`.
        """
        ids, empty, told = self._read(text)
        result = self._search(ids, return_attention_weights=True)
        assert result.attention_weights is not None
        target, copied = result.ids[:, 0], self._copied(text)
        tokens = tf.where(empty[:, None], "", self.target_tokenizer.tokens(target, copied))
        weights = tf.where((tokens != "")[:, :, None], result.attention_weights[:, 0], 0.0)
        tokens, weights = shown_first(tokens, weights)
        return {
            "translation": self._text(target, empty, copied),
            **told,
            "source_tokens": self.source_tokenizer.tokens(ids, copied),
            "target_tokens": tokens,
            "attention_weights": weights,
            **self._words(result, empty, copied),
        }

    def score(self, text: tf.Tensor, translation: tf.Tensor) -> dict[str, tf.Tensor]:
        """Text and translation `(B,)` to how probable the translation is.

        `score` `(B,)` is comparable with that of `translate`; `tokens` `(B, T)` are those of the
        translation and the end, `log_probs` `(B, T)` is that of each after those before it, and
        `truncated` `(B,)` says that one of both was longer than the model reads; `unknown` `(B,)`
        is that of `translate`.
        """
        ids, empty, told = self._read(text)
        translation = tf.ensure_shape(translation, [None])
        message = "as many translations as texts are expected"
        equal = tf.debugging.assert_equal(tf.shape(text), tf.shape(translation), message)
        with tf.control_dependencies([equal]):
            factor, more = self._bound
            # Of a search, without the end.
            most = factor * self._settings.max_source_length + more - 1
            target = self.target_tokenizer.tokenize(_cut(translation, most))
        truncated = told["truncated"] | _is_cut(translation, target, most)
        target = target[:, :most]
        end = tf.fill([tf.shape(text)[0], 1], END_ID)
        target = dense_ids(tf.concat([target, end], axis=1))
        steps = self._steps
        log_probs = score_targets(self._models, self._encode(ids), target, steps)
        lengths = tf.reduce_sum(tf.cast(target != PAD_ID, tf.float32), 1)
        # Nothing is translated as nothing, without the model.
        certain = empty & (lengths == 1)
        log_probs = tf.where((target != PAD_ID) & ~certain[:, None], log_probs, 0.0)
        norm = ((5.0 + lengths) / 6.0) ** self._settings.length_penalty
        tokens = tf.where(target == END_ID, "</s>", self.target_tokenizer.tokens(target))
        return {
            "score": tf.reduce_sum(log_probs, 1) / norm,
            "tokens": tokens,
            "log_probs": log_probs,
            **{**told, "truncated": truncated},
        }

    def _ids(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        """Return ids `(B, S)`, whether a text is empty, and `truncated` and `unknown`."""
        text = tf.ensure_shape(text, [None])  # a wrong rank is then the caller's error
        most = self._settings.max_source_length
        read = _cut(text, most)
        ids, unknown = self.source_tokenizer.tokenize(read), self.source_tokenizer.unknown(read)
        told = {"truncated": _is_cut(text, ids, most), "unknown": unknown}
        return dense_ids(ids[:, :most]), ids.row_lengths() == 0, told

    def _encoded(self, ids: tf.Tensor) -> Encoded:
        models, width = self._models, self._settings.beam_width
        return encode(self._steps or [PlainStep(x, width) for x in models], ids)

    def _search(
        self,
        ids: tf.Tensor,
        search_settings: SearchSettings | None = None,
        *,
        return_attention_weights: bool = False,
    ) -> SearchResult:
        """Search for one result, or by other settings."""
        search_settings = search_settings or dataclasses.replace(self._settings, num_results=1)
        spelling = self._spelling
        parts = windows(ids, spelling.whole) if spelling else None
        weighs = return_attention_weights or search_settings.replaces_unknown
        result = search(
            self._models,
            self._encode(parts.ids if parts else ids),
            search_settings,
            steps=self._steps,
            bound=self._bound,
            return_attention_weights=weighs or parts is not None,
        )
        if parts:
            result = join(result, parts, search_settings.length_penalty)
        if not search_settings.replaces_unknown:
            return result
        size = self.target_tokenizer.vocab_size
        return result._replace(ids=replace_unknown(result.ids, result.attention_weights, size))

    def _words(
        self, result: SearchResult, empty: tf.Tensor, copied: tf.Tensor | None
    ) -> dict[str, tf.Tensor]:
        ids = result.ids[:, 0]
        tokens = self.target_tokenizer.tokens(ids, copied)
        tokens = tf.where((ids > END_ID) & ~empty[:, None], tokens, "")
        words, probabilities = words_of(self.target_tokenizer, tokens, result.log_probs[:, 0])
        return {"words": words, "word_probabilities": probabilities}

    def _text(self, ids: tf.Tensor, empty: tf.Tensor, copied: tf.Tensor | None) -> tf.Tensor:
        return tf.where(empty, "", self.target_tokenizer.detokenize(ids, copied))

    def _copied(self, text: tf.Tensor, results: int = 1) -> tf.Tensor | None:
        if not self._copies:
            return None
        most = self._settings.max_source_length
        return tokens_to_copy(self._run, _cut(text, most), most, results)


def _cut(text: tf.Tensor, tokens: int) -> tf.Tensor:
    """Cut texts `(B,)` where so many tokens surely end, before work goes into what is not read."""
    most = tokens * TOKEN_BYTES
    cut = tf.strings.substr(text, 0, most)
    cut = tf.strings.unicode_transcode(cut, "UTF-8", "UTF-8", errors="ignore")  # half a letter
    return tf.where(tf.strings.length(text) > most, cut, text)


def _is_cut(text: tf.Tensor, ids: tf.RaggedTensor, most: int) -> tf.Tensor:
    """Return whether each text `(B,)`, with ids `(B, None)`, is longer than what is read."""
    return (ids.row_lengths() > most) | (tf.strings.length(text) > most * TOKEN_BYTES)


def traced(
    function: Callable[..., Any], inputs: Mapping[str, tuple[tuple[int | None, ...], str]]
) -> tf.types.experimental.ConcreteFunction:
    """Return a signature: a function of inputs, each of a shape and a dtype."""
    specs = {name: tf.TensorSpec(*spec, name=name) for name, spec in inputs.items()}
    return graph()(function).get_concrete_function(**specs)


def saved_module(
    models: Sequence[keras.Model],
    tokenizers: Sequence[Any] = (),
    without: Sequence[keras.Variable] = (),
) -> tf.Module:
    """Return a module of tokenizers and of the variables of models' weights, but for some."""
    module, constants = tf.Module(), {id(weight) for weight in without}
    weights = [weight for model in models for weight in model.weights]
    module.variables_used = [w.value for w in weights if id(w) not in constants]
    module.tokenizers = list(tokenizers)
    return module


class ExportedReader:
    """Signatures of a reader, and the `module` to save: its variables and tokenizer."""

    def __init__(self, runs: Sequence[Run], search_settings: SearchSettings) -> None:
        self._models, config = [run.model for run in runs], runs[0].config
        self._source, self._places = runs[0].source, runs[0].source.places
        count = min(search_settings.num_results, search_settings.beam_width)
        self._settings = dataclasses.replace(search_settings, num_results=count)
        self._max_length = config.max_target_length
        self.target_tokenizer = runs[0].target_tokenizer
        self.module = saved_module(self._models, [self.target_tokenizer])
        self.attends = all(run.config.attention != "none" for run in runs)

    def signatures(self) -> dict[str, Any]:
        """Return the functions by the name they are served under."""
        functions = {"serving_default": self.read, "nbest": self.nbest}
        if self.attends:
            functions["regions"] = self.regions
        inputs = self._source.inputs()
        made = {name: traced(function, inputs) for name, function in functions.items()}
        return {**made, "read": made["serving_default"]}

    def read(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Inputs of the source, `(B, …)`, to `text` `(B,)` and `score` `(B,)`.

        `tokens` `(B, T)` are those of the text, and `token_probabilities` `(B, T)` says how sure
        each is.
        """
        return self._best(self._search(inputs))

    def nbest(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Inputs of the source to `texts` `(B, N)` and `scores` `(B, N)`, the best first."""
        count = self._settings.num_results
        result = self._search(inputs, count)
        flat = tf.reshape(result.ids, [-1, tf.shape(result.ids)[2]])
        texts = tf.reshape(self.target_tokenizer.detokenize(flat), [-1, count])
        return {"texts": texts, "scores": result.scores}

    def regions(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """The same with weights, of regions `(B, T, h, w)`."""
        result = self._search(inputs, return_attention_weights=True)
        tokens = self.target_tokenizer.tokens(result.ids[:, 0])
        weights = tf.where((tokens != "")[:, :, None], result.attention_weights[:, 0], 0.0)
        best, (_, weights) = self._best(result), shown_first(tokens, weights)
        places = self._places or (1, tf.shape(weights)[2])  # a sequence is a row
        shape = [*tf.unstack(tf.shape(best["tokens"])), *places]
        return {**best, "attention_weights": tf.reshape(weights, shape)}

    def _best(self, result: SearchResult) -> dict[str, tf.Tensor]:
        ids = result.ids[:, 0]
        tokens = self.target_tokenizer.tokens(ids)
        probabilities = tf.where(tokens != "", tf.exp(result.log_probs[:, 0]), 0.0)
        tokens, probabilities = shown_first(tokens, probabilities)
        return {
            "text": self.target_tokenizer.detokenize(ids),
            "score": result.scores[:, 0],
            "tokens": tokens,
            "token_probabilities": probabilities,
        }

    def _search(
        self, inputs: dict[str, tf.Tensor], num_results: int = 1, **options: Any
    ) -> SearchResult:
        batch = self._source.read(**inputs)
        # TensorFlow 2.21's convolutions give an empty batch a wrong shape: zeros stand in.
        count = tf.shape(batch)[0]
        more = [[0, tf.cast(count == 0, tf.int32)], *[[0, 0]] * (len(batch.shape) - 1)]
        batch = tf.pad(batch, more)
        result = search(
            self._models,
            batch,
            dataclasses.replace(self._settings, num_results=num_results),
            max_length=self._max_length,
            **options,
        )
        return tf.nest.map_structure(lambda x: x if x is None else x[:count], result)


class ExportedPredictor:
    """Signatures of a model of histories, and the `module` to save: its variables."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._models: list[keras.Model] = [run.model for run in runs]
        self._source: Any = runs[0].source
        self.module = saved_module(self._models)
        self.attends = all(map(attends, self._models))

    def signatures(self) -> dict[str, Any]:
        """Return the functions by the name they are served under."""
        made = traced(self.predict, self._source.inputs())
        return {"serving_default": made, "predict": made}

    def predict(self, **columns: tf.Tensor) -> dict[str, tf.Tensor]:
        """Columns, each `(B, T)`, to `probability` `(B,)` and `attention_weights` `(B, T)`.

        `truncated` `(B,)` says that a history has more events than are read, its last ones: of
        those before, what was known holds, and the weights are 0.
        """
        events, places, truncated = self._source.window(**columns)
        # An event without a time is padding: histories may be empty.
        padded = tf.pad(events, [[0, 0], [0, 1], [0, 0]], constant_values=np.nan)
        probability, weights = predict(self._models, padded)
        outputs = {"probability": probability, "truncated": truncated}
        if self.attends:
            rows = tf.range(tf.shape(places)[0])[:, None] + tf.zeros_like(places)
            where, shape = tf.stack([rows, places], axis=-1), tf.shape(columns["time"])
            outputs["attention_weights"] = tf.scatter_nd(where, weights[:, :-1], shape)
        return outputs
