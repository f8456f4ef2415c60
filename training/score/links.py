"""Word links read from where a decoder looked, for the alignment error rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training.data.pair_files import Split
from training.data.tokenizers import word_of_piece
from training.decode.texts import forced_attention
from training.runs.run import Run
from training.score.metrics import Link
from training.score.reading import METHODS, SYMMETRIZATIONS, Reading


@dataclass(frozen=True)
class WordWeights:
    """Where the decoder looked to say a sentence, and the words of the tokens.

    Attributes:
        weights: float32 `(T + 1, S)`; the last row is that of the end token.
        source: word of each of the S source tokens, -1 for none.
        target: word of each of the T target tokens, -1 for none.
    """

    weights: np.ndarray
    source: list[int]
    target: list[int]


def attend(runs: Sequence[Run], split: Split) -> list[WordWeights]:
    """Force-decode the first references of a split with gold words."""
    targets = [references[0] for references in split.references]
    result = []
    for attended, source, target, source_words, target_words in zip(
        forced_attention(runs, split.sources, targets),
        split.sources,
        targets,
        *split.words(),
        strict=True,
    ):
        result.append(
            WordWeights(
                np.concatenate([attended.weights, attended.end_weights[None]]),
                word_of_piece(source, source_words, attended.source_tokens),
                word_of_piece(target, target_words, attended.target_tokens),
            )
        )
    return result


def read(sentences: Sequence[WordWeights], reading: Reading) -> list[set[Link]]:
    """Read the links `(source word, target word)` of each sentence.

    A step before the first or after the last is the first or the last.
    """
    result = []
    for sentence in sentences:
        steps = np.arange(len(sentence.target)) + reading.shift
        weights = sentence.weights[np.clip(steps, 0, len(sentence.target))]
        links = from_weights(
            near_the_diagonal(weights, reading.tension) if reading.tension else weights,
            sentence.source,
            sentence.target,
            method=reading.method,
            threshold=reading.threshold,
            symmetrize=reading.symmetrize,
        )
        result.append(links)
    return result


def near_the_diagonal(weights: np.ndarray, tension: float) -> np.ndarray:
    """Multiply weights by a prior that falls with the distance from the diagonal.

    Args:
        weights: `(T, S)`, of each target token.
        tension: lambda of Dyer et al. (2013), eq. 3: `exp(-lambda * |i / T - j / S|)`, where i and
            j are the middles of tokens.

    Returns:
        Weights `(T, S)`; each row has the sum 1 again.
    """
    target, source = ((np.arange(size) + 0.5) / max(size, 1) for size in weights.shape)
    result = weights * np.exp(-tension * np.abs(target[:, None] - source))
    return result / np.maximum(result.sum(axis=1, keepdims=True), 1e-9)


def from_weights(
    weights: np.ndarray,
    source_word_of_piece: Sequence[int],
    target_word_of_piece: Sequence[int],
    *,
    method: str = "argmax",
    threshold: float = 0.5,
    symmetrize: str = "none",
) -> set[Link]:
    """Word links read from the attention weights of one sentence.

    A source word has the sum of the weights of its pieces, a target word the mean over its
    pieces.

    Args:
        weights: `(T, S)`, one row for each target piece.
        source_word_of_piece: word of each source piece, -1 for none.
        target_word_of_piece: word of each target piece, -1 for none.
        method: "argmax" links each target word to the source word with the largest weight,
            "threshold" to all with at least `threshold`.
        threshold: smallest weight of a link, for "threshold".
        symmetrize: what is done with the links read the other way round, from each source word to
            target words, by the same method on the shares of the weight that each target word
            gives it: "none", their "intersection" or "union" with the others, or "grow-diag": the
            intersection, to which neighbours in the union are added whose source or target word
            has no link yet (Koehn et al. 2003).

    Returns:
        Links `(source word, target word)`.

    Raises:
        ValueError: unknown method or symmetrisation, or weights of another shape.
    """
    source = np.asarray(source_word_of_piece, int)
    target = np.asarray(target_word_of_piece, int)
    if np.shape(weights) != (target.size, source.size):
        raise ValueError(
            f"Expected weights of shape {(target.size, source.size)}, received {np.shape(weights)}"
        )
    if method not in METHODS:
        raise ValueError(f"method must be argmax or threshold; received {method!r}")
    if symmetrize not in SYMMETRIZATIONS:
        raise ValueError(
            f"symmetrize must be one of {', '.join(SYMMETRIZATIONS)}; received {symmetrize!r}"
        )
    source_words, target_words = (np.unique(words[words >= 0]) for words in (source, target))
    if not source_words.size or not target_words.size:
        return set()
    rows = np.array([np.asarray(weights)[target == word].mean(axis=0) for word in target_words])
    joined = np.stack([rows[:, source == word].sum(axis=1) for word in source_words], axis=1)
    links = _choose(joined, method, threshold)
    if symmetrize != "none":
        shares = joined.T / np.maximum(joined.T.sum(axis=1, keepdims=True), 1e-9)
        backwards = {(s, t) for t, s in _choose(shares, method, threshold)}
        links = _symmetrized(links, backwards, symmetrize)
    return {(int(source_words[s]), int(target_words[t])) for s, t in links}


def _choose(weights: np.ndarray, method: str, threshold: float) -> set[Link]:
    """Pairs `(column, row)` of the largest weight of each row, or of all that are large enough."""
    if method == "argmax":
        return {(int(column), row) for row, column in enumerate(weights.argmax(axis=1))}
    return {(int(column), int(row)) for row, column in np.argwhere(weights >= threshold)}


def _symmetrized(forwards: set[Link], backwards: set[Link], method: str) -> set[Link]:
    both, either = forwards & backwards, forwards | backwards
    if method != "grow-diag":
        return both if method == "intersection" else either
    links, grown = both, True
    while grown:
        linked = [{link[side] for link in links} for side in (0, 1)]
        near = {
            (s, t)
            for s, t in either - links
            if (s not in linked[0] or t not in linked[1])
            and any(max(abs(s - a), abs(t - b)) == 1 for a, b in links)
        }
        links, grown = links | near, bool(near)
    return links


def diagonal(split: Split) -> list[set[Link]]:
    """Link each target word to the source word at the same place, from first to last."""
    result = []
    for source, target in zip(*split.words(), strict=True):
        last = max(len(target) - 1, 1)
        links = {(round(t * (len(source) - 1) / last), t) for t in range(len(target))}
        result.append(links if source else set())
    return result


def at_most(split: Split, words: int) -> Split:
    """Pairs of which neither side has more than so many words.

    Words are those of the gold links where there are, otherwise what stands between spaces.
    """
    sources = split.source_words or [source.split() for source in split.sources]
    targets = split.target_words or [references[0].split() for references in split.references]
    return split.select(
        [
            i
            for i, pair in enumerate(zip(sources, targets, strict=True))
            if max(map(len, pair)) <= words
        ]
    )
