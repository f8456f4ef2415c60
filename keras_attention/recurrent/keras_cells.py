"""Keras's recurrent cells: their sizes, states, tensors and dropout masks.

A cell may be a `StackedRNNCells`. Its output size, state size and first state are then those of
the top cell, the last in the stack.
"""

from __future__ import annotations

import inspect
from typing import Any

import keras
from keras import ops, tree

from keras_attention import backend
from keras_attention.fast.gates import Gates
from keras_attention.layer import keeps
from keras_attention.shapes import Tensor

_KINDS = {
    "simple": keras.layers.SimpleRNNCell,
    "gru": keras.layers.GRUCell,
    "lstm": keras.layers.LSTMCell,
}


def parts(cell: Any) -> list[Any]:
    """Return the cells of a stack, bottom first, or a list of the single cell."""
    return list(cell.cells) if isinstance(cell, keras.layers.StackedRNNCells) else [cell]


def output_size(cell: Any) -> int:
    """Return the width of the cell's output."""
    size: int = tree.flatten(getattr(cell, "output_size", None) or parts(cell)[-1].state_size)[0]
    return size


def state_size(cell: Any) -> int:
    """Return the width of the cell's first state."""
    size: int = tree.flatten(parts(cell)[-1].state_size)[0]
    return size


def first_state(cell: Any, state: Any) -> Tensor:
    """Return the cell's first state `(B, ·)`; for most cells, this is its last output."""
    return tree.flatten(state[-1] if isinstance(cell, keras.layers.StackedRNNCells) else state)[0]


def zero_state(cell: Any, batch_size: Any) -> list[Any]:
    """Return the states before the first step as a list, each `(batch_size, ·)`."""
    if not hasattr(cell, "get_initial_state"):
        sizes = cell.state_size if tree.is_nested(cell.state_size) else [cell.state_size]
        return [ops.zeros((batch_size, size), cell.compute_dtype) for size in sizes]
    state = cell.get_initial_state(batch_size=batch_size)
    return list(state) if tree.is_nested(state) else [state]


def advance(cell: Any, inputs: Tensor, state: Any, training: bool | None) -> tuple[Tensor, Any]:
    """Return the output and the next states of one step; the states are nested like `state`.

    `cell` is from `for_call`.
    """
    arguments = inspect.signature(cell.call).parameters
    options = {"training": training} if "training" in arguments else {}
    output, new = cell(inputs, state, **options)
    # A stack of one cell returns its states in another structure than it takes.
    return output, tree.pack_sequence_as(state, tree.flatten(new))


def gates(cell: Any) -> Gates | None:
    """Return the tensors of a Keras cell's step, or None for a cell that needs Keras's own loop.

    A cell needs Keras's loop if it overrides `call`, or has dropout, an activity regularizer, no
    bias, or a GRU's reset gate before the product (`reset_after=False`).
    """
    found = [(kind, base) for kind, base in _KINDS.items() if isinstance(cell, base)]
    if not found or cell.dropout or cell.recurrent_dropout:
        return None
    kind, base = found[0]
    plain = keeps(cell.call, base.call) and type(cell).__call__ is base.__call__
    plain = plain and cell.use_bias and cell.activity_regularizer is None
    if not plain or (kind == "gru" and not cell.reset_after):
        return None
    return Gates(
        kind,
        cell.kernel,
        cell.recurrent_kernel,
        cell.bias,
        cell.activation,
        getattr(cell, "recurrent_activation", cell.activation),
        backend.settings.get().products or cell.compute_dtype,
    )


def hoisted(cell: Any) -> Gates | None:
    """Return `gates(cell)` on TensorFlow or for a GPU, where `fast.loop` is faster, else None."""
    pays = backend.settings.get().fast and (backend.IS_TENSORFLOW or backend.for_gpu())
    return gates(cell) if pays else None


def view(layer: Any, **attributes: Any) -> Any:
    """Return a copy of `layer` that shares its weights and has the given attributes.

    `layer` itself must not change, because other threads may be calling it.
    """
    other = object.__new__(type(layer))
    vars(other).update(vars(layer), **attributes)
    return other


def for_call(
    cell: Any, training: bool | None, width: Any = None, rows: Any = None, dtype: str | None = None
) -> Any:
    """Return a view of the cell for the steps of one call, with the dropout masks of this call.

    In training, the masks are drawn here, before the loop and once for the whole sequence. If the
    loop drew them, the cell would keep tensors of the loop's graph. At inference, the view has
    dropout rates of 0: Keras's cells draw masks, and advance their random generators, whenever a
    rate is not 0.

    Args:
        cell: a Keras cell or a stack.
        training: whether dropout is applied.
        width: width of the cell's inputs; None if the cell shall draw its masks itself.
        rows: number of rows of the inputs.
        dtype: of the inputs.
    """
    if isinstance(cell, keras.layers.StackedRNNCells):
        cells = []
        for each in cell.cells:
            cells.append(for_call(each, training, width, rows, dtype))
            width = None if width is None else output_size(each)
        return view(cell, cells=cells)
    if not hasattr(cell, "get_dropout_mask") or not (cell.dropout or cell.recurrent_dropout):
        return cell
    masks = {"_dropout_mask": None, "_recurrent_dropout_mask": None}
    if not training:
        return view(cell, dropout=0.0, recurrent_dropout=0.0, **masks)
    drawn = view(cell, **masks)
    if width is not None:
        drawn.get_dropout_mask(ops.zeros((rows, width), dtype))
        drawn.get_recurrent_dropout_mask(ops.zeros((rows, state_size(cell)), dtype))
    return drawn
