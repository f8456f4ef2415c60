"""Positions of a sequence or a grid, to be added to it, or to the keys alone."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention.layer import BaseLayer
from keras_attention.shapes import checked_mask, first_place

Tensor = Any


class PositionEncoding(BaseLayer):
    """Base class: adds to each position of a sequence or a grid what belongs to its place.

    A subclass gives `encode`.

    Call arguments:
        value: `(B, T, dim)`, or a grid `(B, H, W, dim)`.
        mask: boolean `(B, T)`: places count from the first position that it allows, so that
            padding on the left changes nothing. Not for a grid.

    Output:
        `(B, T, dim)`, or `(B, H, W, dim)`: the value with its positions.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def encode(self, places: Tensor, axis: int, value_shape: tuple[Any, ...]) -> Tensor:
        """Return the encoding `(..., dim)` of places `(...)`, int32, along the axis 0 or 1."""
        raise NotImplementedError

    def build(self, value_shape: tuple[Any, ...]) -> None:
        """Check that the shape is one of a sequence or a grid."""
        self._expect(
            len(value_shape) in (3, 4),
            "a value (B, T, dim) or (B, H, W, dim)",
            f"value {tuple(value_shape)}",
        )

    def call(self, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """Add the positions; arguments and result as the class says."""
        if len(value.shape) == 4:
            self._expect(mask is None, "no mask of a grid", "one")
            height, width = ops.shape(value)[1:3]
            rows = self.encode(ops.arange(height, dtype="int32"), 0, value.shape)
            columns = self.encode(ops.arange(width, dtype="int32"), 1, value.shape)
            encoding = ops.expand_dims(rows, 1) + ops.expand_dims(columns, 0)
        else:
            mask = checked_mask(self, "mask", mask, value.shape[:-1])
            places = ops.arange(ops.shape(value)[1], dtype="int32")
            if mask is not None:
                places = ops.relu(places - first_place(mask)[:, 0])  # (B, T)
            encoding = self.encode(places, 0, value.shape)
        return value + ops.cast(encoding, value.dtype)

    def compute_output_shape(self, value_shape: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the shape of the value."""
        return value_shape

    def compute_output_spec(self, value: Any, **kwargs: Any) -> keras.KerasTensor:
        """Return the symbolic result."""
        return keras.KerasTensor(value.shape, self.compute_dtype)


@keras.saving.register_keras_serializable("keras_attention")
class SinePositionEncoding(PositionEncoding):
    """Sines and cosines of the position, of wavelengths from 2π up to 2π · `max_wavelength`.

    Vaswani et al. 2017 (arXiv 1706.03762, section 3.5): at place `p` the dimensions `2i` and
    `2i + 1` are `sin(p / L^(2i/dim))` and `cos(p / L^(2i/dim))`. Of a grid the first half of the
    dimensions is that of the row, the second that of the column (Wang and Liu 2019, arXiv
    1908.11415), each with `dim/2` in place of `dim`.

    Args:
        max_wavelength: `L`.
        **kwargs: `name`, `dtype`.

    Call arguments and output are those of `PositionEncoding`: a value `(B, T, dim)`, or a grid
    `(B, H, W, dim)`, and the same with its positions.

    Raises:
        ValueError: if `dim` is odd, or for a grid no multiple of 4.

    Example:
        ```python
        memory = keras.random.normal((2, 7, 16))
        target = keras.random.normal((2, 3, 8))
        decoder = AttentionRNN(keras.layers.GRUCell(12), AdditiveAttention(8))
        positions = SinePositionEncoding()
        outputs = decoder(target, memory, memory_key=positions(memory))  # (2, 3, 28)
        ```
    """

    def __init__(self, max_wavelength: float = 10000.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._expect(max_wavelength >= 1, "max_wavelength >= 1", f"max_wavelength={max_wavelength}")
        self.max_wavelength = max_wavelength

    def build(self, value_shape: tuple[Any, ...]) -> None:
        """Check that sines and cosines fit."""
        super().build(value_shape)
        even = 2 * (len(value_shape) - 2)
        self._expect(
            value_shape[-1] % even == 0,
            f"a dim that is a multiple of {even}",
            f"value {tuple(value_shape)}",
        )

    def encode(self, places: Tensor, axis: int, value_shape: tuple[Any, ...]) -> Tensor:
        """Return the sines and cosines, `(..., dim)`; of a grid 0 in the other axis's half."""
        width = value_shape[-1] // (len(value_shape) - 2)
        powers = -2 * ops.cast(ops.arange(width // 2), self.wide_dtype) / width
        rates = self.max_wavelength**powers
        angles = ops.expand_dims(ops.cast(places, self.wide_dtype), -1) * rates
        pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)
        encoding = ops.reshape(pairs, (*ops.shape(places), width))
        if width == value_shape[-1]:
            return encoding
        zeros = ops.zeros_like(encoding)
        both = [encoding, zeros] if axis == 0 else [zeros, encoding]
        return ops.concatenate(both, axis=-1)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "max_wavelength": self.max_wavelength}


@keras.saving.register_keras_serializable("keras_attention")
class LearnedPositionEncoding(PositionEncoding):
    """A learned vector for each place; of a grid one for each row and one for each column.

    Gehring et al. 2017 (arXiv 1705.03122, section 3.1).

    Args:
        max_length: the greatest length `T`; for a grid the greatest `(H, W)`.
        **kwargs: `kernel_initializer`, `kernel_regularizer`, `kernel_constraint` of the vectors;
            `name`, `dtype`.

    Weights: `position_kernel` `(max_length, dim)`; for a grid `row_kernel` `(H, dim)` and
    `column_kernel` `(W, dim)`.

    Call arguments and output are those of `PositionEncoding`: a value `(B, T, dim)`, or a grid
    `(B, H, W, dim)`, and the same with its positions.

    Raises:
        ValueError: if a value is longer than `max_length`, or a grid where a sequence was
            expected.

    Example:
        ```python
        grid = keras.random.normal((2, 4, 5, 16))
        placed = LearnedPositionEncoding((8, 8))(grid)  # (2, 4, 5, 16)
        ```
    """

    def __init__(self, max_length: int | tuple[int, int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        lengths = max_length if isinstance(max_length, (list, tuple)) else (max_length,)
        for length in lengths:
            self._expect_count("max_length", length)
        self._expect(len(lengths) < 3, "one max_length or two", f"max_length={max_length}")
        self.max_length = max_length
        self._lengths = tuple(lengths)

    def build(self, value_shape: tuple[Any, ...]) -> None:
        """Make the vectors."""
        super().build(value_shape)
        sizes = value_shape[1:-1]
        self._expect(
            len(sizes) == len(self._lengths),
            "a grid for two lengths, a sequence for one",
            f"value {tuple(value_shape)}, max_length={self.max_length}",
        )
        shapes = [(length, value_shape[-1]) for length in self._lengths]
        if len(sizes) == 1:
            self.position_kernel = self.add_kernel(shapes[0], "position_kernel")
        else:
            self.row_kernel = self.add_kernel(shapes[0], "row_kernel")
            self.column_kernel = self.add_kernel(shapes[1], "column_kernel")

    def call(self, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """Add the positions; arguments and result as the class says."""
        fits = [n is None or n <= m for n, m in zip(value.shape[1:-1], self._lengths, strict=True)]
        self._expect(
            all(fits), f"at most max_length={self.max_length}", f"value {tuple(value.shape)}"
        )
        return super().call(value, mask)

    def encode(self, places: Tensor, axis: int, value_shape: tuple[Any, ...]) -> Tensor:
        """Return the vectors of the places, `(..., dim)`."""
        if len(value_shape) == 3:
            return ops.take(self.position_kernel, places, axis=0)
        return ops.take(self.row_kernel if axis == 0 else self.column_kernel, places, axis=0)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "max_length": self.max_length}
