"""Sentence pairs, read from blocks of lines; and surveys, which draw a sample of the lines.

Texts become NFC with single spaces. Byte order marks of joined files are removed.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from training.command.progress import print_note
from training.data.columns import Form, columns_in, normal
from training.data.read._files import LINE_BYTES, Block
from training.data.read._notes import MOST_LINES, has_header, number_notes, phone_notes
from training.data.read._sentences import Split
from training.data.read._specs import CorpusError, Spec
from training.data.rules import LATIN1, NUL

MOST_UNUSABLE = 0.1  # largest share of lines without a pair; with more, the file is of another kind
# largest share of lines that are not UTF-8; with more, the file is not UTF-8
MOST_UNREADABLE = 0.001
NO_UTF_8, NULS = "not UTF-8", "NUL characters"  # reasons for which a line has no pair
SAMPLE_BYTES = 20_000_000
MOST_AMBIGUOUS = 0.5  # largest share of lines with three columns whose source has several targets


@dataclass
class LineCounts:
    """Counts of a file's lines: lines without a pair by reason, and lines with a pair."""

    spec: Spec  # the SPEC that names the file, for messages
    reasons: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)  # number of the first line of each reason
    usable: int = 0  # lines with a pair
    shared: int = 0  # pairs whose source is in dev or test
    form: Form = field(default_factory=Form)  # how the file writes its columns

    @property
    def unusable(self) -> int:
        """The number of lines without a pair that are not blank."""
        return self.reasons.total() - self.reasons["blank"]

    def add(self, reason: str, line: int, count: int = 1) -> None:
        """Count lines without a pair for this reason. `line` is the number of the first line."""
        self.reasons[reason] += count
        self.first.setdefault(reason, line)

    def merge(self, other: LineCounts) -> None:
        """Add the counts of the next block."""
        self.usable, self.shared = self.usable + other.usable, self.shared + other.shared
        self.form = other.form
        self.reasons.update(other.reasons)
        self.first = other.first | self.first

    def check(self) -> None:
        """Raise CorpusError if a file does not hold sentence pairs.

        The error names the first line without a pair.
        """
        paths = self.spec.paths
        place = " and ".join(map(str, paths))
        total, unusable = self.usable + self.unusable, self.unusable
        hints = {NO_UTF_8: LATIN1, NULS: NUL}
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
        form = self.form
        hint = f". They have {form.separator} instead of tabs. To write tabs: {form.repair}"
        raise CorpusError(
            f"{place}, line {line} has no pair: {how}. {unusable} of {total} lines are wrong"
            f"{hint if form.separator else ''}"
        )


def parse(block: Block, counts: LineCounts) -> Split:
    """Return the sources of a block with their targets; add counts of lines to `counts`."""
    split, counts.form = Split([], []), block.form
    if not block.data.strip():
        counts.add("blank", block.first, block.lines)
        return split
    width = None if block.spec.form == "multiref" else 2
    for line, texts in columns_of(block, counts, width):
        targets = [text for text in texts[1:] if text]
        if texts[0] and targets:
            split.sources.append(texts[0])
            split.references.append(targets)
        else:
            counts.add("no pair" if texts[0] or targets else "blank", line)
    counts.usable += len(split.sources)
    return split


def read_split(spec: Spec, blocks: Iterable[Block], notes: bool = True) -> Split:
    """Return the sentences of a SPEC's blocks, read to the end; print the notes on the files.

    `notes`: whether to print them. Raises CorpusError if a file cannot be read, or if the files
    hold no pairs.
    """
    split, counts = Split([], []), LineCounts(spec)
    for block in blocks:
        part = parse(block, counts)
        for note in notes_on(block) if notes and block.first == 1 else ():
            print_note(note)
        split.sources.extend(part.sources)
        split.references.extend(part.references)
        if not counts.usable:
            counts.check()  # fail before the rest is read
    counts.check()
    return replace(split, unusable=counts.unusable)


def columns_of(
    block: Block, counts: LineCounts, width: int | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Yield number and at most `width` columns of each readable line; count other lines."""
    bad: dict[int, str] = {}
    for place, text in enumerate(_decoded(block.data, bad)):
        if place in bad:
            counts.add(bad[place], block.first + place)
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
            bad[place] = NULS
        elif text.encode() != line:
            bad[place] = NO_UTF_8
    return lines


class TrainingSource(NamedTuple):
    """A SPEC with training pairs, and what a pass over its lines found."""

    spec: Spec
    blocks: Callable[[], Iterable[Block]]  # yields the lines
    lines: int  # number of lines
    sample: Block  # about SAMPLE_BYTES of lines, drawn with equal probability, in order
    notes: tuple[str, ...]  # messages for people: parts that are not read
    pair: tuple[str, str]  # the first pair


def survey(spec: Spec, blocks: Callable[[], Iterable[Block]]) -> TrainingSource:
    """Read the blocks of a SPEC once, and return them with their number of lines and a sample.

    Raises CorpusError if the first block has no pair, if a third column, which is not read, tells
    apart the targets of one source, or as `read_blocks` does.
    """
    rng, share, lines, size = random.Random(0), 1.0, 0, 0
    sample: list[bytes] = []
    first: Block | None = None
    pair = ("", "")

    def drawn(lines: Iterable[bytes], share: float) -> list[bytes]:
        return [line for line in lines if rng.random() < share]

    for block in blocks():
        if first is None:
            first = block
            pairs = parse(block, counts := LineCounts(spec)).pairs()
            if not counts.usable:
                counts.check()
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
    has_further_columns = spec.form == "tsv" and _has_further_columns(block)
    notes = list[str]()
    if spec.paths:
        pairs = parse(block, LineCounts(spec)).pairs()
        notes = [*notes_on(first), *number_notes(pairs, spec)]
        if spec.form != "multiref":
            notes += phone_notes(pairs, spec.paths[-1], alone=len(spec.paths) > 1)
    if has_further_columns:
        notes.append(f"{spec}: only the first two columns are read. Choose others: cut -f1,3")
    return TrainingSource(spec, blocks, lines, block, tuple(notes), pair)


def notes_on(first: Block) -> tuple[str, ...]:
    """Return messages for people: unread parts of a file, and a first line like a header."""
    lines = itertools.islice(columns_of(first, LineCounts(first.spec)), MOST_LINES)
    columns = [columns for _, columns in lines]
    notes = [*first.form.notes]
    if columns and has_header(columns, phones=first.form.dictionary is not None):
        notes.append(
            f"{first.spec}: line 1, {' TAB '.join(columns[0])}, is read as a pair. If it is "
            "a header, delete it"
        )
    return tuple(notes)


def _has_further_columns(sample: Block) -> bool:
    """Return whether most pairs have a third column; raise CorpusError if targets depend on it."""
    lines = [columns for _, columns in columns_of(sample, LineCounts(sample.spec))]
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
