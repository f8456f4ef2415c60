"""Texts become a run's token ids through the disk, without being held in memory: see `corpora`."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from training.bulk.cleaning import SKIPPED, Beside, Cleaned, Filters, part, refuse_wrong
from training.bulk.corpora import (
    Plan,
    check_pairs,
    clean,
    cleaning_tasks,
    encode,
    hold_out,
    make_tokenizers,
)
from training.bulk.encoding import Copying, marked, pairs_of
from training.bulk.lines import Block, blocks
from training.bulk.workers import Run, workers
from training.command.errors import ConfigError
from training.config.schema import Config
from training.data import corpus
from training.data.pair_files import CorpusError, Split, chosen, fingerprint
from training.data.prepared import Streamed, is_prepared, read_texts
from training.data.splits import held_out, load_split
from training.data.token_files import SIDES
from training.runs.files import RunFiles
from training.runs.run import load_sides
from training.sources.kinds import KINDS
from training.sources.text.source import TextSource

SMALL = 16 << 20  # bytes: of files with less, all is done in this process


def stream(
    config: Config,
    folder: Path,
    tokenizers: Path | None = None,
    known: Callable[[str], bool] = lambda found: False,
) -> Streamed | None:
    """Write the tokenizers and the token ids of a run's texts.

    Args:
        config: of the run.
        folder: where they are written; made anew.
        tokenizers: a run whose tokenizers are taken; None to train new ones.
        known: whether the ids of the texts with a hash are there; then none are written.

    Returns:
        What was written; None where there are no texts: images, histories, a prepared corpus.

    Raises:
        CorpusError: if the data cannot be read, or there are too few.
        ConfigError: if a tokenizer cannot be trained with these settings.
        RunError: if those of the run cannot be read.
    """
    if not KINDS[config.source].tokens or is_prepared(config.data):
        return None
    if tokenizers is not None:
        source, _ = load_sides(config, RunFiles(tokenizers))  # refuses what is damaged
        if isinstance(source, TextSource) and source.tokenizer.copies != config.copy:
            raise ConfigError(
                f"copy expected {source.tokenizer.copies}, as {tokenizers} has it. "
                f"Received: {config.copy}"
            )
    shutil.rmtree(folder, ignore_errors=True)
    work = folder / "work"
    work.mkdir(parents=True)
    plan = Plan(Filters(), _processes(config), tokenizers=tokenizers)
    try:
        with workers(plan.processes) as run:
            return _Streaming(config, plan, folder, work, run).run(known)
    finally:  # when no worker writes there any more
        shutil.rmtree(work)


def _processes(config: Config) -> int:
    """Return how many processes share the work: none where there is little of it."""
    size = 0
    for spec in (config.data, *config.extra_data.split()):
        form, _, paths = spec.partition(":")
        for path in paths.split(",") if form == "parallel" else [paths]:
            size += Path(path).stat().st_size if path and Path(path).is_file() else 0
    return 0 if size < SMALL else os.cpu_count() or 1


class _Streaming:
    """The texts of a run on their way; `cleaned` counts the blocks that are cleaned so far."""

    def __init__(self, config: Config, plan: Plan, folder: Path, work: Path, workers: Run) -> None:
        self.config, self.plan, self.workers = config, plan, workers
        self.folder, self.work, self.cleaned = folder, work, list[Cleaned]()

    def run(self, known: Callable[[str], bool]) -> Streamed:
        """Write what `stream` writes."""
        config, work, folder = self.config, self.work, self.folder
        if config.data.endswith(f":{corpus.STDIN}"):
            raise CorpusError(
                f"a run expected data that can be read again. Received: {config.data}"
            )
        self._clean(config.data, blocks(config.data, limit=config.train_limit, seed=config.seed))
        check_pairs(config, self.cleaned)
        hold_out(config, work, folder, len(self.cleaned))
        rows = sum(block.rows for block in self.cleaned)
        dev, test = self._measured("dev"), self._measured("test")
        beside = Beside(config.data, frozenset([*dev.sources, *test.sources]))
        for spec in config.extra_data.split():
            if is_prepared(spec):
                raise CorpusError(f"extra_data expected texts. Received: {spec}")
            self._clean(spec, blocks(spec), beside)
        counts = [block.pairs for block in self.cleaned]
        if corpus.is_file(config.data):  # of a named corpus the rows are drawn as it is read
            _skip(work, self.cleaned, rows, chosen(rows, config.train_limit, config.seed))
        skips = [marked(work, counts, number) for number in range(len(counts))]
        kept = sum(counts) - sum(np.count_nonzero(skip) for skip in skips if skip is not None)
        pairs = itertools.chain.from_iterable(
            pairs_of(work, number, skip) for number, skip in enumerate(skips)
        )
        found = fingerprint(pairs, dev.pairs())
        said = None
        if not known(found):
            make_tokenizers(config, self.plan, work, folder, self.cleaned, kept / sum(counts))
            copying = Copying(config.copy_hidden, config.max_source_length, config.seed)
            encoded = encode(work, folder, counts, self.workers, copying if config.copy else None)
            said = {side: encoded[side] for side in SIDES}
        unusable = sum(block.unusable for block in self.cleaned)
        return Streamed(folder, said, dev, found, unusable)

    def _clean(self, spec: str, found: Iterator[Block], beside: Beside | None = None) -> None:
        """Clean the blocks of a SPEC; a wrong file is told with its line."""
        shares = (0.0, 0.0) if beside else held_out(self.config)
        tasks = cleaning_tasks(
            self.plan.filters, shares, self.work, found, beside, len(self.cleaned)
        )
        cleaned = clean(tasks, self.workers)
        left_out = sum((block.left_out for block in cleaned), Counter[str]())
        refuse_wrong(spec, sum(block.pairs + block.held_out for block in cleaned), left_out)
        self.cleaned += cleaned

    def _measured(self, name: str) -> Split:
        """Return dev, or the test set: nothing where there is none."""
        held = self.folder / f"{name}.tsv"
        if held.is_file():
            return read_texts(held)
        if name == "dev" or self.config.test:
            return load_split(self.config, name)[0]
        if self.config.extra_data:
            with contextlib.suppress(CorpusError):
                return load_split(self.config, name)[0]
        return Split([], [])


def _skip(work: Path, cleaned: Sequence[Cleaned], rows: int, drawn: Sequence[int]) -> None:
    """Mark the pairs of the run's own rows but for those that were drawn, if not all were."""
    if len(drawn) == rows:
        return
    taken = np.zeros(rows, bool)
    taken[np.asarray(drawn)] = True

    def targets() -> Iterator[int]:
        for block in cleaned:
            with part(work, block.number, "train").open("rb") as lines:
                yield from (line.count(b"\t") for line in lines)

    own = np.fromiter(itertools.islice(targets(), rows), np.int64, rows)
    marks = np.memmap(work / SKIPPED, bool, "w+", shape=(sum(block.pairs for block in cleaned),))
    marks[: own.sum()] = np.repeat(~taken, own)
