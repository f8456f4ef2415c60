"""Signatures of exported translators, from texts to texts."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from keras_attention import SearchResult
from keras_attention.search import length_norm
from serving.export._modules import saved_module, traced
from training.data.rules import END_ID, PAD_ID, TOKEN_BYTES, most_tokens
from training.data.tokens.splitting import single_spaces
from training.decode.search import Encoded, bound_of, encode, score_targets, search
from training.decode.settings import SearchSettings
from training.decode.steps import PlainStep, constant_steps
from training.decode.texts import dense_ids, replace_unknown, shown_first, tokens_to_copy, words_of
from training.decode.windows import are_long, join, spelling_of, windows
from training.graphs import graph
from training.runs.run import Run

WARMUP_TEXTS = "warm up", "", "a longer text to warm up with, of some more words"


class Exported:
    """The signatures of a translator, and the `module` to save: its variables and tokenizers.

    TensorFlow Serving's C++ loader cannot load a SavedModel that holds a Keras model, so the module
    has none. Several runs form an ensemble. Kernels are constants of the graph if that is faster.
    Raises ValueError for several runs if `precision` is "bfloat16".
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
        # All signatures tokenize and encode. As shared functions, both are traced and saved once.
        text, ids = tf.TensorSpec([None], tf.string), tf.TensorSpec([None, None], tf.int32)
        self._read = graph(text)(self._ids)
        self._encode = graph(ids)(self._encoded)
        # No signature `score` with bfloat16, whose step computes the best tokens only, nor for a
        # model that copies: the given translation would not have the copied tokens.
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
        """Return the best translation of each text `(B,)`.

        Returns `translation`, `score`, `truncated` and `unknown`, each `(B,)`, and `words` and
        `word_probabilities`, each `(B, W)`: see `words_of`. `unknown` has the letters of the text
        that training never saw.
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
        """Return the N best translations of each text `(B,)`, best first.

        Returns `translations` and `scores`, each `(B, N)`, and `truncated` and `unknown`, each
        `(B,)`, as `translate` does.
        """
        ids, empty, told = self._read(text)
        count = self._settings.num_results
        result = self._search(ids, self._settings)
        each, copied = tf.repeat(empty, count), self._copied(text, count)
        flat = tf.reshape(result.ids, [-1, tf.shape(result.ids)[2]])  # (B·N, T)
        return {
            "translations": tf.reshape(self._text(flat, each, copied), [-1, count]),
            "scores": tf.where(empty[:, None], 0.0, result.scores),
            **told,
        }

    def align(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the best translation of each text `(B,)` with its attention weights.

        Returns `source_tokens` `(B, S)`, `target_tokens` `(B, T)` and `attention_weights`
        `(B, T, S)`, and all outputs of `translate` but `score`.
        """
        ids, empty, told = self._read(text)
        result = self._search(ids, return_attention_weights=True)
        assert result.attention_weights is not None
        target, copied = result.ids[:, 0], self._copied(text)  # target: (B, T)
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
        """Return the log-probability of a given translation `(B,)` of each text `(B,)`.

        A pronouncer reads a long word by windows. If its search finds the given translation, score
        and `log_probs` are those of the search. Else the word is read whole, which often gives a
        lower score.

        Returns:
            `score` `(B,)`: comparable with the `score` of `translate`.
            `tokens` `(B, T)`: the tokens of the translation, and the end token.
            `log_probs` `(B, T)`: the log-probability of each token, given the tokens before it.
            `truncated` `(B,)`: whether text or translation is longer than the model reads.
            `unknown` `(B,)`: as in `translate`.
        """
        ids, empty, told = self._read(text)
        translation = tf.ensure_shape(translation, [None])
        message = "as many translations as texts are expected"
        equal = tf.debugging.assert_equal(tf.shape(text), tf.shape(translation), message)
        with tf.control_dependencies([equal]):
            # The most tokens that a search would write, without the end token.
            most = most_tokens(self._settings.max_source_length, self._bound) - 1
            target = self.target_tokenizer.tokenize(_cut(translation, most))
        truncated = told["truncated"] | _is_cut(translation, target, most)
        target = target[:, :most]
        end = tf.fill([tf.shape(text)[0], 1], END_ID)
        target = dense_ids(tf.concat([target, end], axis=1))
        steps = self._steps
        log_probs = score_targets(self._models, self._encode(ids), target, steps)
        lengths = tf.reduce_sum(tf.cast(target != PAD_ID, tf.float32), 1)
        # An empty text has the empty translation, with probability 1.
        certain = empty & (lengths == 1)
        log_probs = tf.where((target != PAD_ID) & ~certain[:, None], log_probs, 0.0)
        norm = length_norm(lengths, self._settings.length_penalty)
        score = tf.reduce_sum(log_probs, 1) / norm
        if self._spelling:
            score, log_probs = self._of_windows(ids, target, score, log_probs)
        tokens = tf.where(target == END_ID, "</s>", self.target_tokenizer.tokens(target))
        return {
            "score": score,
            "tokens": tokens,
            "log_probs": log_probs,
            **{**told, "truncated": truncated},
        }

    def _ids(self, text: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, dict[str, tf.Tensor]]:
        """Return ids `(B, S)`, whether a text is empty, and `truncated` and `unknown`."""
        text = tf.ensure_shape(text, [None])  # reject a wrong rank as the caller's error
        most = self._settings.max_source_length
        read = _cut(text, most)
        ids, unknown = self.source_tokenizer.tokenize(read), self.source_tokenizer.unknown(read)
        told = {"truncated": _is_cut(text, ids, most), "unknown": unknown}
        return dense_ids(ids[:, :most]), ids.row_lengths() == 0, told

    def _encoded(self, ids: tf.Tensor) -> Encoded:
        """Return what the models compute once for source ids `(B, S)`, before the search."""
        models, width = self._models, self._settings.beam_width
        return encode(self._steps or [PlainStep(x, width) for x in models], ids)

    def _search(
        self,
        ids: tf.Tensor,
        search_settings: SearchSettings | None = None,
        *,
        return_attention_weights: bool = False,
    ) -> SearchResult:
        """Return the search's result for source ids `(B, S)`; by default one hypothesis each."""
        search_settings = search_settings or dataclasses.replace(self._settings, num_results=1)
        spelling = self._spelling
        parts = windows(ids, spelling) if spelling else None
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
            result = join(result, parts)
        if not search_settings.replaces_unknown:
            return result
        size = self.target_tokenizer.vocab_size
        return result._replace(ids=replace_unknown(result.ids, result.attention_weights, size))

    def _of_windows(
        self, ids: tf.Tensor, target: tf.Tensor, score: tf.Tensor, log_probs: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return scores and log-probabilities, those of the search for long words that it finds.

        Args:
            ids: of the sources, `(B, S)`.
            target: ids of the given translations, `(B, T)`.
            score: of the words read whole, `(B,)`.
            log_probs: likewise, `(B, T)`.
        """
        assert self._spelling is not None
        rows = tf.cast(tf.where(are_long(ids, self._spelling)), tf.int32)  # (L, 1)
        every = dataclasses.replace(self._settings, num_results=self._settings.beam_width)
        result = self._search(tf.gather_nd(ids, rows), every)
        steps, most = tf.shape(target)[1], tf.shape(result.ids)[2]
        found = tf.pad(result.ids, [[0, 0], [0, 0], [0, tf.maximum(steps - most, 0)]])
        wanted = tf.pad(tf.gather_nd(target, rows), [[0, 0], [0, tf.maximum(most - steps, 0)]])
        same = tf.reduce_all(found == wanted[:, None], 2) & (result.scores > -np.inf)  # (L, N)
        rank = tf.argmax(tf.cast(same, tf.int32), 1)
        gains = tf.pad(result.log_probs, [[0, 0], [0, 0], [0, tf.maximum(steps - most, 0)]])
        gains = tf.gather(gains[..., :steps], rank, batch_dims=1)
        own = tf.gather(result.scores, rank, batch_dims=1)
        is_found = tf.reduce_any(same, 1)
        rows = tf.boolean_mask(rows, is_found)
        score = tf.tensor_scatter_nd_update(score, rows, tf.boolean_mask(own, is_found))
        gains = tf.boolean_mask(gains, is_found)
        return score, tf.tensor_scatter_nd_update(log_probs, rows, gains)

    def _words(
        self, result: SearchResult, empty: tf.Tensor, copied: tf.Tensor | None
    ) -> dict[str, tf.Tensor]:
        """Return the `words` and `word_probabilities` `(B, W)` of the best translations."""
        ids = result.ids[:, 0]
        tokens = self.target_tokenizer.tokens(ids, copied)
        tokens = tf.where((ids > END_ID) & ~empty[:, None], tokens, "")
        words, probabilities = words_of(self.target_tokenizer, tokens, result.log_probs[:, 0])
        return {"words": words, "word_probabilities": probabilities}

    def _text(self, ids: tf.Tensor, empty: tf.Tensor, copied: tf.Tensor | None) -> tf.Tensor:
        return tf.where(empty, "", self.target_tokenizer.detokenize(ids, copied))

    def _copied(self, text: tf.Tensor, results: int = 1) -> tf.Tensor | None:
        """Return the source tokens that a translation may copy, None if it copies none."""
        if not self._copies:
            return None
        most = self._settings.max_source_length
        return tokens_to_copy(self._run, _cut(text, most), most, results)


def _cut(text: tf.Tensor, tokens: int) -> tf.Tensor:
    """Return texts `(B,)` cut to the most bytes that `tokens` tokens can have, to save work.

    White space becomes single spaces first.
    """
    most, text = tokens * TOKEN_BYTES, single_spaces(text)
    cut = tf.strings.substr(text, 0, most)
    # The cut may split a letter: drop the half that is left.
    cut = tf.strings.unicode_transcode(cut, "UTF-8", "UTF-8", errors="ignore")
    return tf.where(tf.strings.length(text) > most, cut, text)


def _is_cut(text: tf.Tensor, ids: tf.RaggedTensor, most: int) -> tf.Tensor:
    """Return whether each text `(B,)`, with ids `(B, None)`, is longer than `most` tokens."""
    return (ids.row_lengths() > most) | (
        tf.strings.length(single_spaces(text)) > most * TOKEN_BYTES
    )
