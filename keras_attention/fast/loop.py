"""Recurrent loops, with the products that need no state taken out of them.

The product of a step's inputs and their kernel does not depend on the state: it is computed once
for all steps, before the loop. The gradients of kernels are one product for all steps each, after
the loop: see `deferred`. The steps of cells are in `gates`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops

from keras_attention import backend
from keras_attention.fast.deferred import Trace, deferred, fixed, outer
from keras_attention.fast.gates import Gates, hoisted_cell
from keras_attention.shapes import keep_where

Tensor = Any


def run_cell(
    gates: Gates, inputs: Tensor, state: list[Tensor], mask: Tensor | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Run a cell over a sequence.

    Args:
        gates: of the cell.
        inputs: `(T, B, dim)`.
        state: the cell's states, each `(B, units)`.
        mask: boolean `(T, B)`; where it is False the state stays.

    Returns:
        In the dtype of the products, the first state after all steps, `(T, B, units)`, and the last
        states.
    """
    trace = Trace()
    cell = hoisted_cell(gates, inputs, state[0], trace)
    steps = {"cell": cell.steps}
    if mask is not None:
        steps["mask"] = ops.expand_dims(mask, -1)

    def step(now: dict[str, Any], state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        new = cell.step(now["cell"], [], state)
        if "mask" in now:
            new = [ops.where(now["mask"], a, b) for a, b in zip(new, state, strict=True)]
        return ops.cast(new[0], gates.dtype), new

    state = [ops.cast(x, cell.state_dtype) for x in state]
    outputs, state = backend.scan(step, state, steps, gates.dtype)
    trace.fill({"output": outputs})
    return outputs, [ops.cast(x, gates.dtype) for x in state]


class Readout(NamedTuple):
    """How a fed output is made in the loop.

    Attributes:
        kernel: `(dim of c + dim of s, ·)`, what `[c_t; s_t]` is multiplied with.
        added: `(T, B, ·)`, what is added to that product at each step.
        activate: from the sum to the output.
    """

    kernel: Tensor
    added: Tensor
    activate: Callable[[Tensor], Tensor]


def run_attending(
    gates: Gates,
    inputs: Tensor,
    mask: Tensor | None,
    state: Any,
    *,
    attend: Callable[[Tensor, Any, Any], tuple[Tensor, Any, Any]],
    noise: Any,
    order: str,
    feeding: bool,
    readout: Readout | None,
) -> tuple[Tensor, Tensor, Any]:
    """Run a cell that attends over a sequence.

    Args:
        gates: of the cell.
        inputs: `(T, B, dim)`, in the dtype of the products.
        mask: boolean `(T, B)` or None; where it is False the state stays and the outputs are 0.
        state: the `State` before the first step; its cell state is a list.
        attend: `(query, attention state, noise of the step)` to the context `(B, ·)`, the weights
            `(B, [heads,] S)` and the next attention state.
        noise: structure of tensors `(T, ...)`, or None.
        order: `"bahdanau"` or `"luong"`, see `AttentionCell`.
        feeding: whether the last output is fed to the cell.
        readout: of the fed output; None if it is `[c_t; s_t]`, and without feeding.

    Returns:
        In the dtype of the products, the outputs with feeding and `[c_t; s_t]` without,
        `(T, B, ·)`; the weights `(T, B, [heads,] S)`; and the last state.
    """
    dtype, trace = gates.dtype, Trace()

    def fed() -> list[Tensor]:
        outputs = [trace.before("vector", state.output)] if feeding else []
        return [*outputs, trace["context"]] if order == "bahdanau" else outputs

    cell = hoisted_cell(gates, inputs, state.cell[0], trace, fed)
    steps = {"cell": cell.steps}
    if mask is not None:
        steps["mask"] = mask
    if noise is not None:
        steps["noise"] = noise
    times = None
    if readout is not None:
        times = fixed(readout.kernel)
        steps["vector"] = deferred(
            readout.added, [readout.kernel], lambda g: [outer(_pairs(trace), g)]
        )

    def step(now: dict[str, Any], old: Any) -> tuple[dict[str, Any], Any]:
        parts = [old.output] if feeding else []
        if order == "bahdanau":
            query = ops.cast(old.cell[0], dtype)
            context, weights, attention = attend(query, old.attention, now.get("noise"))
            parts.append(context)
        states = cell.step(now["cell"], parts, old.cell)
        output = ops.cast(states[0], dtype)
        if order == "luong":
            context, weights, attention = attend(output, old.attention, now.get("noise"))
        new = old._replace(cell=states, attention=attention)
        if feeding:
            fed_back = ops.concatenate([context, output], axis=-1)
            if times is not None and readout is not None:
                fed_back = readout.activate(times(fed_back) + now["vector"])
            new = new._replace(output=fed_back)
        if "mask" in now:
            new = keep_where(now["mask"], new, old)
        traced = {"output": ops.cast(new.cell[0], dtype), "context": context}
        if feeding:
            traced["vector"] = new.output
        return {"cell": traced, "weights": weights}, new

    names = ["output", "context", *(["vector"] if feeding else [])]
    dtypes = {"cell": dict.fromkeys(names, dtype), "weights": dtype}
    first = state._replace(cell=[ops.cast(x, cell.state_dtype) for x in state.cell])
    results, last = backend.scan(step, first, steps, dtypes)
    trace.fill(results["cell"])
    outputs, weights = trace["vector"] if feeding else _pairs(trace), results["weights"]
    if mask is not None:
        outputs, weights = (_where(mask, x, ops.zeros_like(x)) for x in (outputs, weights))
    return outputs, weights, last._replace(cell=[ops.cast(x, dtype) for x in last.cell])


def _pairs(trace: Trace) -> Tensor:
    return ops.concatenate([trace["context"], trace["output"]], axis=-1)


def _where(mask: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return ops.where(ops.reshape(mask, (*ops.shape(mask), *[1] * (len(a.shape) - 2))), a, b)
