"""Word links read from attention weights, for the alignment error rate."""

from __future__ import annotations

import difflib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from training.data.pair_files import Split
from training.data.tokenizers import UNK_TOKEN
from training.decode.texts import Attended
from training.metrics import check_lengths

Link = tuple[int, int]

THRESHOLD = 0.45  # least weight of a link
METHOD = (
    "force-decoded; subwords joined to words; each target word is linked to the source words of "
    f"weight >= {THRESHOLD}"
)


@dataclass(frozen=True)
class WordWeights:
    """The attention weights of a sentence, and the words of its tokens."""

    weights: np.ndarray  # float32 `(T + 1, S)`; the last row is that of the end token
    source: list[int]  # word of each of the S source tokens, -1 for none
    target: list[int]  # word of each of the T target tokens, -1 for none


Attender = Callable[[Sequence[str], Sequence[str]], list[Attended]]


def attend(attender: Attender, split: Split) -> list[WordWeights]:
    """Force-decode the first references of a split with gold words, by a `make_attender`."""
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
    """Read the links `(source word, target word)` of a sentence: those of THRESHOLD or more."""
    weights, source, target = of_words(sentence, sentence.weights[:-1])
    return {(int(source[s]), int(target[t])) for t, s in np.argwhere(weights >= THRESHOLD)}


def of_words(
    sentence: WordWeights, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Join the weights of tokens `(T, S)` to those of words.

    A source word has the sum of the weights of its pieces, a target word the mean over its pieces.
    Return weights `(target words, source words)`, and which words those of each side are.
    """
    source, target = np.array(sentence.source, int), np.array(sentence.target, int)
    source_words, target_words = (np.unique(words[words >= 0]) for words in (source, target))
    of_source, of_target = source[:, None] == source_words, target[:, None] == target_words
    joined = of_target.T @ weights @ of_source / of_target.sum(axis=0)[:, None]
    return joined, source_words, target_words


def diagonal(split: Split) -> list[set[Link]]:
    """Link each target word to the source word at the same place, from first to last."""
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

    A are the predicted links `(source word, target word)`, S those that must be found, P those that
    may be. `ratio` of the sums is AER, `1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)` (Och and Ney 2003).
    """
    check_lengths(predicted, sure)
    check_lengths(predicted, possible)
    rows = []
    for a, s, p in zip(predicted, sure, possible, strict=True):
        total = len(a) + len(s)
        rows.append((total - len(a & s) - len(a & (s | p)), total))
    return np.array(rows)


def word_of_piece(words: Sequence[str], pieces: Sequence[str]) -> list[int]:
    """Return the place of the word that each piece belongs to, -1 for one without its characters.

    Words and pieces are laid side by side by their characters; spaces and "▁" do not count, and
    compatibility forms ("，" and ",") are the same character; the piece "<unk>" stands for any. A
    piece that touches several words belongs to the one with most of its characters.
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
    """Characters of all strings in one, and the index of the string that each comes from."""
    letters, index = [], []
    for i, string in enumerate(strings):
        normal = "".join(unicodedata.normalize("NFKC", string.replace("▁", " ")).split())
        letters.append(normal)
        index.extend([i] * len(normal))
    return "".join(letters), index
