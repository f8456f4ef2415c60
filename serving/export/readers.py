"""The SavedModels of runs that read images or histories: they write a text, or predict."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_attention import SearchResult
from serving.export.texts import traced, variables_of
from training.data.store import END_ID, PAD_ID
from training.decode.labels import attends, predict
from training.decode.search import Search, search
from training.runs.run import Run


class ExportedReader(tf.Module):
    """Variables, tokenizer and signatures of a reader, without the Keras models."""

    def __init__(
        self,
        runs: Sequence[Run],
        *,
        beam_width: int = 5,
        num_results: int = 5,
        length_penalty: float = 1.0,
    ) -> None:
        super().__init__()
        models, config = [run.model for run in runs], runs[0].config
        self._hidden = lambda: models  # a SavedModel that holds Keras models is not served
        source, places = runs[0].source, runs[0].source.places(config)
        self._source, self._places = lambda: source, places
        self._settings = Search(
            beam_width=beam_width,
            num_results=min(num_results, beam_width),
            length_penalty=length_penalty,
        )
        self._max_length = source.longest_target(config)
        self.target_tokenizer = runs[0].target_tokenizer
        self.variables_used = variables_of(models)
        self.attends = all(run.config.attention != "none" for run in runs)

    def signatures(self) -> dict[str, Any]:
        """Return the functions by the name they are served under."""
        functions = {"serving_default": self.read, "nbest": self.nbest}
        if self.attends:
            functions["regions"] = self.regions
        inputs = self._source().inputs()
        made = {name: traced(function, inputs) for name, function in functions.items()}
        return {**made, "read": made["serving_default"]}

    def read(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Inputs of the source, `(B, …)`, to `text` `(B,)` and `score` `(B,)`.

        `tokens` `(B, T)` are those of the text, and `token_probabilities` `(B, T)` says how sure
        each is.
        """
        result = self._search(inputs)
        return {
            "text": self.target_tokenizer.detokenize(result.ids[:, 0]),
            "score": result.scores[:, 0],
            **self._tokens(result),
        }

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
        ids = result.ids[:, 0]
        written = (ids != PAD_ID) & (ids != END_ID)
        weights = tf.where(written[:, :, None], result.attention_weights[:, 0], 0.0)
        places = self._places or (1, tf.shape(weights)[2])  # a sequence is a row
        weights = tf.reshape(weights, [*tf.unstack(tf.shape(ids)), *places])
        return {
            "text": self.target_tokenizer.detokenize(ids),
            "score": result.scores[:, 0],
            "attention_weights": weights,
            **self._tokens(result),
        }

    def _tokens(self, result: SearchResult) -> dict[str, tf.Tensor]:
        ids = result.ids[:, 0]
        written = (ids != PAD_ID) & (ids != END_ID)
        return {
            "tokens": tf.where(written, self.target_tokenizer.tokens(ids), ""),
            "token_probabilities": tf.where(written, tf.exp(result.log_probs[:, 0]), 0.0),
        }

    def _search(
        self, inputs: dict[str, tf.Tensor], num_results: int = 1, **options: Any
    ) -> SearchResult:
        batch = self._source().read(**inputs)
        # TensorFlow 2.21's convolutions give an empty batch a wrong shape: zeros stand in.
        count = tf.shape(batch)[0]
        more = [[0, tf.cast(count == 0, tf.int32)], *[[0, 0]] * (len(batch.shape) - 1)]
        batch = tf.pad(batch, more)
        result = search(
            self._hidden(),
            batch,
            dataclasses.replace(self._settings, num_results=num_results),
            max_length=self._max_length,
            **options,
        )
        return tf.nest.map_structure(lambda x: x if x is None else x[:count], result)


class ExportedPredictor(tf.Module):
    """Variables and signatures of a model of histories, without the Keras models."""

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__()
        models, source = [run.model for run in runs], runs[0].source
        self._hidden = lambda: models  # a SavedModel that holds Keras models is not served
        self._source = lambda: source
        self.variables_used = variables_of(models)
        self.attends = all(map(attends, models))

    def signatures(self) -> dict[str, Any]:
        """Return the functions by the name they are served under."""
        made = traced(self.predict, self._source().inputs())
        return {"serving_default": made, "predict": made}

    def predict(self, **columns: tf.Tensor) -> dict[str, tf.Tensor]:
        """Columns, each `(B, T)`, to `probability` `(B,)` and `attention_weights` `(B, T)`."""
        batch = self._source().read(**columns)
        events = tf.shape(batch)[1]
        # One event that is none, so that histories may be empty.
        batch = tf.pad(batch, [[0, 0], [0, 1], [0, 0]], constant_values=np.nan)
        probability, weights = predict(self._hidden(), batch)
        outputs = {"probability": probability}
        if self.attends:
            outputs["attention_weights"] = weights[:, :events]
        return outputs
