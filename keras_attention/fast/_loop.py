"""Recurrent loops. Products that need no state are computed before the loop: see `gates`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops, tree

from keras_attention import backend
from keras_attention.fast.gates import (
    Cell,
    Gates,
    Stack,
    Trace,
    constant_product,
    deferred,
    hoisted_cell,
    outer,
)
from keras_attention.shapes import Tensor, blank_where_masked, keep_where


def run_cell(
    gates: Gates, inputs: Tensor, state: list[Tensor], mask: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Run a cell over a sequence.

    Args:
        gates: tensors and functions of the cell.
        inputs: `(T, B, dim)`.
        state: the states before the first step, each `(B, units)`.
        mask: boolean `(T, B)`, or None; False steps do not change the state.

    Returns:
        The first state after each step, `(T, B, units)`, and the list of the last states, all in
        the dtype of the products.
    """
    trace = Trace()
    cell = hoisted_cell(gates, inputs, state[0], trace)
    outputs, last = _run(cell, cell.steps, mask, state, gates.dtype)
    trace.steps = {"output": outputs}
    return outputs, last


def run_cells(
    gates: list[Gates],
    inputs: list[Tensor],
    states: list[list[Tensor]],
    masks: list[Tensor] | None = None,
) -> list[tuple[Tensor, list[Tensor]]]:
    """Run several cells of one kind and size, each over its own sequence, in one loop.

    Each step has one batched product for all cells. Arguments and results are lists, with the
    argument or result of `run_cell` for each cell.
    """
    traces = [Trace() for _ in gates]
    cells = [
        hoisted_cell(each, x, state[0], trace)
        for each, x, state, trace in zip(gates, inputs, states, traces, strict=True)
    ]
    cell = cells[0].beside(*cells[1:])
    each_step = [cell.steps for cell in cells]
    steps = tree.map_structure(lambda *xs: ops.stack(xs, 1), *each_step)  # (T, cells, B, ·)
    mask = None if masks is None else ops.stack(masks, 1)  # (T, cells, B)
    first = [ops.stack(each) for each in zip(*states, strict=True)]  # (cells, B, units) each
    outputs, last = _run(cell, steps, mask, first, gates[0].dtype)
    outputs = ops.unstack(outputs, axis=1)
    for trace, x in zip(traces, outputs, strict=True):
        trace.steps = {"output": x}
    of_cells = zip(*(ops.unstack(x) for x in last), strict=True)
    return [(x, list(state)) for x, state in zip(outputs, of_cells, strict=True)]


def _run(
    cell: Cell, steps: Any, mask: Tensor | None, state: list[Tensor], dtype: str
) -> tuple[Tensor, list[Tensor]]:
    """Run a cell on tensors `(T, B, ·)`, or stacked cells on tensors `(T, cells, B, ·)`."""
    inputs = {"cell": steps} if mask is None else {"cell": steps, "mask": mask[..., None]}

    def step(row: dict[str, Any], state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        new = cell.step(row["cell"], [], state)
        if "mask" in row:
            new = [ops.where(row["mask"], a, b) for a, b in zip(new, state, strict=True)]
        return ops.cast(new[0], dtype), new

    state = [ops.cast(x, cell.state_dtype) for x in state]
    outputs, state = backend.scan(step, state, inputs, dtype)
    return outputs, [ops.cast(x, dtype) for x in state]


class Readout(NamedTuple):
    """The readout in a loop with input feeding: `o_t = activate([c_t; s_t] kernel + added_t)`.

    Attributes:
        kernel: `(dim of c + dim of s, ·)`; without `needs_context`, `(dim of s, ·)`.
        added: `(T, B, ·)`, the term of each step.
        activate: returns the output for the sum.
        needs_context: whether the kernel has rows for the context. If not, the context was
            multiplied by them before the loop, and is added:
            `o_t = activate(s_t kernel + c_t + added_t)`.
    """

    kernel: Tensor
    added: Tensor
    activate: Callable[[Tensor], Tensor]
    needs_context: bool = True


def run_attending(
    gates: list[Gates],
    inputs: Tensor,
    mask: Tensor | None,
    state: Any,
    *,
    attend: Callable[[Tensor, Any, Any], tuple[Tensor, Any, Any]],
    query_kernel: Tensor | None,
    noise: Any,
    order: str,
    feeding: bool,
    readout: Readout | None,
) -> tuple[Tensor, Tensor, Any]:
    """Run a cell over a sequence while it attends to a memory.

    Args:
        gates: tensors and functions of the cells of a stack, bottom first, or of the single cell.
        inputs: `(T, B, dim)`, in the dtype of the products.
        mask: boolean `(T, B)` or None; False steps do not change the state, and have outputs and
            weights 0.
        state: the `State` before the first step; its cell state is a flat list.
        attend: function of a query `(B, ·)`, the attention state and the noise of the step; returns
            the context `(B, ·)`, the weights `(B, [heads,] S)` and the next attention state.
        query_kernel: kernel `(dim of s, ·)` that multiplies the queries before `attend`, or None.
        noise: structure of tensors `(T, ...)`, or None.
        order: see `AttentionCell`.
        feeding: `input_feeding` of `AttentionCell`.
        readout: the readout of the fed output; None without feeding, or if `[c_t; s_t]` is fed.

    Returns:
        The outputs with feeding, or `[c_t; s_t]` without, `(T, B, ·)`; the weights
        `(T, B, [heads,] S)`; and the last state. All are in the dtype of the products.
    """
    dtype, trace = gates[0].dtype, Trace()

    def fed() -> list[Tensor]:
        outputs = [trace.before("vector", state.output)] if feeding else []
        return [*outputs, trace["context"]] if order == "bahdanau" else outputs

    cell = Stack(gates, inputs, state.cell, trace, fed)
    steps: dict[str, Any] = {"cell": cell.steps}
    if mask is not None:
        steps["mask"] = mask
    if noise is not None:
        steps["noise"] = noise
    if query_kernel is not None:
        times_query = constant_product(query_kernel)

        def of_query(g: Tensor) -> list[Tensor]:
            before = order == "bahdanau"
            first = state.cell[cell.top]
            return [outer(trace.before("output", first) if before else trace["output"], g)]

        zeros = ops.zeros((*ops.shape(inputs)[:2], query_kernel.shape[-1]), dtype)
        steps["query"] = deferred(zeros, [query_kernel], of_query)
    needs_context = readout is None or readout.needs_context
    if readout is not None:
        times = constant_product(readout.kernel)

        def of_readout(g: Tensor) -> list[Tensor]:
            return [outer(_pairs(trace) if needs_context else trace["output"], g)]

        steps["vector"] = deferred(readout.added, [readout.kernel], of_readout)

    def read_out(context: Tensor, output: Tensor, row: dict[str, Any]) -> Tensor:
        if readout is not None and not needs_context:
            return readout.activate(times(output) + context + row["vector"])
        pair = ops.concatenate([context, output], axis=-1)  # (B, dim of c + dim of s)
        return pair if readout is None else readout.activate(times(pair) + row["vector"])

    def step(row: dict[str, Any], old: Any) -> tuple[dict[str, Any], Any]:
        parts = [old.output] if feeding else []
        if order == "bahdanau":
            query = ops.cast(old.cell[cell.top], dtype)
            if query_kernel is not None:
                query = times_query(query) + row["query"]
            context, weights, attention = attend(query, old.attention, row.get("noise"))
            parts.append(context)
        states = cell.step(row["cell"], parts, old.cell)
        output = ops.cast(states[cell.top], dtype)
        if order == "luong":
            query = output if query_kernel is None else times_query(output) + row["query"]
            context, weights, attention = attend(query, old.attention, row.get("noise"))
        new = old._replace(cell=states, attention=attention)
        if feeding:
            new = new._replace(output=read_out(context, output, row))
        if "mask" in row:
            new = keep_where(row["mask"], new, old)
        traced = [ops.cast(new.cell[start], dtype) for start in cell.starts]
        traced += [context] if needs_context else []
        traced += [new.output] if feeding else []
        return {"trace": dict(zip(names, traced, strict=True)), "weights": weights}, new

    names = [*cell.names, *(["context"] if needs_context else []), *(["vector"] if feeding else [])]
    dtypes = {"trace": dict.fromkeys(names, dtype), "weights": dtype}
    first = state._replace(cell=[ops.cast(x, cell.state_dtype) for x in state.cell])
    results, last = backend.scan(step, first, steps, dtypes)
    trace.steps = results["trace"]
    outputs, weights = trace["vector"] if feeding else _pairs(trace), results["weights"]
    if mask is not None:
        outputs = blank_where_masked(mask, outputs)
        weights = blank_where_masked(mask, weights)
    return outputs, weights, last._replace(cell=[ops.cast(x, dtype) for x in last.cell])


def _pairs(trace: Trace) -> Tensor:
    # (T, B, dim of c + dim of s)
    return ops.concatenate([trace["context"], trace["output"]], axis=-1)
