"""The SavedModel of a run that says a text of anything but texts, such as images."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_attention import SearchResult
from serving.export.weights import Weights, traced
from training.data.ids import END_ID, PAD_ID
from training.decode.asked import Search
from training.decode.search import search
from training.runs.run import Run


class ExportedReader(tf.Module):
    """Weights, tokenizer and signatures of a reader, without the Keras models."""

    def __init__(
        self,
        runs: Sequence[Run],
        *,
        beam_width: int = 5,
        num_results: int = 5,
        length_penalty: float = 1.0,
        weights: str = "float32",
    ) -> None:
        super().__init__()
        models, config = [run.model for run in runs], runs[0].config
        self._hidden = lambda: models  # a SavedModel that holds Keras models is not served
        source, places = runs[0].source, runs[0].source.places(config)
        self._source, self._places = lambda: source, places
        self._asked = Search(
            beam_width=beam_width,
            num_results=min(num_results, beam_width),
            length_penalty=length_penalty,
        )
        self._max_length = source.longest_target(config)
        self.target_tokenizer = runs[0].target_tokenizer
        self.weights = Weights(models, weights)
        self.attends = all(run.config.attention != "none" for run in runs)

    def signatures(self) -> dict[str, Any]:
        """Return the functions by the name they are served under."""
        functions = {"serving_default": self.read, "nbest": self.nbest}
        if self.attends:
            functions["regions"] = self.regions
        inputs = self._source().inputs()
        made = {name: traced(function, inputs) for name, function in functions.items()}
        return {**made, "read": made["serving_default"]}

    def warmup(self) -> list[tuple[str, dict[str, tf.Tensor]]]:
        """Return requests to warm up with, each the name of a signature and its inputs."""
        names = ["read", "nbest", *(["regions"] if self.attends else [])]
        return [(name, self._source().examples(count)) for name in names for count in (1, 2)]

    def read(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Inputs of the source, `(B, …)`, to `text` `(B,)` and `score` `(B,)`.

        `tokens` `(B, T)` are those of the text, and `token_probabilities` `(B, T)` says how sure
        each is.
        """
        found = self._search(inputs)
        return {
            "text": self.target_tokenizer.detokenize(found.ids[:, 0]),
            "score": found.scores[:, 0],
            **self._tokens(found),
        }

    def nbest(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Inputs of the source to `texts` `(B, N)` and `scores` `(B, N)`, the best first."""
        count = self._asked.num_results
        found = self._search(inputs, count)
        flat = tf.reshape(found.ids, [-1, tf.shape(found.ids)[2]])
        texts = tf.reshape(self.target_tokenizer.detokenize(flat), [-1, count])
        return {"texts": texts, "scores": found.scores}

    def regions(self, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """The same with weights, of regions `(B, T, h, w)`."""
        found = self._search(inputs, return_attention_weights=True)
        ids = found.ids[:, 0]
        said = (ids != PAD_ID) & (ids != END_ID)
        weights = tf.where(said[:, :, None], found.attention_weights[:, 0], 0.0)
        places = self._places or (1, tf.shape(weights)[2])  # a sequence is a row
        weights = tf.reshape(weights, [*tf.unstack(tf.shape(ids)), *places])
        return {
            "text": self.target_tokenizer.detokenize(ids),
            "score": found.scores[:, 0],
            "attention_weights": weights,
            **self._tokens(found),
        }

    def _tokens(self, found: SearchResult) -> dict[str, tf.Tensor]:
        ids = found.ids[:, 0]
        said = (ids != PAD_ID) & (ids != END_ID)
        return {
            "tokens": tf.where(said, self.target_tokenizer.tokens(ids), ""),
            "token_probabilities": tf.where(said, tf.exp(found.log_probs[:, 0]), 0.0),
        }

    def _search(
        self, inputs: dict[str, tf.Tensor], num_results: int = 1, **options: Any
    ) -> SearchResult:
        batch = self._source().read(**inputs)
        # TensorFlow 2.21's convolutions give an empty batch a wrong shape: zeros stand in.
        count = tf.shape(batch)[0]
        more = [[0, tf.cast(count == 0, tf.int32)], *[[0, 0]] * (len(batch.shape) - 1)]
        batch = tf.pad(batch, more)
        with self.weights.in_use():
            found = search(
                self._hidden(),
                batch,
                dataclasses.replace(self._asked, num_results=num_results),
                max_length=self._max_length,
                **options,
            )
        return tf.nest.map_structure(lambda x: x if x is None else x[:count], found)
