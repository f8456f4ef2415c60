"""The weights and functions of an export. Weights may be stored in half the size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from training.graphs import graph

DTYPES = ("float32", "float16", "bfloat16")


def traced(
    function: Callable[..., Any], inputs: Mapping[str, tuple[tuple[int | None, ...], str]]
) -> tf.types.experimental.ConcreteFunction:
    """Return a signature: a function of inputs, each of a shape and a dtype."""
    specs = {name: tf.TensorSpec(*spec, name=name) for name, spec in inputs.items()}
    return graph()(function).get_concrete_function(**specs)


class Weights(tf.Module):
    """Variables for a SavedModel, with the values of models' weights.

    A SavedModel that holds a Keras model cannot be loaded by TensorFlow Serving, one that holds
    plain variables can.

    Args:
        models: whose weights.
        dtype: "float32", or "float16" or "bfloat16" for weights that are rounded to it. Nothing is
            computed in half precision: each call widens them again.
        without: weights that are left out.
    """

    def __init__(
        self,
        models: Sequence[keras.Model],
        dtype: str = "float32",
        without: Sequence[keras.Variable] = (),
    ) -> None:
        super().__init__()
        if dtype not in DTYPES:
            raise ValueError(f"dtype expected one of {', '.join(DTYPES)}. Received: {dtype}")
        left_out = {id(weight) for weight in without}
        weights = [w for model in models for w in model.weights if id(w) not in left_out]
        halved = [dtype != "float32" and weight.dtype == "float32" for weight in weights]
        self.stored = [
            tf.Variable(tf.cast(weight.value, dtype), trainable=False) if half else weight.value
            for weight, half in zip(weights, halved, strict=True)
        ]
        # A function: what a module holds otherwise is saved with it.
        self._widened = lambda: [
            (weight, tf.cast(stored, "float32"))
            for weight, stored, half in zip(weights, self.stored, halved, strict=True)
            if half
        ]

    def in_use(self) -> keras.StatelessScope:
        """Within this, the models compute with the stored weights."""
        return keras.StatelessScope(state_mapping=self._widened())
