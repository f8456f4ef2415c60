"""ALIBI's tales, English and French, with links of words (github.com/fyvo/AlibiWordAlignments)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from training.data.read._files import read_text
from training.data.read._sentences import Split
from training.data.read._specs import CorpusError
from training.data.read.named._corpora import find_folder
from training.data.rules import clean

TALES = (
    ("BlueBeard", "LaBarbeBleue"),
    ("MasterCat", "ChatBotte"),
    ("TheInn", "LAuberge"),
    ("TheLastLesson", "LaDerniereClasse"),
    ("TheVision", "LaVision"),
)


def load() -> Split:
    """Read the sentences of all tales, of which each has a file of links.

    Raises:
        CorpusError: they are not there, or damaged.
    """
    sources, references, sure, possible = [], [], [], []
    source_words, target_words = [], []
    folder = find_folder("alibi-en-fr", "align-alibi-en-fr", ["the folder ali of its repository"])
    for tale, conte in TALES:
        names = f"{tale}_sents.txt", f"{conte}_sents.txt", f"ali_w2w_{conte}_{tale}.txt"
        english, french, links = (folder / name for name in names)
        rows = [_numbered(path) for path in (english, french, links)]
        if not rows[0].keys() == rows[1].keys() == rows[2].keys():
            raise CorpusError(f"Expected the same sentence numbers in {english}, {french}, {links}")
        for number, words in rows[0].items():
            source_words.append(words)
            target_words.append(rows[1][number])
            sources.append(_join(words, r" (?=['’](?:s|t|d|m|n|re|ve|ll)\b)| (?=[;:!?])"))
            references.append([_join(rows[1][number], r"(?<=['’]) | (?=-\w)")])
            marks = _read_links(rows[2][number], f"{links}, sentence {number}")
            sure.append(frozenset(link for link, mark in marks.items() if mark == "-"))
            possible.append(frozenset(marks))
    return Split(sources, references, source_words, target_words, sure, possible)


def _read_links(texts: Iterable[str], place: str) -> dict[tuple[int, int], str]:
    """Read links `j-i`, sure, and `jpi`, possible: the mark of each pair (i, j)."""
    links = {}
    for text in texts:
        match = re.fullmatch(r"(\d+)([-p])(\d+)", text)
        if not match:
            raise CorpusError(f"{place}: expected i-j or ipj. Received: {text}")
        links[int(match[3]), int(match[1])] = match[2]
    return links


def _numbered(path: Path) -> dict[str, list[str]]:
    """Words after the number and the tab of each line."""
    rows = (clean(line).split(" ") for line in read_text(path).removesuffix("\n").split("\n"))
    return {row[0]: row[1:] for row in rows}


def _join(words: list[str], closed: str) -> str:
    """Text of tokenized words: spaces go where `closed` matches and around other punctuation."""
    text = re.sub(r'" ([^"]*) "', r'"\1"', " ".join(words))
    return re.sub(rf"{closed}| (?=[.,)…])|(?<=\() ", "", text)
