"""Positions of a sequence or a grid."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention.layer import BaseLayer
from keras_attention.shapes import Tensor, first_place


@keras.saving.register_keras_serializable("keras_attention")
class SinePositionEncoding(BaseLayer):
    """Sines and cosines of the position, to be added: wavelengths from 2π to 2π · `max_wavelength`.

    Vaswani et al. 2017 (arXiv 1706.03762, section 3.5): at place `p` the dimensions `2i` and
    `2i + 1` are `sin(p / L^(2i/dim))` and `cos(p / L^(2i/dim))`. In a grid, the first half of the
    dimensions encodes the row, and the second half the column, each with `dim/2` instead of `dim`
    (Wang and Liu 2019, arXiv 1908.11415).

    Args:
        max_wavelength: `L`.
        **kwargs: `name`, `dtype`.

    Call arguments:
        value: `(B, T, dim)`, or a grid `(B, H, W, dim)`.
        mask: boolean `(B, T)`. Places count from the first position that the mask allows, so that
            padding on the left changes nothing. A grid takes no mask.

    Output:
        The encoding, with the value's shape and the layer's dtype. Add it to the value.

    Raises:
        ValueError: if `dim` is odd, or, for a grid, not a multiple of 4.

    Example:
        ```python
        memory = keras.random.normal((2, 7, 16))
        placed = memory + SinePositionEncoding()(memory)  # (2, 7, 16)
        ```
    """

    def __init__(self, max_wavelength: float = 10000.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._expect_number("max_wavelength", max_wavelength, 1)
        self.max_wavelength = max_wavelength
        self.supports_masking = True

    def build(self, value_shape: tuple[Any, ...]) -> None:
        """Check that sines and cosines fit."""
        rank, dim, received = len(value_shape), value_shape[-1], f"value {tuple(value_shape)}"
        self._expect(rank in (3, 4), "a value (B, T, dim) or (B, H, W, dim)", received)
        even = 2 * (rank - 2)
        expected = f"a known dim that is a multiple of {even}"
        self._expect(dim is not None and dim % even == 0, expected, received)

    def call(self, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the positions; the class documents the arguments and the output."""
        self.build(value.shape)
        if len(value.shape) == 4:
            self._expect(mask is None, "no mask of a grid", "one")
            height, width = ops.shape(value)[1:3]
            half = value.shape[-1] // 2
            rows = ops.expand_dims(self._waves(ops.arange(height), half), 1)
            columns = ops.expand_dims(self._waves(ops.arange(width), half), 0)
            halves = [ops.broadcast_to(x, (height, width, half)) for x in (rows, columns)]
            encoding = ops.concatenate(halves, axis=-1)
        else:
            mask = self._checked_mask("mask", mask, value.shape[:-1])
            places = ops.arange(ops.shape(value)[1], dtype="int32")
            if mask is not None:
                places = ops.relu(places - first_place(mask)[:, 0])  # (B, T)
            encoding = self._waves(places, value.shape[-1])
        return ops.broadcast_to(ops.cast(encoding, self.compute_dtype), ops.shape(value))

    def _waves(self, places: Tensor, width: int) -> Tensor:
        """Return the sines and cosines `(..., width)` of places `(...)`."""
        powers = -2 * ops.cast(ops.arange(width // 2), self.wide_dtype) / width
        angles = ops.expand_dims(ops.cast(places, self.wide_dtype), -1)
        angles = angles * self.max_wavelength**powers
        pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
        return ops.reshape(pairs, (*ops.shape(places), width))

    def output_spec(self, value: Any, **kwargs: Any) -> keras.KerasTensor:
        """Return the symbolic result."""
        return keras.KerasTensor(value.shape, self.compute_dtype)
