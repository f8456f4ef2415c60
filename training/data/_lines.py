"""Sentence pairs from TSV files and aligned files, read a block of lines at a time.

A line ends with a line feed, or with a carriage return and a line feed. No other character ends a
line. Texts become NFC with single spaces. Byte order marks of joined files are removed, and so are
the quotes of spreadsheets, which may enclose tabs and line ends. Files may be compressed: see
`training.data._pair_files.open_data`.
"""

from __future__ import annotations

import functools
import io
import itertools
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from training.command.progress import print_note
from training.data._headers import MOST_LINES, has_header, number_notes
from training.data._lists import phone_notes
from training.data._pair_files import CorpusError, Split, open_data
from training.data._specs import Spec
from training.data.columns import Form, columns_in, form_of, normal, unquoted_rows
from training.data.rules import LATIN1, NO_TEXT, NUL, encoding_hint

BLOCK_BYTES = 4 << 20
LINE_BYTES = 1 << 16  # a longer line is not a sentence
MOST_UNUSABLE = 0.1  # largest share of lines without a pair; with more, the file is of another kind
# largest share of lines that are not UTF-8; with more, the file is not UTF-8
MOST_UNREADABLE = 0.001
_NUL = "NUL characters"


class Block(NamedTuple):
    """Consecutive lines of a SPEC."""

    spec: Spec  # the SPEC that names the files
    first: int  # number of the first line, from 1
    data: bytes  # the lines, each with its line feed; lines of aligned files are joined by a tab
    form: Form = Form()  # how the file writes its columns

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self.data.count(b"\n")


@dataclass
class Skipped:
    """Counts of a file's lines: lines without a pair by reason, and lines with a pair."""

    reasons: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)  # number of the first line of each reason
    usable: int = 0  # lines with a pair
    shared: int = 0  # pairs whose source is in dev or test

    @property
    def unusable(self) -> int:
        """The number of lines without a pair that are not blank."""
        return self.reasons.total() - self.reasons["blank"]

    def add(self, reason: str, line: int, count: int = 1) -> None:
        """Count lines without a pair for this reason. `line` is the number of the first line."""
        self.reasons[reason] += count
        self.first.setdefault(reason, line)

    def merge(self, other: Skipped) -> None:
        """Add the counts of the next block."""
        self.usable, self.shared = self.usable + other.usable, self.shared + other.shared
        self.reasons.update(other.reasons)
        self.first = other.first | self.first

    def check(self, spec: Spec) -> None:
        """Raise CorpusError if a file does not hold sentence pairs.

        The error names the first line without a pair.
        """
        paths = spec.paths
        place = " and ".join(map(str, paths))
        total, unusable = self.usable + self.unusable, self.unusable
        hints = {"not UTF-8": LATIN1, _NUL: NUL}
        for reason, hint in hints.items():
            if self.reasons[reason] > MOST_UNREADABLE * total:
                line = self.first[reason]
                raise CorpusError(f"{place}, line {line} is not UTF-8 text{hint}")
        if not total:
            raise CorpusError(f"{place} is empty")
        if self.usable and unusable <= max(1, MOST_UNUSABLE * total):
            return
        line = min(line for reason, line in self.first.items() if reason != "blank")
        how = "both files need text" if len(paths) > 1 else "write the source, a tab, the target"
        form = _form(paths[0]) if len(paths) == 1 else Form()
        hint = f". They have {form.separator} instead of tabs. To write tabs: {form.repair}"
        raise CorpusError(
            f"{place}, line {line} has no pair: {how}. {unusable} of {total} lines are wrong"
            f"{hint if form.separator else ''}"
        )


def read_blocks(spec: Spec, size: int = BLOCK_BYTES, form: Form | None = None) -> Iterator[Block]:
    """Yield the lines of a SPEC's files, in blocks of about `size` bytes.

    `form` is how the file writes its columns. None finds the form from the file.

    Raises:
        CorpusError: a file cannot be read, or aligned files differ in their number of lines.
    """
    paths, first = spec.paths, 1
    with ExitStack() as stack:
        files = [_checked(stack.enter_context(open_data(path)), path) for path in paths]
        form = form or (_form(paths[0]) if len(files) == 1 else Form())
        if form.quoted:
            cut = _grouped(unquoted(files[0], paths[0]), size)
        elif len(files) == 1:
            cut = _cut(files[0], size)
        else:
            cut = _grouped(_aligned(files, paths), size)
        for data in cut:
            yield Block(spec, first, data, form)
            first += data.count(b"\n")


def notes_on(first: Block) -> tuple[str, ...]:
    """Return messages for people: unread parts of a file, and a first line like a header."""
    lines = itertools.islice(columns_of(first, Skipped()), MOST_LINES)
    columns = [columns for _, columns in lines]
    notes = [*first.form.notes]
    if columns and has_header(columns, phones=first.form.dictionary is not None):
        notes.append(
            f"{first.spec}: line 1, {' TAB '.join(columns[0])}, is read as a pair. If it is "
            "a header, delete it"
        )
    return tuple(notes)


def text_block(name: str, split: Split) -> Block:
    """Return the sentences of a named corpus as lines: each source with all its references."""
    sentences = zip(split.sources, split.references, strict=True)
    lines = ("\t".join([source, *references]) + "\n" for source, references in sentences)
    return Block(Spec(name, "multiref"), 1, "".join(lines).encode())


def parse(block: Block, skipped: Skipped) -> Split:
    """Return the sources of a block with their targets; add counts of lines to `skipped`."""
    split = Split([], [])
    if not block.data.strip():
        skipped.add("blank", block.first, block.lines)
        return split
    width = None if block.spec.form == "multiref" else 2
    for line, texts in columns_of(block, skipped, width):
        targets = [text for text in texts[1:] if text]
        if texts[0] and targets:
            split.sources.append(texts[0])
            split.references.append(targets)
        else:
            skipped.add("no pair" if texts[0] or targets else "blank", line)
    skipped.usable += len(split.sources)
    return split


def read_split(spec: Spec, form: Form | None = None) -> Split:
    """Return the sentences of files, read to the end; `form` as in `read_blocks`.

    Without a `form`, print the notes on the file. Raises CorpusError if a file cannot be read, or
    if the files hold no pairs.
    """
    split, skipped = Split([], []), Skipped()
    for block in read_blocks(spec, form=form):
        if form is None and block.first == 1:
            for note in notes_on(block):
                print_note(note)
        part = parse(block, skipped)
        split.sources.extend(part.sources)
        split.references.extend(part.references)
        if not skipped.usable:
            skipped.check(spec)  # fail before the rest is read
    skipped.check(spec)
    return replace(split, unusable=skipped.unusable)


def _checked(file: io.BufferedReader, path: Path) -> io.BufferedReader:
    """Return the file; raise CorpusError if its start is not UTF-8 or its lines end in CR alone."""
    start = file.peek(4096)[:4096]
    if start.startswith(tuple(NO_TEXT)) or b"\0" in start:
        raise CorpusError(f"{path}, line 1 is not UTF-8 text{encoding_hint(start)}")
    if b"\n" not in start and b"\r" in start.rstrip():
        raise CorpusError(
            f"{path} has the line ends of old Macs (CR). Convert it: "
            f"tr '\\r' '\\n' < {path} > new{path.suffix}"
        )
    return file


def _form(path: Path) -> Form:
    """Return the form of a file's columns, cached until the file changes."""
    return _form_of(path, path.stat().st_size, path.stat().st_mtime_ns)


@functools.lru_cache(64)
def _form_of(path: Path, *_: int) -> Form:
    with open_data(path) as file:
        return form_of(_cut(_checked(file, path), BLOCK_BYTES), str(path))


def _cut(file: io.BufferedReader, size: int) -> Iterator[bytes]:
    """Yield blocks of about `size` bytes that end with a whole line; a line too long is cut."""
    while data := file.read(size):
        if not data.endswith(b"\n"):
            data += next(_lines(file), b"\n")
        yield data


def _grouped(lines: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Yield lines, joined into groups of about `size` bytes."""
    group, count = list[bytes](), 0
    for line in lines:
        group.append(line)
        count += len(line)
        if count >= size:
            yield b"".join(group)
            group, count = [], 0
    if group:
        yield b"".join(group)


def _aligned(files: list[io.BufferedReader], paths: Sequence[Path]) -> Iterator[bytes]:
    """Yield the lines of aligned files, joined by a tab; raise CorpusError if a file is shorter."""
    counts = [0] * len(files)
    for pair in itertools.zip_longest(*map(_lines, files)):
        counts = [count + (line is not None) for count, line in zip(counts, pair, strict=True)]
        if None not in pair:
            yield b"\t".join(line[:-1].replace(b"\t", b" ") for line in pair) + b"\n"
    if len(set(counts)) > 1:
        raise CorpusError(
            f"{paths[0]} has {counts[0]} lines, but {paths[1]} has {counts[1]}. Line n of "
            "both files must belong together"
        )


def unquoted(file: io.BufferedIOBase, path: Path, delimiter: str = "\t") -> Iterator[bytes]:
    """Yield the unquoted rows of a spreadsheet, with tabs between columns.

    Each row ends with as many line feeds as it has in the file, so that line numbers stay correct.
    """
    lines = (line.decode(errors="surrogateescape").replace("\ufeff", "") for line in _lines(file))
    try:
        for row in unquoted_rows(lines, delimiter):
            yield row.encode(errors="surrogateescape")
    except ValueError as error:
        raise CorpusError(f"{path}, {error}") from None


def _lines(file: io.BufferedIOBase) -> Iterator[bytes]:
    """Yield lines with their line feeds; a line that is too long is cut after LINE_BYTES."""
    while line := file.readline(LINE_BYTES):
        if not line.endswith(b"\n"):
            if len(line) == LINE_BYTES:
                while (more := file.readline(LINE_BYTES)) and not more.endswith(b"\n"):
                    pass
            line += b"\n"
        yield line


def columns_of(
    block: Block, skipped: Skipped, width: int | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Yield number and at most `width` columns of each readable line; count other lines."""
    bad: dict[int, str] = {}
    for place, text in enumerate(_decoded(block.data, bad)):
        if place in bad:
            skipped.add(bad[place], block.first + place)
        else:
            yield block.first + place, columns_in(text, block.form, width)


def _decoded(data: bytes, bad: dict[int, str]) -> list[str]:
    """Return lines as NFC text; add the position and reason of each unreadable line to `bad`."""
    if b"\0" not in data:
        with suppress(UnicodeDecodeError):
            lines = normal(data.decode())[:-1].split("\n")
            if max(map(len, lines)) < LINE_BYTES // 4:  # a character has at most four bytes
                return lines
    lines = []
    for place, line in enumerate(data[:-1].split(b"\n")):
        text = line.decode(errors="replace")
        lines.append(normal(text))
        if len(line) >= LINE_BYTES - 1:
            bad[place] = "line too long"
        elif b"\0" in line:
            bad[place] = _NUL
        elif text.encode() != line:
            bad[place] = "not UTF-8"
    return lines


SAMPLE_BYTES = 20_000_000
MOST_AMBIGUOUS = 0.5  # largest share of lines with three columns whose source has several targets


class Survey(NamedTuple):
    """The result of a pass over the lines of a SPEC."""

    lines: int  # number of lines
    sample: Block  # about SAMPLE_BYTES of lines, drawn with equal probability, in order
    notes: tuple[str, ...]  # messages for people: parts that are not read
    pair: tuple[str, str]  # the first pair


def survey(spec: Spec, blocks: Iterable[Block]) -> Survey:
    """Return the number of lines in a SPEC's blocks, a sample of the lines, and the notes.

    Raises CorpusError if the first block has no pair, if a third column, which is not read, tells
    apart the targets of one source, or as `read_blocks` does.
    """
    rng, share, lines, size = random.Random(0), 1.0, 0, 0
    sample: list[bytes] = []
    first: Block | None = None
    pair = ("", "")

    def drawn(lines: Iterable[bytes], share: float) -> list[bytes]:
        return [line for line in lines if rng.random() < share]

    for block in blocks:
        if first is None:
            first = block
            pairs = parse(block, skipped := Skipped()).pairs()
            if not skipped.usable:
                skipped.check(spec)
            pair = pairs[0]
        lines += block.lines
        more = drawn(block.data[:-1].split(b"\n"), share)
        sample += more
        size += sum(map(len, more))
        while size > 2 * SAMPLE_BYTES:
            sample, share = drawn(sample, 0.5), share / 2
            size = sum(map(len, sample))
    if first is None:
        raise CorpusError(f"{' and '.join(map(str, spec.paths))} is empty")
    sample = drawn(sample, SAMPLE_BYTES / max(1, size)) or sample[:1]
    block = first._replace(first=1, data=b"\n".join(sample) + b"\n")
    notes = notes_on(first) if spec.paths else ()
    if spec.paths:
        pairs = parse(block, Skipped()).pairs()
        notes = (*notes, *number_notes(pairs, spec))
        if spec.form != "multiref":
            notes = (*notes, *phone_notes(pairs, spec.paths[-1], alone=len(spec.paths) > 1))
    if spec.form == "tsv" and _has_further_columns(block):
        notes = (*notes, f"{spec}: only the first two columns are read. Choose others: cut -f1,3")
    return Survey(lines, block, notes, pair)


def _has_further_columns(sample: Block) -> bool:
    """Return whether most pairs have a third column; raise CorpusError if targets depend on it."""
    lines = [columns for _, columns in columns_of(sample, Skipped())]
    pairs = [columns for columns in lines if len(columns) > 1 and columns[0] and columns[1]]
    wide = [columns for columns in pairs if any(columns[2:])]
    if len(wide) <= len(pairs) / 2:
        return False
    targets: dict[str, set[str]] = {}
    for source, target, *_ in wide:
        targets.setdefault(source, set()).add(target)
    ambiguous = sum(len(targets[source]) > 1 for source, *_ in wide)
    further = len({text for columns in wide for text in columns[2:]})
    if ambiguous > MOST_AMBIGUOUS * len(wide) and further <= len(wide) / 2:
        raise CorpusError(
            f"The trainer reads only two columns of {sample.spec.paths[0]}. Without the others, "
            f"{ambiguous:,} of {len(wide):,} lines have a source with several targets. Put the "
            "column that decides into the source"
        )
    return True
