"""The loop of a search: its state, the decoder's step, how sentences leave it, its results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops, tree

from keras_attention import backend
from keras_attention.search.arguments import NEVER, Search, Shortlist, has_rows, shape_of
from keras_attention.shapes import Tensor, blank_where_masked, fits


class Progress(NamedTuple):
    """How far each sentence is; `n` is the number of its hypotheses.

    Attributes:
        finished: boolean `(B,)`, whether no better hypothesis of the sentence can come.
        tokens: int32 `(B, n)`, the last token of each hypothesis.
        ended: boolean `(B, n)`, whether the hypothesis has ended.
        total: float32 `(B, n)`, its sum of log-probabilities; -inf if there is no such hypothesis.
        length: int32 `(B, n)`, its number of tokens.
        limits: int32 `(B,)`, the greatest number of tokens of the sentence.
        coverage: float32 `(B, n, S)`, the sum of the attention weights so far; `()` without a
            coverage penalty.
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

    All fields but `everything` have the rows of the sentences that are still in the batch.

    Attributes:
        progress: how far the sentences are.
        state: of the step function, `(B·n, ...)`.
        rows: int32 `(B,)`, the sentences' places among all; `()`, as what follows, if none leaves.
        memory: the list of the tensors of the step function's memory.
        everything: the progress of all sentences, as of the moment in which they left.
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
    """Advance until all sentences are finished; with a memory, finished ones leave.

    Returns the outputs `(T, B, ...)`, the progress of all sentences, and the number of steps.
    """
    count = progress.tokens.shape[1]
    state = search.state
    if count > 1:
        places = ops.arange(ops.shape(progress.finished)[0] * count, dtype="int32") // count
        state = tree.map_structure(lambda x: backend.gather(x, places), state)
    running, leaving = Running(progress, state), {}
    if backend.settings.get().fast and search.memory is not None and not backend.under_xla():
        rows = ops.arange(ops.shape(progress.finished)[0], dtype="int32")
        tensors = [x for x in tree.flatten(search.memory) if x is not None]
        running = Running(progress, state, rows, tensors, progress)
        leaving = {"pause": _any_finished, "resume": _drop_finished}

    def finished(running: Running) -> Tensor:
        return ops.all(running.progress.finished)

    outputs, running, steps = backend.unfold(advance, running, finished, search.longest, **leaving)
    return outputs, running.everything or running.progress, steps


def decode(search: Search, running: Running) -> tuple[Any, Any, Any]:
    """Take the decoder's step: return log-probabilities, weights and the next state."""
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
    log_probs, weights, state = returned
    return log_probs, weights, tree.pack_sequence_as(running.state, tree.flatten(state))


def _check_returned(
    search: Search, running: Running, log_probs: Any, weights: Any, state: Any
) -> None:
    """Raise a ValueError if the results of a step have another form or shape."""
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
    valid = len(before) == len(after) and all(has_rows(x, rows) for x in after)
    if valid and not backend.is_concrete(scores):  # a traced loop keeps widths and dtypes
        pairs = list(zip(before, after, strict=True))
        valid = all(x.dtype == y.dtype and fits(x.shape[1:], y.shape[1:]) for x, y in pairs)
    if not valid:
        forms = [[f"{shape_of(x)} {getattr(x, 'dtype', '')}" for x in y] for y in (before, after)]
        expected = f"step to return the next state in the form of the last, {', '.join(forms[0])}"
        search.refuse(expected, ", ".join(forms[1]) or "no tensors")


def scatter(outputs: dict[str, Any], running: Running) -> dict[str, Any]:
    """Return a step's outputs for all `B` sentences, with empty ones for those that have left."""
    if not running.everything:
        return outputs
    batch_size = ops.shape(running.everything.finished)[0]
    index = ops.expand_dims(running.rows, 1)

    def among_all(x: Tensor, name: str = "") -> Tensor:
        # `ops.scatter` goes from row to row on PyTorch, and waits for a GPU at each.
        shape = (batch_size, *ops.shape(x)[1:])
        if name == "codes":  # those that have left are their own parents
            others = ops.broadcast_to(ops.arange(x.shape[1], dtype=x.dtype), shape)
        else:
            others = ops.full(shape, NEVER if name == "scores" else 0, x.dtype)
        return ops.scatter_update(others, index, x)

    return {
        name: tree.map_structure(lambda x, name=name: among_all(x, name), x)
        for name, x in outputs.items()
    }


def _any_finished(running: Running) -> Tensor:
    finished = running.progress.finished
    return ops.logical_or(ops.any(finished), ops.all(finished))  # all of none, too


def _drop_finished(running: Running) -> Running:
    """Note the progress of all sentences in `everything`, and drop the finished ones."""
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


class SearchResult(NamedTuple):
    """The results of a search. Those of greedy search have no axis N.

    If a sentence has fewer than N hypotheses, the other results have length 0 and score -inf.

    Attributes:
        ids: int32 `(B, N, T)`, the end token included, padded with `pad_id` after it.
        lengths: int32 `(B, N)`, tokens in each result, the end token included.
        scores: float32 `(B, N)`, of a beam search best first: the sum of the log-probabilities
            divided by `((5 + length) / 6) ** length_penalty`, plus the coverage
            penalty, at most 0.
        attention_weights: `(B, N, T, S)`, with several heads `(B, N, T, heads, S)`, zeros
            after the end; None if not requested.
        log_probs: float32 `(B, N, T)`, the log-probability of each token, zeros after the end.
    """

    ids: Tensor
    lengths: Tensor
    scores: Tensor
    attention_weights: Any
    log_probs: Tensor


def finish(parts: dict[str, Any], length: Tensor, scores: Tensor, pad_id: int) -> SearchResult:
    """Return the results made of `tokens`, `log_probs` `(B, N, T)`, `weights` `(B, N, T, ..., S)`.

    Lengths and scores are `(B, N)`; the score of a missing hypothesis is -inf.
    """
    length = ops.where(scores > -float("inf"), length, 0)
    ids, weights = parts["tokens"], parts.get("weights")
    inside = ops.arange(ops.shape(ids)[-1], dtype="int32") < ops.expand_dims(length, -1)
    if all(x.shape[-1] == 0 for x in tree.flatten(weights) if x is not None):
        weights = None  # the decoder does not attend
    weights = None if weights is None else blank_where_masked(inside, weights)
    ids = ops.where(inside, ids, ops.full_like(ids, pad_id))
    log_probs = blank_where_masked(inside, parts["log_probs"])
    return SearchResult(ids, length, scores, weights, log_probs)


def by_hypothesis(weights: Any, batch_size: Any, rows: int) -> Any:
    """Return a step's weights as `(B, rows, S)`, of S = 0 for a decoder that does not attend."""
    if weights is None:
        return ops.zeros((batch_size, rows, 0), "float32")
    return tree.map_structure(
        lambda x: ops.reshape(ops.cast(x, "float32"), (batch_size, rows, *ops.shape(x)[1:])),
        weights,
    )


def best_ended(
    scores: Tensor, steps: Tensor, empty: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return lengths, scores and places in the beam of the best hypotheses that ended, `(B, N)`.

    Args:
        scores: `(T, B, W)`, of the hypotheses that ended at each step, -inf for the others.
        steps: the number of steps taken; a backend may pad them, see `backend.unfold`.
        empty: `(B, W)`, the scores of empty hypotheses, ended before the first step; else -inf.
        count: N.
    """
    width = empty.shape[1]
    taken = ops.arange(ops.shape(scores)[0], dtype="int32") < steps
    scores = ops.where(ops.reshape(taken, (-1, 1, 1)), scores, NEVER)
    scores = ops.moveaxis(ops.concatenate([empty[None], scores], axis=0), 0, 1)  # (B, 1 + T, W)
    flat = ops.reshape(scores, (ops.shape(scores)[0], ops.shape(scores)[1] * width))
    best, index = ops.top_k(flat, count)
    index = ops.cast(index, "int32")
    return ops.floor_divide(index, width), best, index % width


def follow_parents(outputs: dict[str, Any], lengths: Tensor, places: Tensor) -> dict[str, Any]:
    """Rebuild the results `(B, N, T, ...)` from the outputs of all steps, `(T, B, W, ...)`.

    `lengths` and `places`, int32 `(B, N)`, say when and where in the beam each result ended.
    """
    width, time = outputs["codes"].shape[2], ops.shape(outputs["codes"])[0]
    backwards = tree.map_structure(lambda x: ops.flip(x, axis=0), outputs)
    backwards["t"] = ops.flip(ops.arange(time, dtype="int32"))

    def back(row: dict[str, Any], beams: Tensor) -> tuple[dict[str, Any], Tensor]:
        code = backend.gather_in_rows(row["codes"], beams)
        parents = ops.where(row["t"] < lengths, code % width, beams)
        rows = {"tokens": ops.floor_divide(code, width)}
        rows["log_probs"] = backend.gather_in_rows(row["log_probs"], beams)
        if "weights" in row:  # of the beams before the choice, the parents
            rows["weights"] = tree.map_structure(
                lambda x: backend.gather_in_rows(x, parents), row["weights"]
            )
        return rows, parents

    dtypes = {"tokens": "int32", "log_probs": "float32"}
    if "weights" in outputs:
        dtypes["weights"] = tree.map_structure(lambda _: "float32", outputs["weights"])
    rows, _ = backend.scan(back, places, backwards, dtypes)
    result: dict[str, Any] = tree.map_structure(
        lambda x: ops.moveaxis(ops.flip(x, axis=0), 0, 2), rows
    )
    return result
