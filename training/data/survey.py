"""The first look at a corpus: its lines are counted, and some drawn to train tokenizers on."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from training.data.lines import Block, Skipped, files_of, parse, rows_of
from training.data.pair_files import CorpusError

SAMPLE_BYTES = 20_000_000
MOST_AMBIGUOUS = 0.5  # share of lines, in a file of three columns, whose source has other targets


class Survey(NamedTuple):
    """The files of a SPEC."""

    lines: int  # how many there are
    sample: Block  # some of them, each drawn with the same probability, in their order
    notes: list[str]  # for people, how the files are read


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
            parse(block, skipped := Skipped())
            if not skipped.usable:
                skipped.check(spec)
        last = block
        count = block.lines
        lines += count
        if not any(map(bytes.strip, block.columns)):
            continue
        columns = [column[:-1].split(b"\n") for column in block.columns]
        places: Sequence[int] = range(count)
        if share < 1:
            places = sorted(rng.sample(places, round(share * count)))
        drawn = [tuple(column[place] for column in columns) for place in places]
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
    together = tuple(b"\n".join(column) + b"\n" for column in zip(*chosen, strict=True))
    sample = Block(last.spec, 1, together, last.quoted)
    return Survey(lines, sample, _notes(sample))


def _notes(sample: Block) -> list[str]:
    """Return the remarks on the columns of a sample."""
    notes = []
    if sample.quoted:
        notes.append(f"{sample.spec}: columns are in quotes, which are not read")
    if not sample.spec.startswith("tsv:"):
        return notes
    rows = [row for _, row in rows_of(sample, Skipped())]
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
