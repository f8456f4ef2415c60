"""Word links from attention weights, and the alignment error rate."""

from __future__ import annotations

import difflib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from training.data.read._sentences import Split
from training.data.tokens.tokenizers import UNK_TOKEN
from training.decode.texts import Attended
from training.metrics import check_lengths

Link = tuple[int, int]

THRESHOLD = 0.45  # a link needs at least this weight
METHOD = (
    "force-decoded; subwords joined to words; each target word is linked to the source words of "
    f"weight >= {THRESHOLD}"
)


@dataclass(frozen=True)
class WordWeights:
    """The attention weights of a sentence pair, and the word of each token."""

    weights: np.ndarray  # float32 `(T + 1, S)`; the last row belongs to END
    source: list[int]  # number of the word of each source token (S), -1 for none
    target: list[int]  # number of the word of each target token (T), -1 for none


Attender = Callable[[Sequence[str], Sequence[str]], list[Attended]]


def attend(attender: Attender, split: Split) -> list[WordWeights]:
    """Return the attention weights of forced decoding of each sentence's first reference.

    Args:
        attender: from `make_attender`.
        split: sentences with references and with the words that gold links refer to.
    """
    attended = attender(split.sources, [references[0] for references in split.references])
    return [
        WordWeights(
            np.concatenate([each.weights, each.end_weights[None]]),
            word_of_piece(source_words, each.source_tokens),
            word_of_piece(target_words, each.target_tokens),
        )
        for each, source_words, target_words in zip(
            attended, split.source_words, split.target_words, strict=True
        )
    ]


def read(sentence: WordWeights) -> set[Link]:
    """Return the links `(source word, target word)` whose weight is at least THRESHOLD."""
    weights, source, target = of_words(sentence, sentence.weights[:-1])
    return {(int(source[s]), int(target[t])) for t, s in np.argwhere(weights >= THRESHOLD)}


def of_words(
    sentence: WordWeights, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the attention weights between words, from the weights between tokens.

    Weights are summed over the tokens of a source word, and averaged over the tokens of a target
    word.

    Args:
        sentence: the words of the tokens.
        weights: weights between tokens, `(T, S)`.

    Returns:
        Weights `(target words, source words)`, and the numbers of the source words and of the
        target words that have tokens.
    """
    source, target = np.array(sentence.source, int), np.array(sentence.target, int)
    source_words, target_words = (np.unique(words[words >= 0]) for words in (source, target))
    of_source, of_target = source[:, None] == source_words, target[:, None] == target_words
    joined = of_target.T @ weights @ of_source / of_target.sum(axis=0)[:, None]
    return joined, source_words, target_words


def diagonal(split: Split) -> list[set[Link]]:
    """Link each target word to the source word at the same relative position."""
    result = []
    for source, target in zip(split.source_words, split.target_words, strict=True):
        last = max(len(target) - 1, 1)
        links = {(round(t * (len(source) - 1) / last), t) for t in range(len(target))}
        result.append(links if source else set())
    return result


def alignment_errors(
    predicted: Sequence[Set[Link]], sure: Sequence[Set[Link]], possible: Sequence[Set[Link]]
) -> np.ndarray:
    """Return `|A| + |S| - |A ∩ S| - |A ∩ P|` and `|A| + |S|` of each sentence: `(N, 2)`.

    A are the predicted links `(source word, target word)`, S the sure gold links, and P the
    possible gold links, which include S. The `ratio` of the sums is AER,
    `1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)` (Och and Ney 2003).
    """
    check_lengths(predicted, sure)
    check_lengths(predicted, possible)
    rows = []
    for a, s, p in zip(predicted, sure, possible, strict=True):
        total = len(a) + len(s)
        rows.append((total - len(a & s) - len(a & (s | p)), total))
    return np.array(rows)


def word_of_piece(words: Sequence[str], pieces: Sequence[str]) -> list[int]:
    """Return for each piece the number of its word, or -1 if no word has its characters.

    Words and pieces are aligned by their characters. Spaces and "▁" are ignored, compatibility
    forms ("，" and ",") are equal, and the piece "<unk>" may be any text. A piece that overlaps
    several words belongs to the word with most of its characters.
    """
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
    """Return the characters of all strings as one string, and the string number of each."""
    letters, index = [], []
    for i, string in enumerate(strings):
        normal = "".join(unicodedata.normalize("NFKC", string.replace("▁", " ")).split())
        letters.append(normal)
        index.extend([i] * len(normal))
    return "".join(letters), index
