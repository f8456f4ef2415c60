"""The loop of a search: its state, the decoder's step, and how sentences leave it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops, tree

from keras_attention import backend, switch
from keras_attention.search.arguments import Search, Shortlist, has_rows, shape_of
from keras_attention.shapes import fits

Tensor = Any


class Progress(NamedTuple):
    """How far each sentence is; `n` is the number of its hypotheses.

    Attributes:
        finished: boolean `(B,)`, whether no better hypothesis of the sentence can come.
        tokens: int32 `(B, n)`, the last token of each hypothesis.
        ended: boolean `(B, n)`, whether the hypothesis has ended.
        total: float32 `(B, n)`, its sum of log-probabilities; -inf if there is no such hypothesis.
        length: int32 `(B, n)`, its number of tokens.
        limits: int32 `(B,)`, the greatest number of tokens of the sentence.
        coverage: float32 `(B, n, S)`, the sum of the attention weights so far; `()` if nothing is
            lost for it.
    """

    finished: Tensor
    tokens: Tensor
    ended: Tensor
    total: Tensor
    length: Tensor
    limits: Tensor
    coverage: Any = ()


class Running(NamedTuple):
    """The state of the loop.

    All but `everything` has the rows of the sentences that are still in the batch.

    Attributes:
        progress: how far the sentences are.
        state: of the step function, `(B·n, ...)`.
        rows: int32, which sentences these are; `()` where none leaves, as the rest.
        memory: for the step function, as a list of its tensors.
        everything: the progress of all sentences, as it was when they left.
    """

    progress: Progress
    state: Any
    rows: Any = ()
    memory: Any = ()
    everything: Any = ()


def run(
    search: Search,
    advance: Callable[[Tensor, Running], tuple[dict[str, Any], Running]],
    progress: Progress,
) -> tuple[dict[str, Any], Progress, Tensor]:
    """Advance until all sentences are finished; where there is a memory, finished ones leave.

    Returns the outputs `(T, B, ...)`, the progress of all sentences, and the number of steps.
    """
    count = progress.tokens.shape[1]
    state = search.state
    if count > 1:
        places = ops.arange(ops.shape(progress.finished)[0] * count, dtype="int32") // count
        state = tree.map_structure(lambda x: backend.gather(x, places), state)
    running, leaving = Running(progress, state), {}
    if switch.current.get().fast and search.memory is not None and not backend.under_xla():
        rows = ops.arange(ops.shape(progress.finished)[0], dtype="int32")
        tensors = [x for x in tree.flatten(search.memory) if x is not None]
        running = Running(progress, state, rows, tensors, progress)
        leaving = {"pause": _any_finished, "resume": _drop_finished}

    def finished(running: Running) -> Tensor:
        return ops.all(running.progress.finished)

    outputs, running, steps = backend.unfold(advance, running, finished, search.longest, **leaving)
    return outputs, running.everything or running.progress, steps


def decode(search: Search, running: Running) -> tuple[Any, Any, Any]:
    """Take the decoder's step: log-probabilities, weights, next state."""
    last, memory = ops.reshape(running.progress.tokens, (-1,)), search.memory
    if running.everything:  # some sentences have left
        tensors = iter(running.memory)
        flat = [None if x is None else next(tensors) for x in tree.flatten(memory)]
        memory = tree.pack_sequence_as(memory, flat)
    memories = [] if memory is None else [memory]
    returned = search.step(last, running.state, *memories)
    several = isinstance(returned, tuple | list)
    if not several or len(returned) != 3:
        expected = "step to return log-probabilities, attention weights or None, and the next state"
        search.refuse(expected, f"{len(returned)} values" if several else type(returned).__name__)
    _check_returned(search, running, *returned)
    return returned


def _check_returned(
    search: Search, running: Running, log_probs: Any, weights: Any, state: Any
) -> None:
    """Raise a ValueError for what a step returned in another shape."""
    sizes = running.progress.tokens.shape
    rows = None if None in sizes else sizes[0] * sizes[1]
    listed = isinstance(log_probs, Shortlist)
    scores = log_probs.log_probs if listed else log_probs
    if not fits(getattr(scores, "shape", ()), (rows, None)):
        expected = f"log-probabilities (rows, vocabulary) from step, for {rows or 'all'} rows"
        search.refuse(expected, shape_of(scores))
    count = scores.shape[1]
    few = listed and count is not None and count < sizes[1]
    if few or (listed and not fits(log_probs.ids.shape, scores.shape)):
        expected = f"a Shortlist of ids (rows, K) for as many log-probabilities, K >= {sizes[1]}"
        received = f"ids {shape_of(log_probs.ids)}, log_probs {shape_of(scores)}"
        search.refuse(expected, received)
    if not listed and count is not None and not all(0 <= end < count for end in search.ends):
        expected = f"end_id among the {count} tokens of step's log-probabilities"
        search.refuse(expected, f"end_id={search.ends}")
    for x in [] if weights is None else tree.flatten(weights):
        if not has_rows(x, rows) or len(x.shape) < 2:
            search.refuse(f"attention weights ({rows or 'rows'}, S) from step", shape_of(x))
    before, after = tree.flatten(running.state), tree.flatten(state)
    if len(before) != len(after) or not all(has_rows(x, rows) for x in after):
        form = f"{len(before)} tensors of {rows or 'all'} rows"
        expected = f"step to return the next state in the form of the last, {form}"
        search.refuse(expected, ", ".join(str(shape_of(x)) for x in after) or "no tensors")


def scatter(outputs: dict[str, Any], running: Running) -> dict[str, Any]:
    """Return a step's outputs for all `B` sentences: nothing changes for those that have left."""
    if not running.everything:
        return outputs
    batch_size = ops.shape(running.everything.finished)[0]
    index = ops.expand_dims(running.rows, 1)

    def among_all(x: Tensor) -> Tensor:
        # `ops.scatter` goes from row to row on PyTorch, and waits for a GPU at each.
        zeros = ops.zeros((batch_size, *ops.shape(x)[1:]), x.dtype)
        return ops.scatter_update(zeros, index, x)

    result = {name: tree.map_structure(among_all, x) for name, x in outputs.items()}
    if "parents" in outputs:  # those that have left are their own
        x = outputs["parents"]
        shape = (batch_size, *ops.shape(x)[1:])
        own = ops.broadcast_to(ops.arange(x.shape[1], dtype=x.dtype), shape)
        result["parents"] = ops.scatter_update(own, index, x)
    return result


def _any_finished(running: Running) -> Tensor:
    finished = running.progress.finished
    return ops.logical_or(ops.any(finished), ops.all(finished))  # all of none, too


def _drop_finished(running: Running) -> Running:
    """Drop the finished sentences, once their progress is put back among all."""
    progress, state, rows, memory, everything = running
    index = ops.expand_dims(rows, 1)
    everything = tree.map_structure(
        lambda x, new: ops.scatter_update(x, index, new), everything, progress
    )
    keep = ops.cast(ops.nonzero(ops.logical_not(progress.finished))[0], "int32")
    beams = progress.tokens.shape[1]
    places = ops.expand_dims(keep * beams, 1) + ops.arange(beams, dtype="int32")
    places = ops.reshape(places, (-1,))

    def rows_of(x: Any, index: Tensor) -> Any:
        return tree.map_structure(lambda x: backend.gather(x, index), x)

    progress, rows, memory = rows_of((progress, rows, memory), keep)
    return Running(progress, rows_of(state, places), rows, memory, everything)
