"""The sentences of a search that are still running, where the others leave the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops, tree

from keras_attention import backend

Tensor = Any


class Running(NamedTuple):
    """What the loop of a search carries.

    Where sentences may leave the batch, all but `whole` has the rows of those that are in it.

    Attributes:
        carry: tuple of tensors `(B, ...)` that the search knows of each sentence. The first is
            boolean, whether it is settled, the second the last tokens `(B,)` or `(B, n)`.
        state: of the step function, `(B·n, ...)`.
        rows: int32, which sentences these are; `()` where none leaves, as the rest.
        memory: for the step function.
        whole: the carry of all sentences, as it was when they left.
    """

    carry: tuple[Tensor, ...]
    state: Any
    rows: Any = ()
    memory: Any = ()
    whole: tuple[Tensor, ...] = ()


def start(carry: tuple[Tensor, ...], state: Any, memory: Any) -> Running:
    """Return what is running before the first step; sentences leave where there is a memory."""
    if memory is None or not backend.shapes_may_change():
        return Running(carry, state)
    rows = ops.arange(ops.shape(carry[0])[0], dtype="int32")
    return Running(carry, state, rows, memory, carry)


def decoder(step: Callable, memory: Any) -> Callable[[Tensor, Running], tuple]:
    """Return the step as a function of tokens and of what is running."""
    if memory is None:
        return lambda tokens, now: step(tokens, now.state)
    if not backend.shapes_may_change():
        return lambda tokens, now: step(tokens, now.state, memory)
    return lambda tokens, now: step(tokens, now.state, now.memory)


def unfold(
    advance: Callable, running: Running, longest: int | Tensor, output_dtypes: dict[str, str]
) -> tuple[dict[str, Tensor], tuple[Tensor, ...], Tensor]:
    """Advance until all sentences are settled, while those that are leave.

    Args:
        advance: `(step number, running) -> (outputs, running)`.
        running: before the first step.
        longest: greatest number of steps, after which all are settled.
        output_dtypes: of the outputs, by name.

    Returns:
        The outputs `(T, B, ...)`, the carry of all sentences, and the number of steps.
    """
    leaving = {"pause": _any_settled, "resume": _leave} if running.whole else {}
    outputs, running, steps = backend.unfold(
        advance, running, lambda now: ops.all(now.carry[0]), longest, output_dtypes, **leaving
    )
    return outputs, running.whole or running.carry, steps


def spread(outputs: dict[str, Tensor], running: Running) -> dict:
    """Return a step's outputs for all `B` sentences: nothing changes for those that have left."""
    if not running.whole:
        return outputs
    batch_size = ops.shape(running.whole[0])[0]
    index, whole = ops.expand_dims(running.rows, 1), {}
    for name, x in outputs.items():
        shape = (batch_size, *ops.shape(x)[1:])
        if name == "parents":  # those that have left are their own
            rest = ops.broadcast_to(ops.arange(x.shape[1], dtype=x.dtype), shape)
            whole[name] = ops.scatter_update(rest, index, x)
        else:
            whole[name] = ops.scatter(index, x, shape)
    return whole


def _any_settled(running: Running) -> Tensor:
    settled = running.carry[0]
    return ops.logical_or(ops.any(settled), ops.all(settled))  # all of none, too


def _leave(running: Running) -> Running:
    """Let the settled sentences leave, once their carry is put back among all."""
    carry, state, rows, memory, whole = running
    index = ops.expand_dims(rows, 1)
    whole = tuple(ops.scatter_update(x, index, new) for x, new in zip(whole, carry, strict=True))
    keep = ops.cast(ops.nonzero(ops.logical_not(carry[0]))[0], "int32")
    beams = carry[1].shape[1] if len(carry[1].shape) > 1 else 1
    places = ops.expand_dims(keep * beams, 1) + ops.arange(beams, dtype="int32")
    places = ops.reshape(places, (-1,))

    def rows_of(x, index):
        return tree.map_structure(lambda x: backend.gather(x, index), x)

    carry, rows, memory = rows_of((carry, rows, memory), keep)
    return Running(carry, rows_of(state, places), rows, memory, whole)
