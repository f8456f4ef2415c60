"""Checks of a search's arguments, and the choice of the most probable tokens of a step."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from keras import ops, tree

from keras_attention import backend
from keras_attention.shapes import Tensor, fits

Step = Callable[..., tuple[Tensor, Any, Any]]

NEVER = -np.inf
# From this row length on, `top_k` compares parts of rows: faster, 3.5 times as fast at 8,000.
_LARGE = 2000


class Shortlist(NamedTuple):
    """Log-probabilities of the most probable tokens only; a step may return them as `log_probs`.

    Attributes:
        log_probs: `(rows, K)`, in any order; K is at least the number of hypotheses of a sentence.
        ids: integers `(rows, K)`, the ids of these tokens.
    """

    log_probs: Tensor
    ids: Tensor


class Search(NamedTuple):
    """The checked arguments of a search. Attributes that are not listed: see `beam_search`.

    Attributes:
        name: name of the function, for error messages.
        start: int32 `(B, 1)`, the token that the decoder reads first.
        ends: the tokens that end a sentence.
        longest: the greatest number of steps.
        limits: int32 `(B,)`, the greatest number of tokens of each sentence.
        width: `beam_width`.
        keeps_weights: `return_attention_weights`.
    """

    name: str
    step: Step
    state: Any
    memory: Any
    start: Tensor
    ends: list[int]
    longest: int | Tensor
    limits: Tensor
    width: int
    num_results: int
    length_penalty: float | Tensor
    coverage_penalty: float
    memory_mask: Tensor | None
    pad_id: int
    keeps_weights: bool

    def refuse(self, expected: str, received: Any) -> None:
        """Raise a ValueError about the results of a step."""
        expect(self.name, False, expected, received)


def expect(name: str, holds: Any, expected: str, received: Any) -> None:
    """Raise a ValueError, with the name of the search, unless `holds`."""
    if not holds:
        raise ValueError(f"{name} expected {expected}. Received: {received}")


def checked(
    name: str,
    batch_size: Any,
    start_id: Any,
    end_id: Any,
    max_length: Any,
    max_steps: Any,
    **others: Any,
) -> Search:
    """Return the checked arguments of the search `name`, or raise a ValueError.

    The arguments are those of `beam_search`.
    """
    number, least, bounded = (isinstance(x, Integral) for x in (batch_size, max_length, max_steps))
    size = int(batch_size) if number else None
    rows = [(), (1,), (size,)]
    mask, coverage = others["memory_mask"], others["coverage_penalty"]
    shape: Any = () if mask is None else tuple(np.shape(mask))
    width, count, penalty = (others[x] for x in ("width", "num_results", "length_penalty"))
    integers = isinstance(count, Integral) and isinstance(width, Integral)
    scalar = number or getattr(batch_size, "shape", None) == ()
    lengths = _are_integers(max_length, rows) and not (least and max_length < 1)
    ends = np.size(end_id) and _are_integers(end_id, [(), (None,)])
    penalized = penalty >= 0 if isinstance(penalty, (int, float)) else hasattr(penalty, "dtype")
    covers = isinstance(coverage, (int, float)) and coverage >= 0
    covers = covers and (coverage == 0 or fits(shape, (size, None)))
    mask = f"coverage_penalty={coverage}, memory_mask {shape or None}"
    widths = f"num_results={count}, beam_width={width}"
    for holds, expected, received in (
        (callable(others["step"]), "a function step(tokens, state)", others["step"]),
        (scalar and not (number and batch_size < 0), "batch_size >= 0, an integer", batch_size),
        (lengths, "max_length >= 1, an integer or one for each sentence", max_length),
        (not bounded or max_steps >= 1, "max_steps >= 1, or None", max_steps),
        (_are_integers(start_id, rows), "start_id to be a token, or one for each", start_id),
        (ends, "end_id to be a token or several, for all sentences", end_id),
        (penalized, "length_penalty >= 0", penalty),
        (covers, "coverage_penalty >= 0, and a memory_mask with it, (B, S)", mask),
        (integers and 1 <= count <= width, "1 <= num_results <= beam_width, integers", widths),
    ):
        expect(name, holds, expected, received)
    memory = [x for x in tree.flatten(others["memory"]) if x is not None]  # a mask may be None
    for part, tensors in (("state", tree.flatten(others["state"])), ("memory", memory)):
        expected = f"a {part} with one row for each of batch_size={batch_size} sentences: the "
        expected += "search repeats it for its hypotheses, and nothing is tiled"
        for x in tensors:
            expect(name, has_rows(x, size), expected, shape_of(x))
    limits, longest = ops.convert_to_tensor(max_length, "int32"), max_length
    if len(limits.shape) and max_steps is None:
        longest = ops.max(ops.pad(limits, [[0, 1]], constant_values=1))  # a batch may be empty
    elif len(limits.shape):
        longest, limits = max_steps, ops.minimum(limits, max_steps)
    # () or (B,) to (1, 1) or (B, 1)
    start = ops.reshape(ops.convert_to_tensor(start_id, "int32"), (-1, 1))
    return Search(
        name,
        start=ops.zeros((batch_size, 1), "int32") + start,
        ends=[int(x) for x in np.ravel(end_id)],
        longest=longest,
        limits=ops.zeros((batch_size,), "int32") + limits,
        **others,
    )


def has_rows(x: Any, rows: int | None) -> bool:
    """Return whether `x` is a tensor `(rows, ...)`; with None, any number of rows fits."""
    return fits(getattr(x, "shape", ())[:1], (rows,))


def shape_of(x: Any) -> Any:
    """Return the shape of a tensor, or the `repr` of another value, for an error message."""
    return tuple(x.shape) if hasattr(x, "shape") else repr(x)


def _are_integers(x: Any, shapes: list[tuple[Any, ...]]) -> bool:
    """Return whether `x`, a tensor, array, list or number, has integers and one of the shapes."""
    x = x if hasattr(x, "dtype") else np.asarray(x)
    return any(fits(x.shape, each) for each in shapes) and "int" in str(x.dtype)


def most_probable(log_probs: Tensor | Shortlist, k: int) -> tuple[Tensor, Tensor]:
    """Return log-probabilities and ids of the `k` most probable tokens of each row, `(rows, k)`.

    If the vocabulary has fewer than `k` tokens, return all of them.
    """
    listed = isinstance(log_probs, Shortlist)
    values = ops.cast(log_probs.log_probs if listed else log_probs, "float32")
    size = values.shape[-1]
    if size is None:  # the vocabulary may have fewer than k tokens
        count = ops.cast(ops.shape(values)[-1], "int32")
        values = ops.pad(values, [[0, 0], [0, k]], constant_values=NEVER)
    values, index = top_k(values, k if size is None else min(k, size))
    if size is None:
        index = ops.minimum(index, count - 1)
    if listed:
        index = ops.cast(backend.gather_in_rows(log_probs.ids, index), "int32")
    return values, index


def top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the `k` largest elements of each row of `x` `(rows, V)`, in order, and their places.

    Both results are `(rows, k)`, the places int32. For long rows, each row is divided into parts.
    The `k` largest elements are in the `k` parts with the largest maxima. So only the maxima and
    the elements of these parts are sorted.
    """
    size = x.shape[1]
    pays = backend.settings.get().fast and size is not None and size >= _LARGE
    if not pays or -(-size // _part_length(size)) < k:
        values, index = ops.top_k(x, k)
        return values, ops.cast(index, "int32")
    length = _part_length(size)
    parts = -(-size // length)
    if parts * length > size:
        x = ops.pad(x, [[0, 0], [0, parts * length - size]], constant_values=-np.inf)
    x = ops.reshape(x, (-1, parts, length))
    _, chosen = ops.top_k(ops.max(x, axis=-1), k)  # (rows, k)
    chosen = ops.cast(chosen, "int32")
    # The chosen parts, (rows, k, length), as one row of candidates.
    candidates = ops.reshape(backend.gather_in_rows(x, chosen), (-1, k * length))
    values, index = ops.top_k(candidates, k)
    index = ops.cast(index, "int32")
    index = backend.gather_in_rows(chosen, index // length) * length + index % length
    return values, ops.minimum(index, size - 1)  # padding is chosen only if all the rest is -inf


def _part_length(size: int) -> int:
    """Return a part length near the square root of `size`, if possible a divisor of `size`.

    With a divisor, no padding is needed.
    """
    root = int(size**0.5)
    near = range(root, max(1, root // 2), -1)
    return next((length for length in near if size % length == 0), root)
