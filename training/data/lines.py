"""Sentence pairs from files, a block of lines at a time: the one reader of TSV and aligned files.

A line ends with a line feed, before which there may be a carriage return; no other character ends
one. Texts become NFC with single spaces, and lose the byte order marks of files that were joined.
Files may be compressed: see `training.data.pair_files.opened`.
"""

from __future__ import annotations

import io
import itertools
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from training.data.pair_files import CorpusError, Split, clean, opened

FORMS = ("tsv", "multiref", "parallel")  # of SPECs that name files of pairs
BLOCK_BYTES = 4 << 20
LINE_BYTES = 1 << 16  # a longer line is no sentence
SAMPLE_BYTES = 20_000_000  # that a survey keeps
MOST_UNUSABLE = 0.1  # share of lines without a pair; with more it is another kind of file
MOST_UNREADABLE = 0.001  # share of lines that are not UTF-8; with more the file is not
MOST_AMBIGUOUS = 0.5  # share of lines, in a file of three columns, whose source has other targets
NEARLY_ALL = 0.99
_NUL, _MARKS = "NUL characters", (b"\xff\xfe", b"\xfe\xff")
_UTF16 = "as UTF-16 has them: iconv -f UTF-16 -t UTF-8 makes UTF-8 of it"


class Block(NamedTuple):
    """Consecutive lines of a SPEC.

    Attributes:
        spec: whose lines they are.
        first: number of the first line, from 1.
        columns: the lines; of line-aligned files those of each.
        quoted: whether columns are in quotes, as spreadsheets write them.
    """

    spec: str
    first: int
    columns: tuple[bytes, ...]
    quoted: bool = False


@dataclass
class Skipped:
    """Lines that are no pair.

    Attributes:
        reasons: by the reason, how many there are and the number of the first.
        usable: lines that are one.
    """

    reasons: dict[str, tuple[int, int]] = field(default_factory=dict)
    usable: int = 0

    @property
    def unusable(self) -> int:
        """Lines without a pair that are not blank."""
        return sum(count for reason, (count, _) in self.reasons.items() if reason != "blank")

    def add(self, reason: str, line: int, count: int = 1) -> None:
        """Count lines, of which `line` is the first."""
        before, first = self.reasons.get(reason, (0, line))
        self.reasons[reason] = before + count, min(first, line)

    def merge(self, other: Skipped) -> None:
        """Add the lines of another block."""
        self.usable += other.usable
        for reason, (count, line) in other.reasons.items():
            self.add(reason, line, count)

    def check(self, spec: str) -> None:
        """Refuse what is another kind of file than sentence pairs.

        Raises:
            CorpusError: naming the first line that is otherwise.
        """
        form, _, paths = spec.partition(":")
        place = " and ".join(parallel(paths)) if form == "parallel" else paths
        total, unusable = self.usable + self.unusable, self.unusable
        for reason, hint in (("not UTF-8", ""), (_NUL, f" without NUL characters, {_UTF16}")):
            count, line = self.reasons.get(reason, (0, 0))
            if count > MOST_UNREADABLE * total:
                raise CorpusError(f"{place}, line {line}: expected UTF-8 text{hint}")
        if not total:
            raise CorpusError(f"{place} is empty")
        if self.usable and unusable <= max(1, MOST_UNUSABLE * total):
            return
        line = min(first for why, (_, first) in self.reasons.items() if why != "blank")
        expected = "text in both" if form == "parallel" else "source TAB target, both with text"
        raise CorpusError(
            f"{place}, line {line}: expected {expected}; {unusable} of {total} lines are otherwise"
        )


def parallel(paths: str) -> tuple[str, str]:
    """Return the two files of `SOURCE,TARGET`: cut at the first comma that leaves two files.

    Raises:
        CorpusError: there is no comma.
    """
    commas = [place for place, letter in enumerate(paths) if letter == ","]
    if not commas:
        raise CorpusError(f"Expected parallel:SOURCE,TARGET. Received: parallel:{paths}")
    cuts = [(paths[:comma], paths[comma + 1 :]) for comma in commas]
    return next((cut for cut in cuts if all(Path(path).exists() for path in cut)), cuts[0])


def files_of(spec: str) -> list[Path]:
    """Return the files that a SPEC names."""
    form, _, paths = spec.partition(":")
    if form not in FORMS:
        return []
    each = parallel(paths) if form == "parallel" else (paths,)
    return [Path(path).expanduser() for path in each]


def read_blocks(spec: str, size: int = BLOCK_BYTES) -> Iterator[Block]:
    """Yield the lines of files, about `size` bytes at a time.

    Raises:
        CorpusError: one cannot be read, or line-aligned files differ in their number of lines.
    """
    paths = files_of(spec)
    quoted: bool | None = None
    first = 1
    with ExitStack() as stack:
        files = [_text(stack.enter_context(opened(path)), path) for path in paths]
        for columns in _whole(files[0], size) if len(files) == 1 else _aligned(files, paths, size):
            if quoted is None:
                quoted = len(columns) == 1 and _is_quoted(columns[0])
            block = Block(spec, first, columns, quoted)
            yield block
            first += _line_count(block)


def _whole(file: io.BufferedReader, size: int) -> Iterator[tuple[bytes, ...]]:
    """Yield whole lines of a file; of one that is longer than a block the rest is not read."""
    while data := file.read(size):
        if not data.endswith(b"\n"):
            data += next(_lines(file), b"")
        yield (data,)


def _aligned(
    files: list[io.BufferedReader], paths: list[Path], size: int
) -> Iterator[tuple[bytes, ...]]:
    """Yield as many lines of each file."""
    counts, rows, bytes_read = [0] * len(files), list[tuple[bytes, ...]](), 0
    for row in itertools.zip_longest(*map(_lines, files)):
        counts = [count + (line is not None) for count, line in zip(counts, row, strict=True)]
        if None not in row:
            rows.append(row)
            bytes_read += sum(map(len, row))
        if bytes_read >= size:
            yield tuple(b"".join(column) for column in zip(*rows, strict=True))
            rows, bytes_read = [], 0
    if len(set(counts)) > 1:
        raise CorpusError(
            f"Expected as many lines in {paths[0]} and {paths[1]}. "
            f"Received: {counts[0]} and {counts[1]}"
        )
    if rows:
        yield tuple(b"".join(column) for column in zip(*rows, strict=True))


def text_block(spec: str, split: Split) -> Block:
    """Return sentences of a named corpus as lines: the source, and all its references."""
    rows = zip(split.sources, split.references, strict=True)
    lines = ("\t".join([source, *references]) for source, references in rows)
    return Block(f"multiref:{spec}", 1, ("\n".join(lines).encode(),))


def parse(block: Block, skipped: Skipped) -> tuple[list[str], list[list[str]]]:
    """Return the sources of a block and the targets of each; count the other lines."""
    if not any(column.strip() for column in block.columns):
        skipped.add("blank", block.first, _line_count(block))
        return [], []
    several = block.spec.startswith("multiref:")
    sources, references = [], []
    for line, row in enumerate(_rows(block), start=block.first):
        if len(row) == 1 and row[0] in _REASONS:
            skipped.add(row[0], line)
            continue
        source, *targets = map(clean, row if several else row[:2])
        targets = [target for target in targets if target]
        if source and targets:
            sources.append(source)
            references.append(targets)
        else:
            skipped.add("no pair" if any(map(clean, row)) else "blank", line)
    skipped.usable += len(sources)
    return sources, references


def read_split(spec: str) -> Split:
    """Read files whole.

    Raises:
        CorpusError: they cannot be read, or hold other things than pairs.
    """
    split, skipped = Split([], []), Skipped()
    for block in read_blocks(spec):
        sources, references = parse(block, skipped)
        split.sources.extend(sources)
        split.references.extend(references)
        if not skipped.usable:
            skipped.check(spec)
    skipped.check(spec)
    return Split(split.sources, split.references, unusable=skipped.unusable)


def read_pairs(spec: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of files, without holding them.

    Raises:
        CorpusError: as `read_split`.
    """
    skipped = Skipped()
    for block in read_blocks(spec):
        yield from Split(*parse(block, skipped)).pairs()
        if not skipped.usable:
            skipped.check(spec)
    skipped.check(spec)


def count_lines(spec: str) -> int:
    """Return how many lines files have."""
    return sum(_line_count(block) for block in read_blocks(spec))


class Survey(NamedTuple):
    """The files of a SPEC.

    Attributes:
        lines: how many there are.
        sample: some of them, each drawn with the same probability, in their order.
        notes: what a person should know of how they are read.
    """

    lines: int
    sample: list[Block]
    notes: list[str]


def survey(spec: str, blocks: Iterator[Block], seed: int, most: int = SAMPLE_BYTES) -> Survey:
    """Count the lines of blocks, and draw about `most` bytes of them.

    Raises:
        CorpusError: the first block has no pair; a third column, which is not read, tells apart
            targets of one source; or as `read_blocks`.
    """
    rng, share, lines, total = random.Random(seed), 1.0, 0, 0
    rows: list[tuple[float, tuple[bytes, ...]]] = []
    last: Block | None = None
    for block in blocks:
        if last is None:
            skipped = Skipped()
            parse(block, skipped)
            if not skipped.usable:
                skipped.check(spec)
        last = block
        if not any(column.strip() for column in block.columns):
            lines += _line_count(block)
            continue
        columns = [column.removesuffix(b"\n").split(b"\n") for column in block.columns]
        new = list(zip(*columns, strict=True))
        lines += len(new)
        places = sorted(rng.sample(range(len(new)), round(share * len(new))))
        drawn = [new[place] for place in places]
        rows += [(rng.random() * share, row) for row in drawn]
        total += sum(len(text) for row in drawn for text in row)
        while total > 2 * most:
            share /= 2
            rows = [item for item in rows if item[0] < share]
            total = sum(len(text) for _, row in rows for text in row)
    if last is None:
        raise CorpusError(f"{' and '.join(map(str, files_of(spec)))} is empty")
    limit = share * min(1.0, most / max(1, total))
    chosen = [row for place, row in rows if place < limit] or [row for _, row in rows[:1]]
    together = tuple(b"\n".join(column) for column in zip(*chosen, strict=True))
    sample = Block(last.spec, 1, together, last.quoted)
    return Survey(lines, [sample], _notes(sample))


def _notes(sample: Block) -> list[str]:
    """Return what is to be said of the columns of a sample."""
    notes = []
    if sample.quoted:
        notes.append(f"{sample.spec}: columns are in quotes, which are not read")
    if not sample.spec.startswith("tsv:"):
        return notes
    rows = [[clean(column) for column in row] for row in _rows(sample)]
    pairs = [row for row in rows if len(row) > 1 and row[0] and row[1]]
    wide = [row for row in pairs if any(row[2:])]
    if len(wide) <= len(pairs) / 2:
        return notes
    targets: dict[str, set[str]] = {}
    for source, target, *_ in wide:
        targets.setdefault(source, set()).add(target)
    ambiguous = sum(len(targets[row[0]]) > 1 for row in wide)
    further = len({column for row in wide for column in row[2:]})
    if ambiguous > MOST_AMBIGUOUS * len(wide) and further <= len(wide) / 2:
        raise CorpusError(
            f"{sample.spec.partition(':')[2]} has columns after the second, which are not read, "
            f"and without them {ambiguous:,} of {len(wide):,} lines have a source with several "
            "targets: put what tells them apart into the source"
        )
    notes.append(f"{sample.spec}: columns after the second are not read")
    return notes


def _text(file: io.BufferedReader, path: Path) -> io.BufferedReader:
    """Return a file after its byte order mark; refuse other encodings."""
    start = file.peek(4096)[:4096]
    if start.startswith(_MARKS) or b"\0" in start:
        raise CorpusError(f"{path}, line 1: expected UTF-8 text without NUL characters, {_UTF16}")
    if b"\n" not in start and b"\r" in start.rstrip():
        raise CorpusError(f"{path}: lines end in CR alone: expected LF, or CR and LF")
    return file


def _lines(file: io.BufferedReader) -> Iterator[bytes]:
    """Yield lines with their ends; one that is too long is cut after LINE_BYTES."""
    while line := file.readline(LINE_BYTES):
        if not line.endswith(b"\n"):
            if len(line) == LINE_BYTES:
                while (more := file.readline(LINE_BYTES)) and not more.endswith(b"\n"):
                    pass
            line += b"\n"
        yield line


def _line_count(block: Block) -> int:
    column = block.columns[0]
    return column.count(b"\n") + (not column.endswith(b"\n"))


# What stands between tabs, in quotes or not.
_COLUMN = re.compile(r'(?:^|\t)(?:"((?:[^"]|"")*)"(?=\t|$)|([^\t]*))')
_REASONS = ("not UTF-8", _NUL, "line too long")


def _rows(block: Block) -> Iterator[tuple[str, ...] | list[str]]:
    """Yield the columns of each line; a reason alone for one that cannot be read."""
    texts = [_decoded(column) for column in block.columns]
    if len(texts) > 1:
        for row in zip(*texts, strict=True):
            wrong = [text for text in row if text in _REASONS]
            yield wrong[:1] or row
    elif block.quoted:
        for line in texts[0]:
            columns = _COLUMN.findall(line.replace("\ufeff", "").rstrip("\r"))
            yield [quoted.replace('""', '"') or plain for quoted, plain in columns]
    else:
        yield from (line.split("\t") for line in texts[0])


def _decoded(column: bytes) -> list[str]:
    """Return lines as text, or the reason why one cannot be read."""
    lines = column.removesuffix(b"\n").split(b"\n")
    long = max(map(len, lines)) >= LINE_BYTES - 1
    if not long and b"\0" not in column:
        try:
            return column.decode().removesuffix("\n").split("\n")
        except UnicodeDecodeError:
            pass
    return [_decoded_line(line) for line in lines]


def _decoded_line(line: bytes) -> str:
    if len(line) >= LINE_BYTES - 1:
        return "line too long"
    if b"\0" in line:
        return _NUL
    try:
        return line.decode()
    except UnicodeDecodeError:
        return "not UTF-8"


def _is_quoted(column: bytes) -> bool:
    """Whether columns are in quotes as spreadsheets write them.

    Where a text has a quote, all of it is in quotes and its own are doubled; and nearly all texts
    are in quotes, or some have doubled ones.
    """
    texts = re.split("\r?\n", column.decode(errors="replace").replace("\ufeff", ""))
    fields = [text for line in texts for text in line.split("\t") if text.strip()]
    with_quotes = [text for text in fields if '"' in text]
    right = [text for text in with_quotes if re.fullmatch('"(?:[^"]|"")*"', text)]
    if not right or len(right) < NEARLY_ALL * len(with_quotes):
        return False
    doubled = any('""' in text[1:-1] for text in right)
    return doubled or len(right) >= NEARLY_ALL * len(fields)
