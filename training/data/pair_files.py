"""Sentence pairs as files hold them: tab-separated, line-aligned, or as ALIBI's aligned tales.

Any file may be compressed with gzip if its name ends in `.gz`, or with Zstandard if it ends in
`.zst`. Blank lines of pairs, and lines with text on one side alone, are left out.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import importlib.util
import io
import random
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from training.command.errors import UserError

MOST_UNUSABLE = 0.1  # share of lines without a pair; with more it is another kind of file
Links = frozenset[tuple[int, int]]


class CorpusError(UserError):
    """A corpus that is not there or cannot be read; the message is one line."""


@dataclass(frozen=True)
class Split:
    """Sentences, or images, of one split of a corpus, with their reference translations.

    Texts are NFC with single spaces. Gold words and links exist for some corpora and are None
    for the others; they are those of the first reference.

    Attributes:
        sources: source sentences; of images the files, as bytes or as paths.
        references: for each source, one or more translations.
        source_words: words of each source.
        target_words: words of each first reference.
        sure: for each sentence, links `(source word, target word)` that must be found.
        possible: links that may be found, the sure ones included.
        boxes: of images, for each the box of each character of the first reference: left, top,
            right, bottom, as fractions of the image's size.
        unusable: lines of the files that hold no pair.
    """

    sources: list[Any]
    references: list[list[str]]
    source_words: list[list[str]] | None = None
    target_words: list[list[str]] | None = None
    sure: list[Links] | None = None
    possible: list[Links] | None = None
    boxes: list[list[tuple[float, float, float, float]]] | None = None
    unusable: int = 0

    def pairs(self) -> list[tuple[Any, str]]:
        """Every source with each of its references."""
        return [
            (source, reference)
            for source, references in zip(self.sources, self.references, strict=True)
            for reference in references
        ]

    def words(self) -> tuple[list[list[str]], list[list[str]]]:
        """The gold words of sources and of first references.

        Raises:
            CorpusError: the corpus has none.
        """
        if self.source_words is None or self.target_words is None:
            raise CorpusError("The corpus has no gold words")
        return self.source_words, self.target_words

    def gold(self) -> tuple[list[Links], list[Links]]:
        """The sure and the possible gold links.

        Raises:
            CorpusError: the corpus has none.
        """
        if self.sure is None or self.possible is None:
            raise CorpusError("The corpus has no gold links")
        return self.sure, self.possible

    def select(self, indices: Sequence[int]) -> Split:
        """The sentences at these positions."""
        chosen: dict[str, Any] = {
            name: [values[i] for i in indices]
            for name, values in vars(self).items()
            if isinstance(values, list)
        }
        return replace(self, **chosen)


def chosen(count: int, limit: int | None, seed: int = 0) -> Sequence[int]:
    """Positions of at most `limit` of so many examples, drawn at random, in order; 0 for all."""
    if not limit or limit >= count:
        return range(count)
    return sorted(random.Random(seed).sample(range(count), limit))


def sample(split: Split, limit: int | None, seed: int = 0) -> Split:
    """At most so many sentences, chosen at random, in their order; all of them for None."""
    if limit is None or limit >= len(split.sources):
        return split
    return split.select(chosen(len(split.sources), limit, seed))


def merge_sources(split: Split) -> Split:
    """One sentence for each source, with the different references of all its lines."""
    first: dict[str, int] = {}
    references: dict[str, dict[str, None]] = {}
    for i, source in enumerate(split.sources):
        first.setdefault(source, i)
        references.setdefault(source, {}).update(dict.fromkeys(split.references[i]))
    merged = split.select(list(first.values()))
    return replace(merged, references=[list(texts) for texts in references.values()])


def fingerprint(*splits: Iterable[tuple[str, str]]) -> str:
    """SHA-256 of sentence pairs, in their order."""
    digest = hashlib.sha256()
    for pairs in splits:
        for source, target in pairs:
            digest.update(f"{source}\t{target}\n".encode())
        digest.update(b"\n")
    return digest.hexdigest()


def clean(text: str) -> str:
    """NFC with single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def _read_lines(path: Path) -> list[str]:
    return read_text(path).removesuffix("\n").split("\n")


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file for reading, decompressed if its name ends in `.gz` or `.zst`.

    Raises:
        CorpusError: if it cannot be opened, or cannot be read inside the `with`.
    """
    damaged: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error)
    if path.suffix == ".zst":
        damaged = (*damaged, _zstandard(path).ZstdError)
    try:
        with ExitStack() as stack:
            file: Any = stack.enter_context(path.open("rb"))
            if path.suffix == ".gz":
                file = stack.enter_context(gzip.GzipFile(fileobj=file))
            elif path.suffix == ".zst":
                unpacker = _zstandard(path).ZstdDecompressor()
                file = stack.enter_context(unpacker.stream_reader(file, read_across_frames=True))
            yield stack.enter_context(io.BufferedReader(file, 1 << 20))
    except damaged as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"Cannot read {path}: {reason}") from None


def _zstandard(path: Path) -> Any:
    if importlib.util.find_spec("zstandard") is None:
        raise CorpusError(f"Cannot read {path}: zstandard is not installed: pip install zstandard")
    return importlib.import_module("zstandard")


def read_text(path: Path) -> str:
    """Return the text of a file, decompressed as by `opened`.

    Raises:
        CorpusError: if it cannot be read, is not UTF-8, or empty.
    """
    with opened(path) as file:
        data = file.read()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise CorpusError(f"{path}, line {line}: expected UTF-8 text") from None
    if not text.strip():
        raise CorpusError(f"{path} is empty")
    return text


def read_tsv(paths: Sequence[Path], *, all_columns: bool = False, separator: str = "") -> Split:
    """Rows `source TAB target`; with a separator, a target holds several references."""
    (path,) = paths
    rows = []
    for number, line in enumerate(_read_lines(path), start=1):
        columns = [clean(column) for column in line.split("\t")]
        targets = columns[1:] if all_columns else columns[1:2]
        if separator:
            targets = [part for target in targets for part in target.split(separator)]
        if any(columns):
            rows.append((number, columns[0], targets))
    return _with_both(rows, str(path), "source TAB target, both with text")


def read_linked(paths: Sequence[Path]) -> Split:
    """Rows `source TAB target`, or these and their words, sure links and possible links alone."""
    split = read_tsv(paths)
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


def read_parallel(paths: Sequence[Path]) -> Split:
    """Two files, line by line."""
    sources, targets = (_read_lines(path) for path in paths)
    if len(sources) != len(targets):
        raise CorpusError(
            f"Expected as many lines in {paths[0]} and {paths[1]}. "
            f"Received: {len(sources)} and {len(targets)}"
        )
    pairs = enumerate(zip(map(clean, sources), map(clean, targets), strict=True), start=1)
    rows = [(number, source, [target]) for number, (source, target) in pairs if source or target]
    return _with_both(rows, f"{paths[0]} and {paths[1]}", "text in both")


def _with_both(rows: Sequence[tuple[int, str, list[str]]], place: str, expected: str) -> Split:
    """Return the rows with a source and a target; the others are left out and counted.

    Raises:
        CorpusError: if those are too many.
    """
    split, unusable = Split([], []), list[int]()
    for number, source, targets in rows:
        texts = [target for target in targets if target]
        if source and texts:
            split.sources.append(source)
            split.references.append(texts)
        else:
            unusable.append(number)
    if not split.sources or len(unusable) > max(1, MOST_UNUSABLE * len(rows)):
        raise CorpusError(
            f"{place}, line {unusable[0]}: expected {expected}; "
            f"{len(unusable)} of {len(rows)} lines are otherwise"
        )
    return replace(split, unusable=len(unusable))


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
