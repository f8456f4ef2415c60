"""Prediction of outcomes from histories, with runs in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from training.data.batches._batches import source_batches
from training.decode._native import native
from training.graphs import graph
from training.runs.run import Run

Tensor = Any
BATCH_SIZE = 256


class Prediction(NamedTuple):
    """The predictions of runs for N examples."""

    probabilities: np.ndarray  # float32 `(N,)`, probability of the outcome
    # for each example the attention weight of each event, float32 `(T,)`; None if a run does not
    # attend
    weights: list[np.ndarray] | None


def attends(model: keras.Model) -> bool:
    """Whether a classifier pools its memory by attention."""
    return "pooling" in {layer.name for layer in model.layers}


def predict(models: Sequence[keras.Model], source: Tensor) -> tuple[Tensor, Tensor]:
    """Return the models' mean probabilities, float32 `(B,)`, and attention weights `(B, T)`.

    Args:
        models: models of `training.model.seq2seq.build_classifier`.
        source: a batch of histories, `(B, T, 1 + 2 * inputs)`.
    """
    probabilities, weights = [], []
    for model in models:
        memory, mask, pooled = model.get_layer("encoder")(source, training=False)
        if attends(model):
            pooling = model.get_layer("pooling")
            pooled, weight = pooling(memory, mask=mask, return_attention_scores=True)
        else:
            weight = ops.zeros_like(source[:, :, 0])
        weights.append(ops.cast(weight, "float32"))
        logits = model.get_layer("output")(pooled)
        probabilities.append(ops.sigmoid(ops.cast(logits[:, 0], "float32")))
    return sum(probabilities) / len(models), sum(weights) / len(models)


def make_predictor(runs: Sequence[Run]) -> Callable[[Any], Prediction]:
    """Return a function from examples to a `Prediction`, compiled once for all calls."""
    models = [run.model for run in runs]
    encoder = models[0].get_layer("encoder")
    spec = tf.TensorSpec(encoder.input.shape, encoder.input.dtype)
    few_shapes = runs[0].config.compiles()
    compiled = native(models, lambda source: predict(models, source))
    if keras.backend.backend() == "tensorflow":
        compiled = graph(spec, jit_compile=few_shapes or None)(compiled)

    def run(examples: Any) -> Prediction:
        rows = runs[0].source.rows(examples)
        lengths, longest = rows.lengths, int(rows.lengths.max(initial=1))
        probabilities = np.zeros(len(lengths), np.float32)
        weights: list[np.ndarray] = [np.zeros(0, np.float32)] * len(lengths)
        for indices, batch in source_batches(rows, BATCH_SIZE, longest, few_shapes):
            chances, looked = compiled(batch)
            probabilities[indices] = chances.numpy()
            for i, row in zip(indices, looked.numpy(), strict=True):
                weights[i] = row[: lengths[i]]
        return Prediction(probabilities, weights if all(map(attends, models)) else None)

    return run
