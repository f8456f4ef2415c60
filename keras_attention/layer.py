"""Base classes of the layers: checks of arguments, kernels, heads."""

from __future__ import annotations

import inspect
from numbers import Integral
from typing import Any

import keras
from keras import ops

from keras_attention import backend, distributions, losses
from keras_attention.shapes import join_heads, split_heads

Tensor = Any


class BaseLayer(keras.layers.Layer):
    """A layer with errors in one form, and one initializer, regularizer and constraint of kernels.

    Args:
        kernel_initializer: initializer of the kernels.
        kernel_regularizer: regularizer of the kernels, or None.
        kernel_constraint: constraint of the kernels, or None.
    """

    def __init__(
        self,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        kernel_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call as Keras does; a ValueError for a list of inputs, which some Keras layers take."""
        if len(args) == 1 and isinstance(args[0], (list, tuple)):
            parameters = inspect.signature(self.call).parameters.values()
            inputs = ", ".join(each.name for each in parameters if each.default is each.empty)
            self._expect(False, f"to be called as layer({inputs})", f"a list of {len(args[0])}")
        return super().__call__(*args, **kwargs)

    def add_kernel(self, shape: tuple[int, ...], name: str) -> keras.Variable:
        """Make a weight with the layer's initializer, regularizer and constraint."""
        return self.add_weight(
            shape,
            self.kernel_initializer,
            name=name,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )

    @property
    def wide_dtype(self) -> str:
        """Dtype of sums over many positions or queries: float32 or wider."""
        return "float64" if self.compute_dtype == "float64" else "float32"

    def _expect(self, holds: bool, expected: str, received: str) -> None:
        if not holds:
            raise ValueError(f"{type(self).__name__} expected {expected}. Received: {received}")

    def _expect_count(self, name: str, value: Any, or_none: bool = False) -> None:
        """Raise a ValueError unless the value is an integer from 1 on."""
        whole = isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1
        expected = f"{name} >= 1, an integer" + (" or None" if or_none else "")
        self._expect(whole or (or_none and value is None), expected, f"{name}={value!r}")

    def _expect_built(self) -> None:
        self._expect(
            self.built,
            "to be called, or build(...) with shapes, before it takes single steps",
            "a layer without weights",
        )

    def _get_own_losses(self) -> list[Any]:
        """Return what `Layer.losses` of a model asks of each layer, as Keras does."""
        losses.expect_losses(self)
        own: list[Any] = super()._get_own_losses()
        return own

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
        }


def keeps(method: Any, own: Any) -> bool:
    """Whether a bound method is `own`, a class's function, and not an override of it."""
    return getattr(method, "__func__", None) is own


class AveragingLayer(BaseLayer):
    """A layer that weighs positions and averages them: distribution, heads and dropout.

    Args:
        distribution: a name of `keras_attention.distributions.BY_NAME`.
        num_heads: number of heads, each with its part of the last axis.
        dropout: fraction of the weights dropped in training.
        seed: integer seed of the dropout.
        **kwargs: as for `BaseLayer`.
    """

    def __init__(
        self,
        distribution: str = "softmax",
        num_heads: int = 1,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._expect(
            distribution in distributions.BY_NAME,
            f"distribution to be one of {', '.join(distributions.BY_NAME)}",
            f"distribution={distribution!r}",
        )
        self._expect_count("num_heads", num_heads)
        self._expect(0 <= dropout < 1, "0 <= dropout < 1", f"dropout={dropout}")
        self.distribution = distribution
        self.num_heads = num_heads
        self.dropout = dropout
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed) if dropout else None
        self.supports_masking = True

    def split_heads(self, x: Tensor) -> Tensor:
        """Split the last axis of `(B, T, ·)` among the heads: `(B, heads, T, ·)`."""
        return x if self.num_heads == 1 else split_heads(x, self.num_heads)

    def dropped(self, shape: tuple[Any, ...]) -> Tensor:
        """Draw the factors of weights of this shape: 0 for what is dropped."""
        ones = ops.ones(shape, self.compute_dtype)
        return keras.random.dropout(ones, self.dropout, seed=self.seed_generator)

    def average(self, weights: Tensor, value: Tensor) -> Tensor:
        """Return the averages `(B, n, ·)` of values that are split among the heads."""
        found = backend.average(weights, value)
        return found if self.num_heads == 1 else join_heads(found)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "distribution": self.distribution,
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            "seed": self.seed,
        }
