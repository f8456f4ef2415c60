"""Lines of a corpus are cleaned and filtered before it is tokenised."""

from __future__ import annotations

import functools
import hashlib
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, fields
from io import BytesIO
from pathlib import Path

import numpy as np

from training.bulk.lines import LONGEST, Block, blocks
from training.command.errors import UserError
from training.data import corpus
from training.data.pair_files import MOST_UNUSABLE, Split, clean
from training.data.splits import place

SKIPPED = "skipped"  # of the pairs of all blocks, which are not learned from
_ENOUGH = 0.5  # share of letters


@dataclass(frozen=True)
class Filters:
    """Pairs to leave out.

    Attributes:
        max_characters: those with a longer side; 0 for none.
        max_ratio: those with one side so many times as long as the other, in characters; 0 for
            none.
        no_identical: those whose sides are the same.
        no_duplicates: those that came before.
        source_script: those whose source has less than half of its letters in this script, the
            first word of their Unicode names ("LATIN", "CJK"); several are joined by "+".
        target_script: likewise.
    """

    max_characters: int = 0
    max_ratio: float = 0.0
    no_identical: bool = False
    no_duplicates: bool = False
    source_script: str = ""
    target_script: str = ""

    def __post_init__(self) -> None:
        """Refuse a script that no letter has.

        Raises:
            UserError: naming it.
        """
        for name in (self.source_script, self.target_script):
            for script in filter(None, name.split("+")):
                if script.upper() not in _scripts():
                    raise UserError(
                        "a script expected the first word of its letters' Unicode names, such as "
                        f"LATIN, CYRILLIC, CJK or HIRAGANA+KATAKANA+CJK. Received: {script}"
                    )

    def reason(self, source: str, target: str) -> str | None:
        """Say why a pair is left out, None if it stays. Duplicates are not known here."""
        short, long = sorted((len(source), len(target)))
        if self.max_characters and long > self.max_characters:
            return "too long"
        if self.max_ratio and long > self.max_ratio * short:
            return "ratio"
        if self.no_identical and source == target:
            return "identical sides"
        for text, script in ((source, self.source_script), (target, self.target_script)):
            if script and not _written_in(text, script):
                return "wrong script"
        return None

    def asked(self) -> dict[str, object]:
        """Return those that leave something out."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value}


@dataclass(frozen=True)
class Beside:
    """How data are read that a run learns from beside its own.

    Attributes:
        data: the run's own, as whose targets theirs are written.
        measured: sources to leave out: those of dev and test.
    """

    data: str
    measured: frozenset[str]


@dataclass(frozen=True)
class Cleaned:
    """Counts of a cleaned block.

    Attributes:
        number: of the block.
        lines: in it.
        rows: sources of the training set, each with one target or more.
        pairs: of the training set.
        held_out: pairs for dev and test.
        size: characters of the longer side of the training pairs.
        left_out: lines by the reason; blank ones too.
        unusable: those of them without a pair that can be read.
    """

    number: int
    lines: int
    rows: int
    pairs: int
    held_out: int
    size: int
    left_out: Counter[str]
    unusable: int


def part(folder: Path, number: int, name: str) -> Path:
    """Return where something of a block is kept."""
    return folder / f"{number:06d}.{name}"


def clean_block(
    block: Block,
    filters: Filters,
    shares: tuple[float, float],
    folder: Path,
    beside: Beside | None = None,
) -> Cleaned:
    """Write the pairs of a block into parts `train`, `dev`, `test`, and what is no pair, `left`.

    A line of a part is a source with its targets, between tabs. With `no_duplicates` there is a
    part `hashes`, too: of each training pair 8 bytes, sorted, and `order`, which pair of the block
    each is.
    """
    left_out: Counter[str] = Counter()
    lines, unusable, rows, pairs, held, sizes = 0, 0, 0, 0, 0, [0, 0]
    hashes = array("Q")
    with ExitStack() as stack:
        train, dev, test, left = (
            stack.enter_context(part(folder, block.number, name).open("wb"))
            for name in ("train", "dev", "test", "left")
        )
        for lines, raw in enumerate(_rows(block), start=1):
            source, targets, reason = _read(raw, block.several)
            unusable += reason is not None and reason != "blank"
            if beside and reason is None:
                if source in beside.measured:
                    reason = "measured"
                (targets,) = corpus.written_like(beside.data, Split([], [targets])).references
            reasons = [reason] if reason else [filters.reason(source, text) for text in targets]
            for reason in filter(None, reasons):
                left_out[reason] += 1
                if reason != "blank":
                    number = block.first + lines - 1
                    text = b"\t".join(raw).removesuffix(b"\n").replace(b"\n\t", b"\t")
                    left.write(b"%d\t%s\t%s\n" % (number, reason.encode(), text))
            kept = [text for text, why in zip(targets, reasons, strict=False) if not why]
            if not kept:
                continue
            row = "\t".join([source, *kept]).encode() + b"\n"
            at = place(source) if any(shares) else shares[0]
            if shares[0] <= at < 1 - shares[1]:
                train.write(row)
                rows, pairs = rows + 1, pairs + len(kept)
                sizes = [sizes[0] + len(source) * len(kept), sizes[1] + sum(map(len, kept))]
                if filters.no_duplicates:
                    hashes.extend(_hash(f"{source}\t{text}\n") for text in kept)
            else:
                (dev if at < shares[0] else test).write(row)
                held += len(kept)
    if filters.no_duplicates:
        values = np.array(hashes, np.uint64)
        order = np.argsort(values, kind="stable").astype(np.uint32)
        values[order].tofile(part(folder, block.number, "hashes"))
        order.tofile(part(folder, block.number, "order"))
    return Cleaned(block.number, lines, rows, pairs, held, max(sizes), left_out, unusable)


def read_pairs(spec: str) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a SPEC, without holding them where it names files of pairs.

    Raises:
        CorpusError: as `corpus.load`.
    """
    pairs, left_out = 0, Counter[str]()
    for block in blocks(spec):
        for raw in _rows(block):
            source, targets, reason = _read(raw, block.several)
            if reason:
                left_out[reason] += 1
            pairs += len(targets)
            yield from ((source, target) for target in targets)
    refuse_wrong(spec, pairs, left_out)


def refuse_wrong(spec: str, pairs: int, left_out: Counter[str]) -> None:
    """Raise the error of files that are no pairs, were so many pairs found and lines left out.

    Raises:
        CorpusError: naming the file, and the line.
    """
    unusable = left_out.total() - left_out["blank"] - left_out["measured"]
    most = max(1, MOST_UNUSABLE * (pairs + unusable))
    if not pairs or left_out["not UTF-8"] or unusable > most:
        corpus.load(spec, "train")  # it reads the whole, and can say what is wrong


def _rows(block: Block) -> Iterator[tuple[bytes, ...]]:
    return zip(*(BytesIO(column) for column in block.columns), strict=True)


def _read(raw: tuple[bytes, ...], several: bool) -> tuple[str, list[str], str | None]:
    """Return the source of a line, its targets, and what is wrong with it."""
    if any(len(column) > LONGEST for column in raw):
        return "", [], "line too long"
    try:
        columns = [column.decode() for column in raw]
    except UnicodeDecodeError:
        return "", [], "not UTF-8"
    if len(columns) == 1:
        columns = columns[0].split("\t")
    source, *targets = (clean(column) for column in (columns if several else columns[:2]))
    targets = [target for target in targets if target]
    if source and targets:
        return source, targets, None
    return "", [], "no pair" if any(map(str.strip, columns)) else "blank"


def _hash(pair: str) -> int:
    return int.from_bytes(hashlib.blake2b(pair.encode(), digest_size=8).digest(), "little")


def _written_in(text: str, script: str) -> bool:
    wanted = set(script.upper().split("+"))
    letters = [character for character in text if character.isalpha()]
    found = sum(_script(letter) in wanted for letter in letters)
    return found >= _ENOUGH * len(letters)


@functools.cache
def _script(letter: str) -> str:
    return unicodedata.name(letter, "").split(" ")[0].split("-")[0]


@functools.cache
def _scripts() -> frozenset[str]:
    letters = filter(str.isalpha, map(chr, range(0x20000)))
    return frozenset(unicodedata.name(letter, "").split(" ")[0].split("-")[0] for letter in letters)
