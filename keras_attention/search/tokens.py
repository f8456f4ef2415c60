"""The tokens a search may choose from: log-probabilities, forced and forbidden tokens."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_attention import backend
from keras_attention.fast.top_k import top_k

Tensor = Any
Step = Callable[..., tuple[Tensor, Any, Any]]

NEVER = -np.inf
FREE = -1  # in a prefix: any token; among forbidden ones: none


class Shortlist(NamedTuple):
    """The most probable tokens alone, which a step may return as `log_probs`.

    Attributes:
        log_probs: `(rows, K)`, in any order; K is at least the number of hypotheses of a sentence.
        ids: integers `(rows, K)`, the tokens.
    """

    log_probs: Tensor
    ids: Tensor


class SentenceRules(NamedTuple):
    """The rules of each sentence.

    Attributes:
        limits: int32 `(B,)`, its greatest number of tokens.
        prefix: int32 `(B, P + 1)`, the token of each step, `FREE` where any may stand, which is
            last; `()` for none.
        forbidden: int32 `(B, F)`, tokens that it never has, `FREE` for none; `()` for none at all.
    """

    limits: Tensor
    prefix: Any = ()
    forbidden: Any = ()


class Rules(NamedTuple):
    """The rules of all sentences.

    Attributes:
        start: int32 `(B, 1)`, the token that is read first.
        ends: the tokens that end a sentence.
        longest: the greatest number of steps.
        sentences: the rules of each.
    """

    start: Tensor
    ends: Sequence[int]
    longest: int | Tensor
    sentences: SentenceRules


def rules(
    name: str,
    batch_size: int | Tensor,
    start_id: int | Tensor,
    end_id: int | Sequence[int],
    max_length: int | Tensor,
    prefix: Any,
    forbidden: Any,
) -> Rules:
    """Return the rules of the search `name`, see `beam_search`.

    Raises:
        ValueError: `max_length` below 1, or another argument of a wrong shape.
    """
    if isinstance(max_length, numbers.Integral) and max_length < 1:
        raise ValueError(f"{name} expected max_length >= 1. Received: max_length={max_length}")
    limits, longest = ops.convert_to_tensor(max_length, "int32"), max_length
    if len(limits.shape):
        longest = backend.greatest(limits, 1)
    limits = ops.zeros((batch_size,), "int32") + limits
    start = ops.reshape(ops.convert_to_tensor(start_id, "int32"), (-1, 1))
    start = ops.zeros((batch_size, 1), "int32") + start
    tables = {"prefix": prefix, "forbidden": forbidden}
    for which, given in tables.items():
        if given is None:
            tables[which] = ()
            continue
        table = ops.convert_to_tensor(given, "int32")
        if len(table.shape) not in (1, 2):
            raise ValueError(
                f"{name} expected {which} (n,) for all sentences or (B, n). "
                f"Received: {which} {tuple(table.shape)}"
            )
        tables[which] = ops.zeros((batch_size, 1), "int32") + table
    if _given(tables["prefix"]):  # steps past it are free
        tables["prefix"] = ops.pad(tables["prefix"], [[0, 0], [0, 1]], constant_values=FREE)
    return Rules(start, _ends(name, end_id), longest, SentenceRules(limits, **tables))


def _ends(name: str, end_id: int | Sequence[int]) -> list[int]:
    """Return the tokens that end a sentence."""
    found = [int(x) for x in np.ravel(end_id)]
    if np.ndim(end_id) > 1 or not found or not np.issubdtype(np.asarray(end_id).dtype, np.integer):
        raise ValueError(
            f"{name} expected end_id to be a token or several, for all sentences. "
            f"Received: end_id={end_id!r}"
        )
    return found


def are_last(tokens: Tensor, length: Tensor, ends: Sequence[int], rules: SentenceRules) -> Tensor:
    """Return whether tokens `(B, n)` end their hypotheses, whose length is `(B, n)` with them."""
    found = length >= ops.expand_dims(rules.limits, 1)
    for end in ends:
        found = ops.logical_or(found, ops.equal(tokens, end))
    return found


def allowed(log_probs: Tensor | Shortlist, time: Tensor, rules: SentenceRules, rows: int) -> Any:
    """Return the log-probabilities, -inf where the rules of a sentence say so.

    Args:
        log_probs: `(B·rows, V)`, or a shortlist of them.
        time: number of the step.
        rules: of the `B` sentences.
        rows: number of rows of a sentence.
    """
    listed = isinstance(log_probs, Shortlist)
    if _given(rules.prefix) and listed:
        raise ValueError(
            "A search with a prefix expected log_probs of the whole vocabulary, which the forced "
            "token is in. Received: a Shortlist"
        )
    if not (_given(rules.prefix) or _given(rules.forbidden)):
        return log_probs
    values = ops.cast(log_probs.log_probs if listed else log_probs, "float32")
    ids = ops.cast(log_probs.ids, "int32") if listed else _vocabulary(values)
    if _given(rules.forbidden):
        banned = _for_rows(rules.forbidden, rows)  # (B·rows | 1, F)
        hit = ops.equal(ops.expand_dims(ids, -1), ops.expand_dims(banned, 1))
        values = ops.where(ops.any(hit, axis=-1), NEVER, values)
    if _given(rules.prefix):
        at = ops.minimum(ops.cast(time, "int32"), ops.shape(rules.prefix)[1] - 1)
        forced = _for_rows(ops.take(rules.prefix, at, axis=1)[:, None], rows)
        other = ops.logical_and(forced != FREE, ids != forced)
        values = ops.where(other, NEVER, values)
    return Shortlist(values, log_probs.ids) if listed else values


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


def _given(table: Any) -> bool:
    return not isinstance(table, tuple)


def _vocabulary(values: Tensor) -> Tensor:
    return ops.expand_dims(ops.arange(ops.shape(values)[-1], dtype="int32"), 0)


def _for_rows(table: Tensor, rows: int) -> Tensor:
    return table if rows == 1 else ops.repeat(table, rows, axis=0)
