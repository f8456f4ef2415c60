"""One step of a cell that attends: the order of its parts, written once.

The plain step, the hoisted loop and the export's step with constant weights hand their own parts to
`take_step`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Tensor = Any


class State(NamedTuple):
    """The state of an `AttentionCell` between two steps.

    Attributes:
        cell: list of the cell's states, each `(B, ·)`.
        attention: tuple of the attention layers' states, `()` for most, one for each memory.
        output: the last output `(B, output_size)` with input feeding, otherwise `()`.
    """

    cell: Any
    attention: Any
    output: Any


class Taken(NamedTuple):
    """The results of a step.

    Attributes:
        output: from `read_out`.
        weights: from `attend`.
        state: the next state.
        context: from `attend`.
        cell_output: the output of the cell.
    """

    output: Tensor
    weights: Any
    state: State
    context: Any
    cell_output: Tensor


def take_step(
    order: str,
    feeding: bool,
    state: State,
    *,
    query: Callable[[Any], Tensor],
    attend: Callable[[Tensor, Any], tuple[Any, Any, Any]],
    advance: Callable[[list[Tensor], Any, Any], tuple[Tensor, Any]],
    read_out: Callable[[Any, Tensor], Tensor],
) -> Taken:
    """Take one step: see `AttentionCell` for the orders.

    Args:
        order: `"bahdanau"` or `"luong"`.
        feeding: whether the last output is fed to the cell.
        state: before the step.
        query: cell state to the query in Bahdanau's order.
        attend: `(query, attention state)` to context, weights and the next attention state.
        advance: `(list of the fed output, context or None, cell state)` to the cell's output and
            its next state.
        read_out: `(context, cell output)` to the output.
    """
    fed = [state.output] if feeding else []
    if order == "bahdanau":
        context, weights, attention = attend(query(state.cell), state.attention)
        cell_output, cell = advance(fed, context, state.cell)
    else:
        cell_output, cell = advance(fed, None, state.cell)
        context, weights, attention = attend(cell_output, state.attention)
    output = read_out(context, cell_output)
    new = State(cell, attention, output if feeding else ())
    return Taken(output, weights, new, context, cell_output)
