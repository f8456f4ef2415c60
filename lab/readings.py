"""Ways to read word links from attention weights, which the study of alignment tries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from training.data.read._sentences import Split
from training.score._links import Link, WordWeights, of_words

SYMMETRIZATIONS = ("none", "intersection", "union", "grow-diag")


@dataclass(frozen=True)
class Reading:
    """How links are read from weights."""

    # "argmax" links each target word to the source word with the largest weight, "threshold" to all
    # with at least `threshold`
    method: str = "threshold"
    threshold: float = 0.45  # smallest weight of a link, for "threshold"
    # the weights of step `i + shift` belong to the target token that step `i` writes. In Bahdanau's
    # order, a step attends before it reads the last token. A trained model may attend to the source
    # of a token one step before it writes the token (-1), or one step after (1)
    shift: int = 0
    # how they are joined with the links read the other way round, from each source word to target
    # words, by the shares of its weight that target words give it: "none", their "intersection" or
    # "union", or "grow-diag": the intersection, to which neighbours in the union are added whose
    # source or target word has no link yet (Koehn et al. 2003)
    symmetrize: str = "none"
    # lambda of a prior `exp(-lambda * |i / T - j / S|)` that the weights are multiplied by, the
    # diagonal tension of Dyer et al. (2013), eq. 3; 0 for none. In long sentences weights stray to
    # the same word elsewhere
    tension: float = 0.0

    def describe(self) -> str:
        """Return the reading in words, which are printed next to every AER."""
        whom = "the source word of largest weight"
        if self.method == "threshold":
            whom = f"the source words of weight >= {self.threshold}"
        step = f"the weights of step i{self.shift:+d} for token i; " if self.shift else ""
        prior = f"times exp(-{self.tension:g} |i/T - j/S|); " if self.tension else ""
        both = "not symmetrised"
        if self.symmetrize != "none":
            both = f"{self.symmetrize} with the links read from source to target words"
        return (
            f"force-decoded; {step}{prior}subwords joined to words; each target word is linked to "
            f"{whom}; {both}"
        )


def read(sentence: WordWeights, reading: Reading) -> set[Link]:
    """Read the links `(source word, target word)` of a sentence.

    A source word has the sum of the weights of its pieces, a target word the mean over its
    pieces. A step before the first or after the last is the first or the last.
    """
    tokens = len(sentence.target)
    steps = np.clip(np.arange(tokens) + reading.shift, 0, tokens)
    weights = sentence.weights[steps]
    if reading.tension:
        weights = near_the_diagonal(weights, reading.tension)
    joined, source_words, target_words = of_words(sentence, weights)
    if not joined.size:
        return set()
    links = _choose(joined, reading)
    if reading.symmetrize != "none":
        backwards = {(s, t) for t, s in _choose(_shares(joined.T), reading)}
        links = _symmetrized(links, backwards, reading.symmetrize)
    return {(int(source_words[s]), int(target_words[t])) for s, t in links}


def near_the_diagonal(weights: np.ndarray, tension: float) -> np.ndarray:
    """Multiply weights `(T, S)` by a prior, see `Reading`; i and j are the middles of tokens."""
    target, source = ((np.arange(size) + 0.5) / max(size, 1) for size in weights.shape)
    return _shares(weights * np.exp(-tension * np.abs(target[:, None] - source)))


def _shares(weights: np.ndarray) -> np.ndarray:
    """Return weights whose rows have the sum 1."""
    return weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)


def _choose(weights: np.ndarray, reading: Reading) -> set[Link]:
    """Pairs `(column, row)` of the largest weight of each row, or of all that are large enough."""
    if reading.method == "argmax":
        return {(int(column), row) for row, column in enumerate(weights.argmax(axis=1))}
    return {(int(column), int(row)) for row, column in np.argwhere(weights >= reading.threshold)}


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


def at_most(split: Split, words: int) -> Split:
    """Return the pairs with at most so many gold words on each side."""
    pairs = enumerate(zip(split.source_words, split.target_words, strict=True))
    return split.select([i for i, pair in pairs if max(map(len, pair)) <= words])
