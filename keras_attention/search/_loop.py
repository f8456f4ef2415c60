"""The loop of a search: its state, the decoder's step, removal of sentences, and the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops, tree

from keras_attention import backend
from keras_attention.search.arguments import NEVER, Search, Shortlist, has_rows, shape_of
from keras_attention.shapes import Tensor, blank_where_masked, fits


class Progress(NamedTuple):
    """The progress of each sentence; `n` is the number of hypotheses of a sentence.

    Attributes:
        finished: boolean `(B,)`, whether the results of the sentence cannot improve any more.
        tokens: int32 `(B, n)`, the last token of each hypothesis.
        ended: boolean `(B, n)`, whether the hypothesis has ended.
        total: float32 `(B, n)`, the sum of the hypothesis's log-probabilities; -inf for a place
            without a hypothesis.
        length: int32 `(B, n)`, the number of the hypothesis's tokens.
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

    All fields except `everything` have rows only for the sentences that are still in the batch.
    If sentences are never removed, `rows`, `memory` and `everything` are `()`.

    Attributes:
        progress: the progress of the sentences.
        state: the state of the step function, `(B·n, ...)`.
        rows: int32 `(B,)`, the place of each sentence among all sentences.
        memory: the list of the tensors of the step function's memory, each `(B, ...)`.
        everything: the progress of all sentences, recorded when sentences are removed.
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
    """Call `advance` until all sentences are finished.

    With a memory, finished sentences are removed from the batch. Returns the outputs
    `(T, B, ...)`, the progress of all sentences, and the number of steps.
    """
    count = progress.tokens.shape[1]
    state = search.state
    if count > 1:
        # Repeat each row of the state for the hypotheses of its sentence: 0, 0, …, 1, 1, …
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
    """Call the decoder's step; return log-probabilities, attention weights and the next state."""
    last, memory = ops.reshape(running.progress.tokens, (-1,)), search.memory  # (B·W,)
    if running.everything:  # sentences may have been removed: use the memory of the rest
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
    """Raise a ValueError if the results of a step have a wrong form or shape."""
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
    if valid and not backend.is_concrete(scores):  # a traced loop cannot change widths and dtypes
        pairs = list(zip(before, after, strict=True))
        valid = all(x.dtype == y.dtype and fits(x.shape[1:], y.shape[1:]) for x, y in pairs)
    if not valid:
        forms = [[f"{shape_of(x)} {getattr(x, 'dtype', '')}" for x in y] for y in (before, after)]
        expected = f"step to return the next state in the form of the last, {', '.join(forms[0])}"
        search.refuse(expected, ", ".join(forms[1]) or "no tensors")


def scatter(outputs: dict[str, Any], running: Running) -> dict[str, Any]:
    """Return a step's outputs for all sentences; removed sentences get neutral values.

    A removed sentence gets scores -inf, its own places as parents (`codes`), and otherwise 0.
    """
    if not running.everything:
        return outputs
    batch_size = ops.shape(running.everything.finished)[0]
    index = ops.expand_dims(running.rows, 1)

    def among_all(x: Tensor, name: str = "") -> Tensor:
        # On PyTorch, `ops.scatter` loops over the rows, and waits for the GPU at each row.
        shape = (batch_size, *ops.shape(x)[1:])
        if name == "codes":  # the parent of place i is place i
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
    return ops.logical_or(ops.any(finished), ops.all(finished))  # True for an empty batch


def _drop_finished(running: Running) -> Running:
    """Record the progress of all sentences in `everything`, and remove finished sentences."""
    progress, state, rows, memory, everything = running
    index = ops.expand_dims(rows, 1)
    everything = tree.map_structure(
        lambda x, new: ops.scatter_update(x, index, new), everything, progress
    )
    keep = ops.cast(ops.nonzero(ops.logical_not(progress.finished))[0], "int32")
    beams = progress.tokens.shape[1]
    places = ops.expand_dims(keep * beams, 1) + ops.arange(beams, dtype="int32")
    places = ops.reshape(places, (-1,))  # (kept · W,), the rows of their hypotheses

    def rows_of(x: Any, index: Tensor) -> Any:
        return tree.map_structure(lambda x: backend.gather(x, index), x)

    progress, rows, memory = rows_of((progress, rows, memory), keep)
    return Running(progress, rows_of(state, places), rows, memory, everything)


class SearchResult(NamedTuple):
    """The results of a search. Results of a greedy search have no axis N.

    If a sentence has fewer than N hypotheses, the missing results have length 0 and score -inf.

    Attributes:
        ids: int32 `(B, N, T)`, with the end token, then padded with `pad_id`.
        lengths: int32 `(B, N)`, the number of tokens of each result, with the end token.
        scores: float32 `(B, N)`, best first: the sum of the log-probabilities divided by
            `((5 + length) / 6) ** length_penalty`, plus the coverage penalty, which is at most 0.
        attention_weights: `(B, N, T, S)`, with several heads `(B, N, T, heads, S)`, zeros
            after the end; None if not requested, or if the decoder does not attend.
        log_probs: float32 `(B, N, T)`, the log-probability of each token, zeros after the end.
    """

    ids: Tensor
    lengths: Tensor
    scores: Tensor
    attention_weights: Any
    log_probs: Tensor


def finish(parts: dict[str, Any], length: Tensor, scores: Tensor, pad_id: int) -> SearchResult:
    """Return the search's results, padded after their ends.

    Args:
        parts: `tokens` and `log_probs` `(B, N, T)`, and optionally `weights` `(B, N, T, ..., S)`.
        length: int32 `(B, N)`.
        scores: `(B, N)`; -inf for a missing hypothesis.
        pad_id: fills `ids` after the end.
    """
    length = ops.where(scores > -float("inf"), length, 0)
    ids, weights = parts["tokens"], parts.get("weights")
    inside = ops.arange(ops.shape(ids)[-1], dtype="int32") < ops.expand_dims(length, -1)
    if all(x.shape[-1] == 0 for x in tree.flatten(weights) if x is not None):
        weights = None  # the decoder does not attend
    if weights is not None:
        weights = tree.map_structure(lambda x: blank_where_masked(inside, x), weights)
    ids = ops.where(inside, ids, ops.full_like(ids, pad_id))
    log_probs = blank_where_masked(inside, parts["log_probs"])
    return SearchResult(ids, length, scores, weights, log_probs)


def by_hypothesis(weights: Any, batch_size: Any, rows: int) -> Any:
    """Return a step's weights `(B·rows, ..., S)` as `(B, rows, ..., S)`; for None, with S = 0."""
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
        scores: `(T, B, W)`, the scores of hypotheses that ended at each step, otherwise -inf.
        steps: the number of steps taken. T may be greater: see `backend.unfold`.
        empty: `(B, W)`, the scores of empty hypotheses, which ended before the first step,
            otherwise -inf.
        count: N.
    """
    width = empty.shape[1]
    is_real_step = ops.arange(ops.shape(scores)[0], dtype="int32") < steps
    scores = ops.where(ops.reshape(is_real_step, (-1, 1, 1)), scores, NEVER)
    scores = ops.moveaxis(ops.concatenate([empty[None], scores], axis=0), 0, 1)  # (B, 1 + T, W)
    # (B, (1 + T) · W): the index divided by W is the length, the rest is the place.
    flat = ops.reshape(scores, (ops.shape(scores)[0], ops.shape(scores)[1] * width))
    best, index = ops.top_k(flat, count)
    index = ops.cast(index, "int32")
    return ops.floor_divide(index, width), best, index % width


def follow_parents(outputs: dict[str, Any], lengths: Tensor, places: Tensor) -> dict[str, Any]:
    """Return the results `(B, N, T, ...)`, by following the parents back from their ends.

    Args:
        outputs: the outputs of all steps, each `(T, B, W, ...)`.
        lengths: int32 `(B, N)`, the number of steps after which each result ended.
        places: int32 `(B, N)`, the place in the beam where each result ended.
    """
    width, time = outputs["codes"].shape[2], ops.shape(outputs["codes"])[0]
    backwards = tree.map_structure(lambda x: ops.flip(x, axis=0), outputs)
    backwards["t"] = ops.flip(ops.arange(time, dtype="int32"))

    def back(row: dict[str, Any], beams: Tensor) -> tuple[dict[str, Any], Tensor]:
        code = backend.gather_in_rows(row["codes"], beams)
        parents = ops.where(row["t"] < lengths, code % width, beams)
        rows = {"tokens": ops.floor_divide(code, width)}
        rows["log_probs"] = backend.gather_in_rows(row["log_probs"], beams)
        if "weights" in row:  # computed before the choice of beams, so at the parents' places
            rows["weights"] = tree.map_structure(
                lambda x: backend.gather_in_rows(x, parents), row["weights"]
            )
        return rows, parents

    dtypes = {"tokens": "int32", "log_probs": "float32"}
    if "weights" in outputs:
        dtypes["weights"] = tree.map_structure(lambda _: "float32", outputs["weights"])
    rows, _ = backend.scan(back, places, backwards, dtypes)
    result: dict[str, Any] = tree.map_structure(
        # (T, B, N, …), the last step first, to (B, N, T, …)
        lambda x: ops.moveaxis(ops.flip(x, axis=0), 0, 2),
        rows,
    )
    return result
