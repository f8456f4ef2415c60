"""The tokens of a search: where sentences start and end, and the most probable ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_attention import backend
from keras_attention.fast.top_k import top_k
from keras_attention.shapes import fits

Tensor = Any
Step = Callable[..., tuple[Tensor, Any, Any]]

NEVER = -np.inf


def expect(name: str, holds: Any, expected: str, received: Any) -> None:
    """Raise a ValueError of the search `name` unless something holds."""
    if not holds:
        raise ValueError(f"{name} expected {expected}. Received: {received}")


class Shortlist(NamedTuple):
    """The most probable tokens alone, which a step may return as `log_probs`.

    Attributes:
        log_probs: `(rows, K)`, in any order; K is at least the number of hypotheses of a sentence.
        ids: integers `(rows, K)`, the tokens.
    """

    log_probs: Tensor
    ids: Tensor


class Rules(NamedTuple):
    """Where sentences start and end.

    Attributes:
        start: int32 `(B, 1)`, the token that is read first.
        ends: the tokens that end a sentence.
        longest: the greatest number of steps.
        limits: int32 `(B,)`, the greatest number of tokens of each sentence.
    """

    start: Tensor
    ends: Sequence[int]
    longest: int | Tensor
    limits: Tensor

    def end(self, tokens: Tensor, length: Tensor, limits: Tensor) -> Tensor:
        """Return whether tokens `(B, n)` end hypotheses, whose length is `(B, n)` with them."""
        last = length >= ops.expand_dims(limits, 1)
        for end in self.ends:
            last = ops.logical_or(last, ops.equal(tokens, end))
        return last


def rules(
    name: str,
    batch_size: int | Tensor,
    start_id: int | Tensor,
    end_id: int | Sequence[int],
    max_length: int | Tensor,
    max_steps: int | Tensor | None = None,
) -> Rules:
    """Return the rules of the search `name`, see `beam_search`.

    Raises:
        ValueError: for a batch size or length below what there is, and tokens that are no integers
            or of another shape.
    """
    number, least = isinstance(batch_size, Integral), isinstance(max_length, Integral)
    scalar = number or getattr(batch_size, "shape", None) == ()
    expect(
        name,
        scalar and not (number and batch_size < 0),
        "batch_size >= 0, an integer",
        f"batch_size={batch_size!r}",
    )
    rows = [(), (1,), (batch_size if number else None,)]
    expect(
        name,
        _are_integers(max_length, rows) and not (least and max_length < 1),
        "max_length >= 1, an integer or one for each sentence",
        f"max_length={max_length!r}",
    )
    expect(
        name,
        _are_integers(start_id, rows),
        "start_id to be a token, or one for each sentence",
        f"start_id={start_id!r}",
    )
    expect(
        name,
        np.size(end_id) and _are_integers(end_id, [(), (None,)]),
        "end_id to be a token or several, for all sentences",
        f"end_id={end_id!r}",
    )
    limits, longest = ops.convert_to_tensor(max_length, "int32"), max_length
    if len(limits.shape):
        longest = backend.greatest(limits, 1) if max_steps is None else max_steps
    limits = ops.zeros((batch_size,), "int32") + limits
    start = ops.reshape(ops.convert_to_tensor(start_id, "int32"), (-1, 1))
    start = ops.zeros((batch_size, 1), "int32") + start
    return Rules(start, [int(x) for x in np.ravel(end_id)], longest, limits)


def _are_integers(x: Any, shapes: list[tuple[Any, ...]]) -> bool:
    """Return whether a tensor, an array, a list or a number has integers and one of the shapes."""
    x = x if hasattr(x, "dtype") else np.asarray(x)
    return any(fits(x.shape, each) for each in shapes) and "int" in str(x.dtype)


def most_probable(log_probs: Tensor | Shortlist, k: int) -> tuple[Tensor, Tensor]:
    """Return the best `k` tokens of each row, or all, `(rows, k)`: log-probabilities and ids."""
    listed = isinstance(log_probs, Shortlist)
    values = ops.cast(log_probs.log_probs if listed else log_probs, "float32")
    size = values.shape[-1]
    if size is None:  # there may be fewer than k
        values = ops.pad(values, [[0, 0], [0, k]], constant_values=NEVER)
    values, index = top_k(values, k if size is None else min(k, size))
    if size is None:
        source = log_probs.ids if listed else log_probs
        index = ops.minimum(index, ops.cast(ops.shape(source)[-1], "int32") - 1)
    if listed:
        index = ops.cast(backend.gather_in_rows(log_probs.ids, index), "int32")
    return values, index
