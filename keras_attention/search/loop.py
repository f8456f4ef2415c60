"""The loop of a search: its decoder, its state, and how sentences leave it."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops, tree

from keras_attention import backend
from keras_attention.fast import switch
from keras_attention.search import tokens
from keras_attention.search.results import Form
from keras_attention.search.tokens import Rules, SentenceRules, Step

Tensor = Any


class Decoder(NamedTuple):
    """The decoder of a search, see `keras_attention.search`."""

    step: Step
    state: Any
    memory: Any


class Search(NamedTuple):
    """The checked arguments that all searches share, see `beam_search`."""

    decoder: Decoder
    rules: Rules
    form: Form


def decoder(name: str, step: Step, state: Any, memory: Any, batch_size: int | Tensor) -> Decoder:
    """Return the decoder of the search `name`.

    Raises:
        ValueError: a state with other than `batch_size` rows.
    """
    for x in tree.flatten(state):
        rows = x.shape[0] if len(x.shape) else None
        if isinstance(batch_size, numbers.Integral) and rows is not None and rows != batch_size:
            raise ValueError(
                f"{name} expected a state with one row for each of batch_size={batch_size} "
                "sentences: the search repeats it for its hypotheses, and nothing is tiled. "
                f"Received: {tuple(x.shape)}"
            )
    return Decoder(step, state, memory)


class Progress(NamedTuple):
    """How far each sentence is; `n` is the number of its hypotheses.

    Attributes:
        settled: boolean `(B,)`, whether nothing more can come of the sentence.
        tokens: int32 `(B, n)`, the last token of each hypothesis.
        finished: boolean `(B, n)`, whether the hypothesis has ended.
        total: float32 `(B, n)`, its sum of log-probabilities; -inf if there is no such hypothesis.
        length: int32 `(B, n)`, its number of tokens.
        rules: of the sentence.
        draws: float32 `(B, n, T)`, the uniform random numbers of each step; `()` without sampling.
        coverage: float32 `(B, n, S)`, the sum of the attention weights so far; `()` if nothing is
            lost for it.
    """

    settled: Tensor
    tokens: Tensor
    finished: Tensor
    total: Tensor
    length: Tensor
    rules: SentenceRules
    draws: Any = ()
    coverage: Any = ()


class Running(NamedTuple):
    """The state of the loop.

    All but `whole` has the rows of the sentences that are still in the batch.

    Attributes:
        progress: how far the sentences are.
        state: of the step function, `(B·n, ...)`.
        rows: int32, which sentences these are; `()` where none leaves, as the rest.
        memory: for the step function, as a list of its tensors.
        whole: the progress of all sentences, as it was when they left.
    """

    progress: Progress
    state: Any
    rows: Any = ()
    memory: Any = ()
    whole: Any = ()


def run(
    search: Search,
    advance: Callable[[Tensor, Running], tuple[dict[str, Any], Running]],
    progress: Progress,
) -> tuple[dict[str, Any], Progress, Tensor]:
    """Advance until all sentences are settled; where there is a memory, the settled ones leave.

    Args:
        search: its arguments.
        advance: `(step number, running) -> (outputs, running)`.
        progress: before the first step.

    Returns:
        The outputs `(T, B, ...)`, the progress of all sentences, and the number of steps.
    """
    count = progress.tokens.shape[1]
    state, memory = search.decoder.state, search.decoder.memory
    if count > 1:
        places = ops.arange(ops.shape(progress.settled)[0] * count, dtype="int32") // count
        state = tree.map_structure(lambda x: backend.gather(x, places), state)
    running, leaving = Running(progress, state), {}
    if switch.lets_leave(memory):
        rows = ops.arange(ops.shape(progress.settled)[0], dtype="int32")
        tensors = [x for x in tree.flatten(memory) if x is not None]
        running = Running(progress, state, rows, tensors, progress)
        leaving = {"pause": _any_settled, "resume": _leave}
    outputs, running, steps = backend.unfold(
        advance, running, lambda now: ops.all(now.progress.settled), search.rules.longest, **leaving
    )
    return outputs, running.whole or running.progress, steps


def decode(search: Search, time: Tensor, now: Running) -> tuple[Any, Any, Any]:
    """Take the decoder's step: log-probabilities that the rules allow, weights, next state."""
    step, _, memory = search.decoder
    last = ops.reshape(now.progress.tokens, (-1,))
    if memory is None:
        log_probs, weights, state = step(last, now.state)
    else:
        if now.whole:  # some sentences have left
            tensors = iter(now.memory)
            flat = [None if x is None else next(tensors) for x in tree.flatten(memory)]
            memory = tree.pack_sequence_as(memory, flat)
        log_probs, weights, state = step(last, now.state, memory)
    count = now.progress.tokens.shape[1]
    return tokens.allowed(log_probs, time, now.progress.rules, count), weights, state


def spread(outputs: dict[str, Any], running: Running) -> dict[str, Any]:
    """Return a step's outputs for all `B` sentences: nothing changes for those that have left."""
    if not running.whole:
        return outputs
    batch_size = ops.shape(running.whole.settled)[0]
    index = ops.expand_dims(running.rows, 1)

    def scatter(x: Tensor) -> Tensor:
        # `ops.scatter` goes from row to row on PyTorch, and waits for a GPU at each.
        zeros = ops.zeros((batch_size, *ops.shape(x)[1:]), x.dtype)
        return ops.scatter_update(zeros, index, x)

    whole = {name: tree.map_structure(scatter, x) for name, x in outputs.items()}
    if "parents" in outputs:  # those that have left are their own
        x = outputs["parents"]
        shape = (batch_size, *ops.shape(x)[1:])
        own = ops.broadcast_to(ops.arange(x.shape[1], dtype=x.dtype), shape)
        whole["parents"] = ops.scatter_update(own, index, x)
    return whole


def _any_settled(running: Running) -> Tensor:
    settled = running.progress.settled
    return ops.logical_or(ops.any(settled), ops.all(settled))  # all of none, too


def _leave(running: Running) -> Running:
    """Let the settled sentences leave, once their progress is put back among all."""
    progress, state, rows, memory, whole = running
    index = ops.expand_dims(rows, 1)
    whole = tree.map_structure(lambda x, new: ops.scatter_update(x, index, new), whole, progress)
    keep = ops.cast(ops.nonzero(ops.logical_not(progress.settled))[0], "int32")
    beams = progress.tokens.shape[1]
    places = ops.expand_dims(keep * beams, 1) + ops.arange(beams, dtype="int32")
    places = ops.reshape(places, (-1,))

    def rows_of(x: Any, index: Tensor) -> Any:
        return tree.map_structure(lambda x: backend.gather(x, index), x)

    progress, rows, memory = rows_of((progress, rows, memory), keep)
    return Running(progress, rows_of(state, places), rows, memory, whole)
