"""Shapes and masks: checked, joined, flattened."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops, tree

from keras_attention import backend

Tensor = Any
Shape = Sequence[Any]


def check_shapes(
    layer: keras.layers.Layer, query: Shape | None, value: Shape, key: Shape | None
) -> None:
    """Raise a ValueError if query, value and key do not fit together, or a built layer.

    A query or key that is not there is None.
    """
    shapes = {"query": query, "value": value, "key": key}
    key = value if key is None else key
    query = (value[0], layer.query_width or value[-1]) if query is None else query
    expected = ""
    if len(query) not in (2, 3) or len(value) not in (3, 4) or len(key) not in (3, 4):
        expected = (
            "a query (B, Tq, dim) or (B, dim), a value (B, Tv, dim) or (B, H, W, dim) and a key "
            "like it"
        )
    elif not query[0] == value[0] == key[0] and not fits((query[0], key[0]), (value[0], value[0])):
        expected = "one batch size"
    elif key is not value and not fits(key[1:-1], value[1:-1]):
        expected = "key and value of the same length"
    elif 0 in (*query[1:], *value[1:]):
        expected = "a query and a position at least"
    elif None in (query[-1], value[-1], key[-1]):
        expected = "a known last axis"
    elif layer.query_width not in (None, query[-1]):
        expected = f"a query of width {layer.query_width}, as it was built"
    elif layer.key_width not in (None, key[-1]):
        expected = f"a key of width {layer.key_width}, as it was built"
    if expected:
        received = [f"{name} {tuple(shape)}" for name, shape in shapes.items() if shape is not None]
        raise ValueError(
            f"{type(layer).__name__} expected {expected}. Received: {', '.join(received)}"
        )


def fits(shape: Shape, expected: Shape) -> bool:
    """Return whether two shapes may be the same, where None is unknown."""
    if len(shape) != len(expected):
        return False
    for a, b in zip(shape, expected, strict=True):
        if a is not None and b is not None and a != b:
            return False
    return True


def checked_mask(layer: keras.layers.Layer, name: str, mask: Any, shape: Shape) -> Tensor | None:
    """Return a mask, an array or a list, as a boolean tensor; None for None.

    The mask of a grid `(B, H, W)` may be flat, and is made so.

    Raises:
        ValueError: if the mask's shape is not the one given.
    """
    if mask is None or (len(shape) == 2 and tuple(getattr(mask, "shape", ())) == tuple(shape)):
        return mask if mask is None else ops.cast(mask, "bool")
    shapes = [tuple(shape)]
    if len(shape) == 3:
        shapes.append((shape[0], flat_length((*shape, None))))
    return flat_mask(_checked(layer, name, mask, shapes))


def checked_attention_mask(layer: keras.layers.Layer, mask: Any, shape: Shape) -> Tensor:
    """Return an attention mask as boolean `(B | 1, Tq | 1, Tv)`.

    It may leave out the batch axis, and its other axes but the last may be 1. The shape that it
    should have is `(B, Tq, Tv)`, or `(B, Tv)` for one step.
    """
    *lead, last = shape
    choices = [(size, 1) for size in lead]
    shapes = [(*sizes, last) for sizes in itertools.product(*choices)]
    if len(lead) == 2:
        shapes += [(size, last) for size in choices[1]]
    mask = _checked(layer, "attention_mask", mask, shapes)
    if len(mask.shape) == 3:
        return mask
    return ops.expand_dims(mask, 1 if len(shape) == 2 else 0)


def _checked(layer: keras.layers.Layer, name: str, mask: Any, shapes: list[Any]) -> Tensor:
    """Return the mask if it has one of the shapes, the first of which the error names."""
    mask = ops.convert_to_tensor(mask) if isinstance(mask, (list, tuple)) else mask
    mask, shape = ops.cast(mask, "bool"), shapes[0]
    if any(fits(mask.shape, each) for each in shapes):
        return mask
    hint = ""
    if len(mask.shape) == 1 and len(shape) == 2:
        hint = f". Lengths are made a mask by keras.ops.arange({shape[1]}) < lengths[:, None]"
    raise ValueError(
        f"{type(layer).__name__} expected {name} {shape}. "
        f"Received: {name} {tuple(mask.shape)}{hint}"
    )


def check_states(
    layer: keras.layers.Layer, states: Any, expected: list[Any], form: str, source: str
) -> None:
    """Raise a ValueError unless a structure of tensors has these shapes; None is unknown.

    The error names the form of the states, and where they come from.
    """
    states = [] if states is None else tree.flatten(states)
    shapes = [tuple(getattr(x, "shape", ())) for x in states]
    if len(shapes) != len(expected) or not all(map(fits, shapes, expected)):
        wanted, received = (", ".join(map(str, each)) or "()" for each in (expected, shapes))
        raise ValueError(
            f"{type(layer).__name__} expected {form} {wanted}, {source}. Received: {received}"
        )


def note_length(layer: keras.layers.Layer, sequence: Any) -> None:
    """Keep the number of steps of a symbolic call, None where unknown: `expect_known_length`."""
    vars(layer).setdefault("_symbolic_lengths", set()).add(sequence.shape[1:2])


def expect_known_length(layer: keras.layers.Layer, sequence: Tensor) -> None:
    """Raise a ValueError where an export to ONNX would unroll a loop over an unknown length.

    Keras traces unknown lengths as 1: `note_length` has seen the layer's symbolic calls.
    """
    lengths = vars(layer).get("_symbolic_lengths", {(None,)})
    if sequence.shape[1] == 1 and (None,) in lengths and backend.traces_onnx():
        raise ValueError(
            f"{type(layer).__name__} expected a known number of steps in an export from PyTorch to "
            "ONNX, where its loop is unrolled: give the input a length, or export a SavedModel "
            "from TensorFlow or JAX. Received: an unknown number"
        )


def both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Combine two boolean masks, either of which may be None."""
    if a is None or b is None:
        return a if b is None else b
    return ops.logical_and(a, b)


def causal_mask(queries: Any, length: Any) -> Tensor:
    """Return the mask `(1, queries, length)` in which query `i` sees positions up to `i`."""
    rows = ops.expand_dims(ops.arange(queries), 1)
    columns = ops.expand_dims(ops.arange(length), 0)
    return ops.expand_dims(rows >= columns, 0)


def flat_length(shape: Shape) -> int | None:
    """Return the number of positions of a memory `(B, Tv, dim)` or grid `(B, H, W, dim)`."""
    sizes = shape[1:-1]
    return None if None in sizes else math.prod(sizes)


def flat_memory(memory: Tensor) -> Tensor:
    """Return a memory or a grid as `(B, Tv, dim)`."""
    if len(memory.shape) == 3:
        return memory
    batch, height, width, dim = ops.shape(memory)
    return ops.reshape(memory, (batch, height * width, dim))


def flat_mask(mask: Tensor | None) -> Tensor | None:
    """Return the mask of a memory or of a grid as `(B, Tv)`."""
    if mask is None or len(mask.shape) == 2:
        return mask
    batch, height, width = ops.shape(mask)
    return ops.reshape(mask, (batch, height * width))


def first_place(mask: Tensor) -> Tensor:
    """Return the first position that a mask `(B, Tv)` allows, int32 `(B, 1, 1)`; 0 if none."""
    first = ops.argmax(ops.cast(mask, "int32"), axis=1)
    return ops.reshape(ops.cast(first, "int32"), (-1, 1, 1))


def keep_where(valid: Tensor, new: Any, old: Any) -> Any:
    """Return, of two structures of tensors `(B, ...)`, `new` where valid `(B,)`, else `old`."""

    def choose(a: Tensor, b: Tensor) -> Tensor:
        return ops.where(ops.reshape(valid, (-1, *[1] * (len(a.shape) - 1))), a, b)

    return tree.map_structure(choose, new, old)
