"""The sentences of a split, and choices among them."""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

_MIXED_CHINESE = "tatoeba-en-zh"
Links = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Split:
    """Sentences, or images, of one split of a corpus, with their reference translations.

    Texts are NFC with single spaces. Only some corpora have gold words and links. Both belong to
    the first reference of each source.
    """

    sources: list[Any]  # source sentences; for images, the files, as bytes or as paths
    references: list[list[str]]  # one or more translations of each source
    source_words: Sequence[list[str]] = ()  # words of each source
    target_words: Sequence[list[str]] = ()  # words of each first reference
    # links `(source word, target word)` of each sentence that an alignment must have
    sure: Sequence[Links] = ()
    possible: Sequence[Links] = ()  # links that an alignment may have, sure links included
    # for images, the box of each character in each first reference: left, top, right, bottom, as
    # fractions of the image's size
    boxes: Sequence[list[tuple[float, float, float, float]]] = ()
    unusable: int = 0  # lines of the files without a pair

    def pairs(self) -> list[tuple[Any, str]]:
        """Return the pairs of each source with each of its references."""
        return [
            (source, reference)
            for source, references in zip(self.sources, self.references, strict=True)
            for reference in references
        ]

    def lines(self) -> bytes:
        """Return each source with all its references as a line, with tabs between them."""
        sentences = zip(self.sources, self.references, strict=True)
        lines = ("\t".join([source, *references]) + "\n" for source, references in sentences)
        return "".join(lines).encode()

    def select(self, indices: Sequence[int]) -> Split:
        """Return a split of the sentences at these positions."""
        chosen: dict[str, Any] = {
            name: [values[i] for i in indices]
            for name, values in vars(self).items()
            if isinstance(values, list)
        }
        return replace(self, **chosen)


def chosen(count: int, limit: int | None, seed: int = 0) -> Sequence[int]:
    """Return at most `limit` of `count` positions, drawn at random, in order; 0 or None for all."""
    if not limit or limit >= count:
        return range(count)
    return sorted(random.Random(seed).sample(range(count), limit))


def sample(split: Split, limit: int | None, seed: int = 0) -> Split:
    """Return at most `limit` sentences, drawn at random, in order; None for all."""
    if limit is None or limit >= len(split.sources):
        return split
    return split.select(chosen(len(split.sources), limit, seed))


def merge_sources(split: Split) -> Split:
    """Return a split with one sentence per source, with the distinct references of its lines."""
    first: dict[str, int] = {}
    references: dict[str, dict[str, None]] = {}
    for i, source in enumerate(split.sources):
        first.setdefault(source, i)
        references.setdefault(source, {}).update(dict.fromkeys(split.references[i]))
    merged = split.select(list(first.values()))
    return replace(merged, references=[list(texts) for texts in references.values()])


def in_target_script(split: Split, *names: str) -> Split:
    """Return a split with its references in the script of the targets of named corpora.

    Tatoeba's Chinese mixes two scripts: 44 % of the sentences are Traditional. All of them become
    Simplified characters, references too. If the same text is read as a file, it stays as it is.
    """
    if _MIXED_CHINESE not in names:
        return split
    references = [[simplified(text) for text in texts] for texts in split.references]
    return replace(split, references=references)


def simplified(text: str) -> str:
    """Return a text with Traditional Chinese characters converted to Simplified characters.

    OpenCC's dictionaries of words and characters decide: 後天 becomes 后天, and 皇后 stays 皇后.
    `tw2s` converts texts with the Taiwanese particle 著 (now 着), which `t2s` lacks. `t2s` converts
    all other texts, because `tw2s` changes the Simplified particle 么.
    """
    return _converter("tw2s" if "著" in text else "t2s").convert(text)


@functools.lru_cache
def _converter(dictionary: str) -> Any:
    import opencc

    return opencc.OpenCC(dictionary)


def number_of(text: str) -> int:
    """Return the SHA-1 of a text as a whole number, which keeps an example in its split."""
    return int.from_bytes(hashlib.sha1(text.encode()).digest(), "big")


def digest_of(content: bytes) -> int:
    """Return a number of 64 bits for the content of a source, to find it in other data."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")
