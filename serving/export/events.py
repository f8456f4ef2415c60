"""The SavedModel of a run that gives the probability of an outcome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from serving.export.weights import Weights, traced
from training.decode.labels import attends, predict
from training.runs.run import Run


class ExportedPredictor(tf.Module):
    """Weights and signatures of a model of histories, without the Keras models."""

    def __init__(self, runs: Sequence[Run], *, weights: str = "float32") -> None:
        super().__init__()
        models, source = [run.model for run in runs], runs[0].source
        self._hidden = lambda: models  # a SavedModel that holds Keras models is not served
        self._source = lambda: source
        self.weights = Weights(models, weights)
        self.attends = all(map(attends, models))

    def signatures(self) -> dict[str, Any]:
        """Return the functions by the name they are served under."""
        made = traced(self.predict, self._source().inputs())
        return {"serving_default": made, "predict": made}

    def warmup(self) -> list[tuple[str, dict[str, tf.Tensor]]]:
        """Return requests to warm up with, each the name of a signature and its inputs."""
        return [("predict", self._source().examples(count)) for count in (1, 3)]

    def predict(self, **columns: tf.Tensor) -> dict[str, tf.Tensor]:
        """Columns, each `(B, T)`, to `probability` `(B,)` and `attention_weights` `(B, T)`."""
        batch = self._source().read(**columns)
        events = tf.shape(batch)[1]
        # One event that is none, so that histories may be empty.
        batch = tf.pad(batch, [[0, 0], [0, 1], [0, 0]], constant_values=np.nan)
        with self.weights.in_use():
            probability, weights = predict(self._hidden(), batch)
        outputs = {"probability": probability}
        if self.attends:
            outputs["attention_weights"] = weights[:, :events]
        return outputs
