"""Word links read from attention weights, for the alignment error rate."""

from __future__ import annotations

import difflib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from training.data.pair_files import Split
from training.data.tokenizers import UNK_TOKEN, split_words
from training.decode.texts import Attended
from training.metrics import check_lengths
from training.score.intervals import ratio

Link = tuple[int, int]

SYMMETRIZATIONS = ("none", "intersection", "union", "grow-diag")


@dataclass(frozen=True)
class Reading:
    """How links are read from weights.

    Attributes:
        method: "argmax" links each target word to the source word with the largest weight,
            "threshold" to all with at least `threshold`.
        threshold: smallest weight of a link, for "threshold".
        shift: the weights of step `i + shift` belong to the target token that step `i` says. In
            Bahdanau's order a step looks before it is told which token was said last, and a
            trained model may look for a token one step before it says it (-1) or after (1).
        symmetrize: how they are joined with the links read the other way round, from each source
            word to target words, by the shares of its weight that target words give it: "none",
            their "intersection" or "union", or "grow-diag": the intersection, to which neighbours
            in the union are added whose source or target word has no link yet (Koehn et al. 2003).
        tension: lambda of a prior `exp(-lambda * |i / T - j / S|)` that the weights are multiplied
            by, the diagonal tension of Dyer et al. (2013), eq. 3; 0 for none. In long sentences
            weights stray to the same word elsewhere.
    """

    method: str = "threshold"
    threshold: float = 0.45
    shift: int = 0
    symmetrize: str = "none"
    tension: float = 0.0

    def describe(self) -> str:
        """Return the reading in words, which stand beside every AER."""
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


@dataclass(frozen=True)
class WordWeights:
    """The attention weights of a sentence, and the words of its tokens.

    Attributes:
        weights: float32 `(T + 1, S)`; the last row is that of the end token.
        source: word of each of the S source tokens, -1 for none.
        target: word of each of the T target tokens, -1 for none.
    """

    weights: np.ndarray
    source: list[int]
    target: list[int]


Attender = Callable[[Sequence[str], Sequence[str]], list[Attended]]


def attend(attender: Attender, split: Split) -> list[WordWeights]:
    """Force-decode the first references of a split with gold words, by a `make_attender`."""
    targets = [references[0] for references in split.references]
    return [
        WordWeights(
            np.concatenate([attended.weights, attended.end_weights[None]]),
            word_of_piece(source, source_words, attended.source_tokens),
            word_of_piece(target, target_words, attended.target_tokens),
        )
        for attended, source, target, source_words, target_words in zip(
            attender(split.sources, targets), split.sources, targets, *split.words(), strict=True
        )
    ]


def read(sentence: WordWeights, reading: Reading) -> set[Link]:
    """Read the links `(source word, target word)` of a sentence.

    A source word has the sum of the weights of its pieces, a target word the mean over its
    pieces. A step before the first or after the last is the first or the last.
    """
    source, target = np.array(sentence.source, int), np.array(sentence.target, int)
    source_words, target_words = (np.unique(words[words >= 0]) for words in (source, target))
    if not source_words.size or not target_words.size:
        return set()
    steps = np.clip(np.arange(target.size) + reading.shift, 0, target.size)
    weights = sentence.weights[steps]
    if reading.tension:
        weights = near_the_diagonal(weights, reading.tension)
    rows = np.array([weights[target == word].mean(axis=0) for word in target_words])
    joined = np.stack([rows[:, source == word].sum(axis=1) for word in source_words], axis=1)
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


def diagonal(split: Split) -> list[set[Link]]:
    """Link each target word to the source word at the same place, from first to last."""
    result = []
    for source, target in zip(*split.words(), strict=True):
        last = max(len(target) - 1, 1)
        links = {(round(t * (len(source) - 1) / last), t) for t in range(len(target))}
        result.append(links if source else set())
    return result


def at_most(split: Split, words: int) -> Split:
    """Return the pairs with at most so many gold words on each side."""
    pairs = enumerate(zip(*split.words(), strict=True))
    return split.select([i for i, pair in pairs if max(map(len, pair)) <= words])


def alignment_errors(
    predicted: Sequence[Set[Link]], sure: Sequence[Set[Link]], possible: Sequence[Set[Link]]
) -> np.ndarray:
    """`|A| + |S| - |A ∩ S| - |A ∩ P|` and `|A| + |S|` of each sentence: `(N, 2)`."""
    check_lengths(predicted, sure)
    check_lengths(predicted, possible)
    rows = []
    for a, s, p in zip(predicted, sure, possible, strict=True):
        total = len(a) + len(s)
        rows.append((total - len(a & s) - len(a & (s | p)), total))
    return np.array(rows)


def alignment_error_rate(
    predicted: Sequence[Set[Link]], sure: Sequence[Set[Link]], possible: Sequence[Set[Link]]
) -> float:
    """AER, `1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)` over all sentences (Och and Ney 2003).

    Args:
        predicted: links `(source word, target word)` of each sentence, A.
        sure: links that must be found, S.
        possible: links that may be found, P; sure links are possible.

    Returns:
        A fraction: 0 is perfect, 1 is all wrong.
    """
    return ratio(alignment_errors(predicted, sure, possible).sum(axis=0))


def word_of_piece(text: str, words: Sequence[str] | None, pieces: Sequence[str]) -> list[int]:
    """Index of the word that each piece belongs to.

    Words and pieces are laid side by side by their characters; spaces and "▁" do not count, and
    compatibility forms ("，" and ",") are the same character. A piece that touches several words
    belongs to the one with most of its characters.

    Args:
        text: the text, which is split into words where `words` is None.
        words: the words of the text.
        pieces: the tokens of the text; "<unk>" stands for any characters.

    Returns:
        One index for each piece: -1 for a piece without characters of a word.
    """
    words = split_words(text) if words is None else words
    word_letters, word_index = _letters(words)
    piece_letters, piece_index = _letters("\ufffc" if p == UNK_TOKEN else p for p in pieces)
    votes: list[Counter[int]] = [Counter() for _ in pieces]
    matcher = difflib.SequenceMatcher(None, word_letters, piece_letters, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag in ("equal", "replace"):
            for j in range(j1, j2):
                i = i1 + (j - j1) * (i2 - i1) // (j2 - j1)
                votes[piece_index[j]][word_index[i]] += 1
    return [max(vote, key=lambda w: (vote[w], -w)) if vote else -1 for vote in votes]


def _letters(strings: Iterable[str]) -> tuple[str, list[int]]:
    """Characters of all strings in one, and the index of the string that each comes from."""
    letters, index = [], []
    for i, string in enumerate(strings):
        normal = "".join(unicodedata.normalize("NFKC", string.replace("▁", " ")).split())
        letters.append(normal)
        index.extend([i] * len(normal))
    return "".join(letters), index
