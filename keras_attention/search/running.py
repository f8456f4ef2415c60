"""The loop of a search, and the sentences in it: those that are settled may leave the batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops, tree

from keras_attention import backend
from keras_attention.fast import switch
from keras_attention.search.tokens import Rules

Tensor = Any


class Progress(NamedTuple):
    """How far each sentence is, `(B, ...)`; with several hypotheses a sentence, `(B, n)`.

    Attributes:
        settled: boolean `(B,)`, whether nothing more can come of the sentence.
        tokens: int32 `(B,)` or `(B, n)`, the last token of each hypothesis.
        finished: boolean, whether the hypothesis has ended.
        total: float32, its sum of log-probabilities; -inf if there is no such hypothesis.
        length: int32, its number of tokens.
        rules: what the sentence is bound to.
        draws: float32 `(B, n, T)`, the uniform random numbers of each step; `()` without sampling.
        coverage: float32 `(B, n, S)`, the sum of the attention weights so far; `()` if nothing is
            lost for it.
    """

    settled: Tensor
    tokens: Tensor
    finished: Tensor
    total: Tensor
    length: Tensor
    rules: Rules
    draws: Any = ()
    coverage: Any = ()


class Running(NamedTuple):
    """What the loop of a search carries.

    Where sentences may leave the batch, all but `whole` has the rows of those that are in it.

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


def start(progress: Progress, state: Any, memory: Any) -> Running:
    """Return what is running before the first step; sentences leave where there is a memory."""
    if not switch.lets_leave(memory):
        return Running(progress, state)
    rows = ops.arange(ops.shape(progress.settled)[0], dtype="int32")
    tensors = [x for x in tree.flatten(memory) if x is not None]
    return Running(progress, state, rows, tensors, progress)


def check_state(name: str, state: Any, batch_size: Any) -> None:
    """Raise a ValueError for a state that has more rows than sentences."""
    for x in tree.flatten(state):
        rows = x.shape[0] if len(x.shape) else None
        if isinstance(batch_size, int) and rows is not None and rows != batch_size:
            raise ValueError(
                f"{name} expected a state with one row for each of batch_size={batch_size} "
                "sentences: the search repeats it for its hypotheses, and nothing is tiled. "
                f"Received: {tuple(x.shape)}"
            )


def decoder(step: Callable[..., Any], memory: Any) -> Callable[[Tensor, Running], Any]:
    """Return the step as a function of tokens and of what is running."""
    if memory is None:
        return lambda tokens, now: step(tokens, now.state)
    if not switch.lets_leave(memory):
        return lambda tokens, now: step(tokens, now.state, memory)

    def decode(tokens: Tensor, now: Running) -> Any:
        tensors = iter(now.memory)
        flat = [None if x is None else next(tensors) for x in tree.flatten(memory)]
        return step(tokens, now.state, tree.pack_sequence_as(memory, flat))

    return decode


def unfold(
    advance: Callable[[Tensor, Running], tuple[dict[str, Any], Running]],
    running: Running,
    longest: int | Tensor,
    names: list[str],
) -> tuple[dict[str, Any], Progress, Tensor]:
    """Advance until all sentences are settled, while those that are leave.

    Args:
        advance: `(step number, running) -> (outputs, running)`.
        running: before the first step.
        longest: greatest number of steps, after which all are settled.
        names: of the outputs, all int32 but `"weights"`, which are float32 tensors.

    Returns:
        The outputs `(T, B, ...)`, the progress of all sentences, and the number of steps.
    """
    leaving: dict[str, Any] = {}
    if running.whole:
        leaving = {"pause": _any_settled, "resume": _leave}
    dtypes: dict[str, Any] = dict.fromkeys(names, "int32")
    if "weights" in names:
        dtypes["weights"] = "float32"
    several: list[Any] = []  # the weights of several memories, once a step has shown them

    def guarded(time: Tensor, now: Running) -> tuple[dict[str, Any], Running]:
        outputs, now = advance(time, now)
        if tree.is_nested(outputs.get("weights")) and not tree.is_nested(dtypes["weights"]):
            several.append(outputs["weights"])
            raise TypeError("weights of several memories, where those of one were expected")
        return outputs, now

    def loop() -> tuple[dict[str, Any], Running, Tensor]:
        found: tuple[dict[str, Any], Running, Tensor] = backend.unfold(
            guarded, running, lambda now: ops.all(now.progress.settled), longest, dtypes, **leaving
        )
        return found

    try:
        outputs, running, steps = loop()
    except Exception:  # TensorFlow may raise another for it
        if not several:
            raise
        dtypes["weights"] = tree.map_structure(lambda _: "float32", several[0])
        outputs, running, steps = loop()
    return outputs, running.whole or running.progress, steps


def spread(outputs: dict[str, Any], running: Running) -> dict[str, Any]:
    """Return a step's outputs for all `B` sentences: nothing changes for those that have left."""
    if not running.whole:
        return outputs
    batch_size = ops.shape(running.whole.settled)[0]
    index = ops.expand_dims(running.rows, 1)

    def scatter(x: Tensor) -> Tensor:
        return ops.scatter(index, x, (batch_size, *ops.shape(x)[1:]))

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
    tokens = progress.tokens
    beams = tokens.shape[1] if len(tokens.shape) > 1 else 1
    places = ops.expand_dims(keep * beams, 1) + ops.arange(beams, dtype="int32")
    places = ops.reshape(places, (-1,))

    def rows_of(x: Any, index: Tensor) -> Any:
        return tree.map_structure(lambda x: backend.gather(x, index), x)

    progress, rows, memory = rows_of((progress, rows, memory), keep)
    return Running(progress, rows_of(state, places), rows, memory, whole)
