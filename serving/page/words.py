"""Subwords joined to the words that people read, and their attention weights with them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

MARK = "▁"  # SentencePiece's, in front of each piece that begins a word
UNKNOWN = "<unk>"  # may stand for a whole word, its mark with it

Weights = Sequence[Sequence[float]]


def groups(tokens: Sequence[str]) -> list[list[int]]:
    """Return the positions of the tokens of each word, in order.

    Tokens without SentencePiece's mark are words of their own; so are punctuation and what is
    written in Chinese, Japanese or Thai characters, where no space tells words apart.
    """
    if not any(token.startswith(MARK) for token in tokens):
        return [[position] for position in range(len(tokens))]
    words: list[list[int]] = []
    for position, token in enumerate(tokens):
        before = tokens[position - 1] if position else ""
        inside = words and not token.startswith(MARK) and before != MARK
        if before == MARK or (inside and _spelled(token) and _spelled(before)):
            words[-1].append(position)
        else:
            words.append([position])
    return words


def join(
    source: Sequence[str], target: Sequence[str], weights: Weights
) -> tuple[list[str], list[str], list[list[float]]]:
    """Return source words, target words, and the weights between them.

    A source word has the sum of its tokens' weights, a target word the mean over its tokens: what
    a target word looks at still sums to 1.

    Args:
        source: S source tokens.
        target: T target tokens.
        weights: T rows of S attention weights.
    """
    columns, rows = groups(source), groups(target)
    joined = [
        [
            sum(weights[row][column] for row in word for column in looked) / len(word)
            for looked in columns
        ]
        for word in rows
    ]
    return _texts(source, columns), _texts(target, rows), joined


def _texts(tokens: Sequence[str], words: list[list[int]]) -> list[str]:
    return ["".join(tokens[p] for p in word).replace(MARK, " ").strip() for word in words]


def _spelled(token: str) -> bool:
    """Whether a token is letters of a script that puts spaces between words."""
    text = token.removeprefix(MARK)
    return (
        text != UNKNOWN and any(c.isalnum() for c in text) and not any(_unspaced(c) for c in text)
    )


def _unspaced(character: str) -> bool:
    wide = unicodedata.east_asian_width(character) in "WF"
    hangul = unicodedata.name(character, "").startswith("HANGUL")
    return (wide and not hangul) or "\u0e00" <= character <= "\u0eff"
