"""Sentences with gold words and links: the phrasebook's files, and ALIBI's aligned tales."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from training.data.lines import read_split
from training.data.pair_files import CorpusError, Split, clean, read_text


def read_linked(paths: Sequence[Path]) -> Split:
    """Rows `source TAB target`, or these and their words, sure links and possible links alone."""
    split = read_split(f"tsv:{paths[0]}")
    rows = [line.split("\t") for line in _read_lines(paths[0])]
    if len(rows[0]) == 2:
        return split
    _, _, sources, targets, sure, possible = zip(*rows, strict=True)
    links = [
        [frozenset(_link(text) for text in column.split()) for column in texts]
        for texts in (sure, possible)
    ]
    return replace(
        split,
        source_words=[text.split(" ") for text in sources],
        target_words=[text.split(" ") for text in targets],
        sure=links[0],
        possible=[each | other for each, other in zip(*links, strict=True)],
    )


def _link(text: str) -> tuple[int, int]:
    source, _, target = text.partition("-")
    return int(source), int(target)


def read_alibi(paths: Sequence[Path]) -> Split:
    """Tales as triples of files: English and French sentences, and French-English links."""
    sources, references, sure, possible = [], [], [], []
    source_words, target_words = [], []
    for english, french, links in zip(paths[::3], paths[1::3], paths[2::3], strict=True):
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
    found = {}
    for text in texts:
        match = re.fullmatch(r"(\d+)([-p])(\d+)", text)
        if not match:
            raise CorpusError(f"{place}: expected i-j or ipj. Received: {text}")
        found[int(match[3]), int(match[1])] = match[2]
    return found


def _numbered(path: Path) -> dict[str, list[str]]:
    """Words after the number and the tab of each line."""
    rows = (clean(line).split(" ") for line in _read_lines(path))
    return {row[0]: row[1:] for row in rows}


def _join(words: list[str], closed: str) -> str:
    """Text of tokenized words: spaces go where `closed` matches and around other punctuation."""
    text = re.sub(r'" ([^"]*) "', r'"\1"', " ".join(words))
    return re.sub(rf"{closed}| (?=[.,)…])|(?<=\() ", "", text)


def _read_lines(path: Path) -> list[str]:
    return read_text(path).removesuffix("\n").split("\n")
