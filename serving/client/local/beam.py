"""The library's beam search in NumPy, over the decoder's step: for what the graph does not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from serving.client.local.model import Folder
from serving.client.local.tokenizers import END_ID, PAD_ID, START_ID

NOT_COVERED = np.float32(1e-6)  # the least that a source position counts as looked at
Parts = list[dict[str, np.ndarray]]


class Rule(Protocol):
    """Which tokens hypotheses may say."""

    def __call__(
        self, log_probs: np.ndarray, tokens: np.ndarray, carried: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return log-probabilities, -inf of what may not be said, and what is carried on.

        Args:
            log_probs: float32 `(rows, V)`, of what follows the tokens.
            tokens: int `(rows,)`, the last of each hypothesis; those of a sentence stand together.
            carried: int `(rows, 2)`, of each hypothesis before that token; 0 at first.
        """


class Hypothesis(NamedTuple):
    """A result of a search.

    Attributes:
        ids: int `(T,)`, its tokens, the end included.
        log_probs: float32 `(T,)`, of each.
        weights: float32 `(T, S)`, where the model looked.
        score: their sum over the length penalty, less what is lost for coverage; -inf if there is
            no such hypothesis.
    """

    ids: np.ndarray
    log_probs: np.ndarray
    weights: np.ndarray
    score: float


def beam_search(
    folder: Folder,
    sources: Sequence[Sequence[int]],
    limits: Sequence[int],
    *,
    width: int,
    results: int,
    penalty: float,
    coverage_penalty: float,
    rule: Rule,
) -> list[list[Hypothesis]]:
    """Find what `keras_attention.beam_search` finds with a rule.

    Args:
        folder: the export.
        sources: ids of each text, at least one.
        limits: the most tokens of each translation.
        width: hypotheses that are kept.
        results: of each text, at most `width`.
        penalty: of lengths, see `keras_attention.beam_search`.
        coverage_penalty: see there; without beams nothing is lost.
        rule: what may be said.

    Returns:
        Of each text its hypotheses, the best first.
    """
    graphs, batch, ids = folder.manifest["graphs"], len(sources), padded(sources)
    made = folder.run("encoder", {"ids": ids})
    memory = {name: made[name] for name in graphs["memory"]}
    state = {name: np.repeat(made[name], width, 0) for name in graphs["state"]}
    most, rows = np.array(limits)[:, None], np.arange(batch)[:, None]
    last = np.full((batch, width), START_ID)
    total = np.where(np.arange(width) == 0, 0, np.full((batch, width), -np.inf, "float32"))
    length, finished = np.zeros((batch, width), int), np.zeros((batch, width), bool)
    scores, settled = total, np.zeros(batch, bool)
    covered = np.repeat((ids == PAD_ID)[:, None].astype("float32"), width, 1)
    cost = coverage_penalty if width > 1 else 0.0
    carried = np.zeros((batch * width, 2), int)
    parts: Parts = []
    while not settled.all():
        taken = folder.run("step", {"tokens": last.ravel(), **memory, **state})
        log_probs, carried = rule(taken["log_probs"], last.ravel(), carried)
        gain, token = _best(log_probs.reshape(batch, width, -1), width)
        first = np.where(np.arange(gain.shape[2]) == 0, np.float32(0), np.float32(-np.inf))
        gain = np.where(finished[:, :, None], first, gain)  # one that has ended has itself
        grown = length + ~finished
        sums = total[:, :, None] + gain
        order = sums / _norm(grown, penalty)[:, :, None]
        weights = taken["weights"].reshape(batch, width, -1)
        if cost:
            covered = covered + np.where(finished[:, :, None], 0, weights)
            order = order + _lost(covered, cost)[:, :, None]
        index = np.argsort(-order.reshape(batch, -1), axis=1, kind="stable")[:, :width]
        parents = index // gain.shape[2]
        gain, token, total = (x.reshape(batch, -1)[rows, index] for x in (gain, token, sums))
        weights, covered = weights[rows, parents], covered[rows, parents]
        parts.append({"parents": parents, "ids": token, "log_probs": gain, "weights": weights})
        length = grown[rows, parents]
        finished = finished[rows, parents] | (token == END_ID) | (length >= most)
        last = np.where(finished, END_ID, token)
        places = (rows * width + parents).ravel()
        state = {name: taken[f"next_{name}"][places] for name in state}
        carried = carried[places]
        scores = total / _norm(length, penalty) + (_lost(covered, cost) if cost else 0)
        settled = _is_settled(scores, total / _norm(most, penalty), finished, results)
    return _follow(parts, np.where(scores > -np.inf, length, 0), scores, results)


def padded(ids: Sequence[Sequence[int]]) -> np.ndarray:
    """Return ids as int64 `(B, S)`, S at least 1."""
    array = np.full((len(ids), max(1, *map(len, ids), 1)), PAD_ID, "int64")
    for row, each in zip(array, ids, strict=True):
        row[: len(each)] = each
    return array


def _norm(length: np.ndarray, penalty: float) -> np.ndarray:
    norm: np.ndarray = (((5 + length) / 6) ** penalty).astype("float32")
    return norm


def _lost(covered: np.ndarray, cost: float) -> np.ndarray:
    """Return what hypotheses lose for coverage, `(B, W)`: `keras_attention.search.coverage`."""
    lost: np.ndarray = np.float32(cost) * np.log(np.clip(covered, NOT_COVERED, 1)).sum(-1)
    return lost


def _best(log_probs: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the greatest of the last axis, and where they are."""
    count = min(count, log_probs.shape[-1])
    some = np.sort(np.argpartition(-log_probs, count - 1, axis=-1)[..., :count], axis=-1)
    values = np.take_along_axis(log_probs, some, -1)
    order = np.argsort(-values, axis=-1, kind="stable")
    return np.take_along_axis(values, order, -1), np.take_along_axis(some, order, -1)


def _is_settled(
    scores: np.ndarray, reach: np.ndarray, finished: np.ndarray, results: int
) -> np.ndarray:
    """Return whether no open hypothesis of a sentence can still come among its results, `(B,)`."""
    ended = np.sort(np.where(finished, scores, -np.inf), axis=1)[:, ::-1]
    best_open = np.where(finished, -np.inf, reach).max(1)
    settled: np.ndarray = ended[:, results - 1] >= best_open
    return settled


def _follow(
    parts: Parts, lengths: np.ndarray, scores: np.ndarray, results: int
) -> list[list[Hypothesis]]:
    """Rebuild the results from their ends; `lengths` and `scores` are `(B, W)`."""
    rows = np.arange(len(scores))[:, None]
    beams = np.arange(results)[None] + 0 * rows
    said = []
    for part in reversed(parts):
        said.append([part[name][rows, beams] for name in ("ids", "log_probs", "weights")])
        beams = part["parents"][rows, beams]
    ids, log_probs, weights = (np.stack(x[::-1], 2) for x in zip(*said, strict=True))

    def hypothesis(row: int, n: int) -> Hypothesis:
        inside = (row, n, slice(lengths[row, n]))
        score = float(scores[row, n])
        return Hypothesis(ids[inside], log_probs[inside], weights[inside], score)

    return [[hypothesis(row, n) for n in range(results)] for row in range(len(scores))]
