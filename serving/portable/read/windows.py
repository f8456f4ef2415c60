"""Windows of words longer than nearly all words of training: `training.decode.windows`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from serving.portable.read.model import Result
from training.data.rules import END_ID, PAD_ID


class Window(NamedTuple):
    """Consecutive letters of a word.

    Attributes:
        ids: of the letters.
        start: index of the first letter in the word.
        core: indices in the word; a phone is kept if it attends most to a letter of `core`.
        is_last: whether the word ends in this window.
    """

    ids: Sequence[int]
    start: int
    core: range
    is_last: bool = True


def cut(ids: Sequence[int], spelling: Mapping[str, Any] | None) -> list[Window]:
    """Return the windows of a word; a short word, or a text without `spelling`, is one window.

    `spelling` is the manifest's entry.
    """
    size = len(ids)
    if spelling is None or size <= spelling["whole"]:
        return [Window(ids, 0, range(size))]
    context = spelling["context"]
    core = spelling["window"] - 2 * context
    firsts = [0, *range(core + context, size - context, core)]
    ends = [*firsts[1:], size]
    return [
        Window(
            ids[max(0, first - context) : end + context],
            max(0, first - context),
            range(first, end),
            end == size,
        )
        for first, end in zip(firsts, ends, strict=True)
    ]


def join(windows: Sequence[Window], results: Sequence[Result], penalty: float) -> Result:
    """Return the result of a word, from the results of its windows, which must have weights.

    Row n joins the n-th rows of all windows.
    """
    size, rows = windows[-1].core.stop, []
    for each in zip(*(zip(*result[:4], strict=True) for result in results), strict=True):
        there = all(score > -math.inf for _, _, score, _ in each)
        parts = []
        for window, (ids, log_probs, _, weights) in zip(windows, each, strict=True):
            places = window.start + weights.argmax(axis=1)
            inside = (window.core.start <= places) & (places < window.core.stop) & (ids != PAD_ID)
            kept = np.where(ids == END_ID, window.is_last, inside) & there
            looked = np.zeros((kept.sum(), size), weights.dtype)
            end = window.start + len(window.ids)
            looked[:, window.start : end] = weights[kept, : len(window.ids)]
            parts.append((ids[kept], log_probs[kept], looked))
        ids, log_probs, looked = map(np.concatenate, zip(*parts, strict=True))
        score = log_probs.sum() / ((5 + len(ids)) / 6) ** penalty if there else -math.inf
        rows.append((ids, log_probs, np.float32(score), looked))
    longest = max(len(ids) for ids, *_ in rows)

    def stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:
        shape = [(0, 0)] * (arrays[0].ndim - 1)
        return np.stack([np.pad(x, [(0, longest - len(x)), *shape]) for x in arrays])

    ids, log_probs, scores, looked = zip(*rows, strict=True)
    return Result(stacked(ids), stacked(log_probs), np.array(scores), stacked(looked))
