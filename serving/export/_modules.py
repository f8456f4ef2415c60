"""Signatures of exported readers of images and models of histories, and how each is traced."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_attention import SearchResult
from training.decode.labels import attends, predict
from training.decode.search import search
from training.decode.settings import SearchSettings
from training.decode.texts import shown_first
from training.graphs import graph
from training.runs.run import Run


def traced(
    function: Callable[..., Any], inputs: Mapping[str, tuple[tuple[int | None, ...], str]]
) -> tf.types.experimental.ConcreteFunction:
    """Return a traced signature of `function`, whose inputs have these shapes and dtypes."""
    specs = {name: tf.TensorSpec(*spec, name=name) for name, spec in inputs.items()}
    return graph()(function).get_concrete_function(**specs)


def saved_module(
    models: Sequence[keras.Model],
    tokenizers: Sequence[Any] = (),
    without: Sequence[keras.Variable] = (),
) -> tf.Module:
    """Return a module with the tokenizers and the models' variables, except those in `without`."""
    module, constants = tf.Module(), {id(weight) for weight in without}
    weights = [weight for model in models for weight in model.weights]
    module.variables_used = [w.value for w in weights if id(w) not in constants]
    module.tokenizers = list(tokenizers)
    return module


class ExportedReader:
    """The signatures of a reader, and the `module` to save: its variables and its tokenizer."""

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
        """Return the text in each of the source's inputs `(B, …)`.

        Returns `text` and `score`, each `(B,)`, and `tokens` and `token_probabilities`, each
        `(B, T)`.
        """
        return self._best(self._search(inputs))

    def nbest(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the N best `texts` of each input and their `scores`, each `(B, N)`, best first."""
        count = self._settings.num_results
        result = self._search(inputs, count)
        flat = tf.reshape(result.ids, [-1, tf.shape(result.ids)[2]])  # (B·N, T)
        texts = tf.reshape(self.target_tokenizer.detokenize(flat), [-1, count])
        return {"texts": texts, "scores": result.scores}

    def regions(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the outputs of `read`, and `attention_weights` `(B, T, h, w)` over regions."""
        result = self._search(inputs, return_attention_weights=True)
        tokens = self.target_tokenizer.tokens(result.ids[:, 0])
        weights = tf.where((tokens != "")[:, :, None], result.attention_weights[:, 0], 0.0)
        best, (_, weights) = self._best(result), shown_first(tokens, weights)
        places = self._places or (1, tf.shape(weights)[2])  # a sequence is one row of regions
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
        # TensorFlow 2.21's convolutions give an empty batch a wrong shape: add a row of zeros.
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
    """The signatures of a model of histories, and the `module` to save: its variables."""

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
        """Return the outcome's probability for each history, given columns `(B, T)`.

        Returns:
            `probability` `(B,)`.
            `attention_weights` `(B, T)`: the weight of each event; 0 for events that are not read.
            `truncated` `(B,)`: whether a history has more events than the model reads. The model
                reads the last events, with the values that were known before them.
        """
        events, places, truncated = self._source.window(**columns)
        # One more event, of NaN, which is padding: so even an empty history has an event.
        padded = tf.pad(events, [[0, 0], [0, 1], [0, 0]], constant_values=np.nan)
        probability, weights = predict(self._models, padded)
        outputs = {"probability": probability, "truncated": truncated}
        if self.attends:
            # Scatter the weights (B, W) of the W events read to their places in (B, T).
            rows = tf.range(tf.shape(places)[0])[:, None] + tf.zeros_like(places)
            where, shape = tf.stack([rows, places], axis=-1), tf.shape(columns["time"])
            outputs["attention_weights"] = tf.scatter_nd(where, weights[:, :-1], shape)
        return outputs
