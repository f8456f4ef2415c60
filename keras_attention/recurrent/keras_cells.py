"""Keras's recurrent cells: their sizes, states, tensors and dropout masks."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops, tree

from keras_attention.fast import switch
from keras_attention.fast.gates import Gates
from keras_attention.layer import keeps

Tensor = Any

KINDS = {
    "simple": keras.layers.SimpleRNNCell,
    "gru": keras.layers.GRUCell,
    "lstm": keras.layers.LSTMCell,
}


def parts(cell: Any) -> list[Any]:
    """Return the cells of a stack, bottom first, or the one cell."""
    return list(cell.cells) if isinstance(cell, keras.layers.StackedRNNCells) else [cell]


def output_size(cell: Any) -> int:
    """Return the width of the (top) cell's output."""
    size: int = tree.flatten(getattr(cell, "output_size", None) or parts(cell)[-1].state_size)[0]
    return size


def state_size(cell: Any) -> int:
    """Return the width of the (top) cell's first state."""
    size: int = tree.flatten(parts(cell)[-1].state_size)[0]
    return size


def first_state(cell: Any, state: Any) -> Tensor:
    """Return the first state of the (top) cell: for most cells, its last output."""
    return tree.flatten(state[-1] if isinstance(cell, keras.layers.StackedRNNCells) else state)[0]


def zero_state(cell: Any, batch_size: Any) -> list[Any]:
    """Return the states before the first step, as a list."""
    if not hasattr(cell, "get_initial_state"):
        sizes = cell.state_size if tree.is_nested(cell.state_size) else [cell.state_size]
        return [ops.zeros((batch_size, size), cell.compute_dtype) for size in sizes]
    state = cell.get_initial_state(batch_size=batch_size)
    return list(state) if tree.is_nested(state) else [state]


def advance(cell: Any, inputs: Tensor, state: Any, training: bool | None) -> tuple[Tensor, Any]:
    """Take one step: the output, and the next states in the structure of those before.

    Within `dropout_masks`.
    """
    arguments = inspect.signature(cell.call).parameters
    known = {"training": training} if "training" in arguments else {}
    output, new = cell(inputs, state, **known)
    # A stack of one cell does not give its states back in the structure it took them in.
    return output, tree.pack_sequence_as(state, tree.flatten(new))


def gates(cell: Any) -> Gates | None:
    """Return the tensors of a Keras cell's step; None for a cell that the fast loops do not know.

    Those are cells with a step of their own, such as a subclass that overrides `call`, with
    dropout, without bias, or with the reset gate before the product.
    """
    for kind, known in KINDS.items():
        if not isinstance(cell, known):
            continue
        plain = keeps(cell.call, known.call) and type(cell).__call__ is known.__call__
        if not plain or not cell.use_bias or cell.dropout or cell.recurrent_dropout:
            return None
        if kind == "gru" and not cell.reset_after:
            return None
        return Gates(
            kind,
            cell.kernel,
            cell.recurrent_kernel,
            cell.bias,
            cell.activation,
            getattr(cell, "recurrent_activation", cell.activation),
            cell.compute_dtype,
        )
    return None


def hoisted(cell: Any, dtype: str | None = None) -> Gates | None:
    """Return `gates` where a loop of `fast.loop` may run the cell, in the dtype if one is given."""
    found = gates(cell) if switch.hoists() else None
    return found if found and dtype in (None, found.dtype) else None


# Dropout masks are drawn once for a sequence, outside the loop: they would leak out of it.


@contextlib.contextmanager
def dropout_masks(
    cell: Any, width: int, rows: Any, dtype: str, training: bool | None
) -> Iterator[None]:
    """Within this, the cells hold masks for inputs `(rows, width)`; outside training none."""
    if not training:
        with without_dropout(cell):
            yield
        return
    try:
        _forget(cell)
        for one in parts(cell):
            if hasattr(one, "get_dropout_mask"):
                one.get_dropout_mask(ops.zeros((rows, width), dtype))
                one.get_recurrent_dropout_mask(ops.zeros((rows, state_size(one)), dtype))
            width = output_size(one)
        yield
    finally:
        _forget(cell)


def _forget(cell: Any) -> None:
    for one in parts(cell):
        if hasattr(one, "get_dropout_mask"):
            one.reset_dropout_mask()
            one.reset_recurrent_dropout_mask()


@contextlib.contextmanager
def without_dropout(cell: Any) -> Iterator[None]:
    """Within this, cells with dropout draw no masks: a draw moves the random generators.

    Keras's cells draw by their rates alone, whether `training` is set or not.
    """
    drawing = [one for one in parts(cell) if hasattr(one, "get_dropout_mask")]
    drawing = [one for one in drawing if one.dropout or one.recurrent_dropout]
    rates = [(one.dropout, one.recurrent_dropout) for one in drawing]
    try:
        for one in drawing:
            one.dropout = one.recurrent_dropout = 0.0
        yield
    finally:
        for one, (dropout, recurrent) in zip(drawing, rates, strict=True):
            one.dropout, one.recurrent_dropout = dropout, recurrent
