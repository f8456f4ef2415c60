"""Windows of words longer than nearly all words of training: `training.decode.windows`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from serving.portable.read._model import Result
from training.data.rules import END_ID, PAD_ID, tag_length


class Window(NamedTuple):
    """Consecutive letters of a word, after the word's tag.

    Letters are counted from the first one after the tag.

    Attributes:
        ids: of the tag and the letters.
        start: index of the first letter in the word.
        core: indices in the word; a phone is kept if it attends most to a letter of `core`. If it
            attends most to the tag, it counts for the first letter of the window.
        size: letters of the word.
        tag: letters of the tag; 0 if the word has one window.
    """

    ids: Sequence[int]
    start: int
    core: range
    size: int
    tag: int = 0

    @property
    def is_last(self) -> bool:
        """Whether the word ends in this window."""
        return self.core.stop == self.size


def cut(ids: Sequence[int], spelling: Mapping[str, Any] | None) -> list[Window]:
    """Return the windows of a word; a short word, or a text without `spelling`, is one window.

    `spelling` is the manifest's entry.
    """
    tag = tag_length(ids, spelling.get("tag")) if spelling else 0
    size = len(ids) - tag
    if spelling is None or size <= spelling["whole"]:
        return [Window(ids, 0, range(len(ids)), len(ids))]
    context = spelling["context"]
    core = spelling["window"] - 2 * context
    firsts = [0, *range(core + context, size - context, core)]
    ends = [*firsts[1:], size]
    starts = [max(0, first - context) for first in firsts]
    return [
        Window(
            [*ids[:tag], *ids[tag + start : tag + end + context]],
            start,
            range(first, end),
            size,
            tag,
        )
        for start, first, end in zip(starts, firsts, ends, strict=True)
    ]


def join(windows: Sequence[Window], results: Sequence[Result]) -> Result:
    """Return the result of a word, from the results of its windows, which must have weights.

    A result of the word joins one result of each window, and its score is the mean of their scores.
    The best results come first, and no two have the same ids; rows without a result have the score
    -inf.
    """
    each = [_kept(window, result) for window, result in zip(windows, results, strict=True)]
    count = len(results[0].scores)
    best: list[tuple[np.float32, list[_Row]]] = [(np.float32(0), [])]
    for rows in each:
        sums = [(total + row.score, [*path, row]) for total, path in best for row in rows]
        best = sorted(sums, key=lambda pair: -pair[0])[:count]
    size = windows[0].tag + windows[0].size
    joined: dict[tuple[int, ...], _Row] = {}
    for total, path in best:
        ids, log_probs, weights = (
            np.concatenate([getattr(row, name) for row in path]) for name in _Row._fields[:3]
        )
        joined.setdefault(tuple(ids), _Row(ids, log_probs, weights, total / len(windows)))
    none = _Row(
        np.zeros(0, "int64"), np.zeros(0, "float32"), np.zeros((0, size), "float32"), -np.inf
    )
    rows = [*joined.values(), *[none] * (count - len(joined))]
    longest = max(len(row.ids) for row in rows)

    def stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:
        shape = [(0, 0)] * (arrays[0].ndim - 1)
        return np.stack([np.pad(x, [(0, longest - len(x)), *shape]) for x in arrays])

    ids, log_probs, weights, scores = zip(*rows, strict=True)
    return Result(stacked(ids), stacked(log_probs), np.array(scores, "float32"), stacked(weights))


class _Row(NamedTuple):
    """The kept tokens of a result: ids and log-probabilities `(T,)`, weights `(T, S)`."""

    ids: np.ndarray
    log_probs: np.ndarray
    weights: np.ndarray
    score: np.float32 | float


def _kept(window: Window, result: Result) -> list[_Row]:
    """Return the results of a window, of those with the same kept tokens the first."""
    rows: dict[tuple[int, ...], _Row] = {}
    for ids, log_probs, score, weights in zip(*result[:4], strict=True):
        tag, start = window.tag, window.start
        places = start + np.maximum(weights.argmax(axis=1) - tag, 0)
        inside = (window.core.start <= places) & (places < window.core.stop) & (ids != PAD_ID)
        kept = np.where(ids == END_ID, window.is_last, inside)
        looked = np.zeros((kept.sum(), tag + window.size), weights.dtype)
        looked[:, :tag] = weights[kept, :tag]
        looked[:, tag + start : start + len(window.ids)] = weights[kept, tag : len(window.ids)]
        if score > -np.inf:
            rows.setdefault(tuple(ids[kept]), _Row(ids[kept], log_probs[kept], looked, score))
    return [*rows.values()]
