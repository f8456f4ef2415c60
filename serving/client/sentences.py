"""Texts of several sentences, translated one by one."""

import re
from collections.abc import Sequence

from serving.client.results import Translation, unique_letters

# A full stop ends a sentence before white space, a Chinese or Japanese one anywhere. A run of white
# space with a line break is looked at from its beginning only, not again from each of its places.
_BOUNDARY = re.compile(
    r"""((?<=[.!?…])\s+|(?<=[.!?…]["'”’»)\]])\s+"""
    r"""|(?<=[。！？])(?![。！？”’」』）])\s*|(?<=[。！？][”’」』）])\s*|(?<!\s)\s*\n\s*)"""
)
_FULL_WIDTH_END = re.compile(r"[。！？][”’」』）]*$")


def split_sentences(text: str) -> list[tuple[str, str]]:
    """(sentence, white space after it) of a text, in order."""
    parts = _BOUNDARY.split(text.strip())
    pairs = zip(parts[::2], [*parts[1::2], ""], strict=True)
    return [(sentence, gap) for sentence, gap in pairs if sentence]


def join_sentences(pieces: Sequence[tuple[Translation, str]]) -> Translation:
    """One translation of sentences and the white space after each.

    The score is the mean of the sentences', and it is truncated where any of them is.
    """
    if not pieces:
        return Translation("", 0.0)
    text = ""
    for number, (piece, gap) in enumerate(pieces, 1):
        text += piece.text
        if number < len(pieces):
            if "\n" in gap:
                text += gap
            elif not _FULL_WIDTH_END.search(piece.text):
                text += " "
    score = sum(piece.score for piece, _ in pieces) / len(pieces)
    unknown = unique_letters("".join(piece.unknown for piece, _ in pieces))
    truncated = any(piece.truncated for piece, _ in pieces)
    return Translation(text, score, truncated, unknown=unknown)
