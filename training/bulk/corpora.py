"""A prepared corpus is written: what `training.data.prepared` reads.

Text goes through the disk a block at a time: blocks of lines are cleaned, filtered and written
aside, duplicates are found, the tokenizers are trained on a sample, and the blocks become token
ids. Memory does not grow with the corpus.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from training.bulk.cleaning import Beside, Cleaned, Filters, clean_block, part
from training.bulk.duplicates import mark_duplicates
from training.bulk.encoding import Copying, Encoded, encode_block, train_side
from training.bulk.lines import Block, blocks
from training.bulk.workers import Run, workers
from training.command.errors import ConfigError, UserError
from training.command.files import read_json, write_json, written_aside
from training.command.progress import progress, stages
from training.config.schema import Config
from training.data.pair_files import CorpusError, Split
from training.data.pieces import write_state
from training.data.prepared import FORMAT
from training.data.splits import MOST_DEV, held_out, load_split
from training.data.token_files import SIDES, Writer
from training.runs.origin import versions
from training.sources.kinds import KINDS

SAMPLE = 10_000_000  # characters of a side that a tokenizer is trained on


@dataclass(frozen=True)
class Plan:
    """How a corpus is prepared.

    Attributes:
        filters: what to leave out.
        processes: that work at a time; 0 for none but this one.
        sample: characters of a side that its tokenizer is trained on, about.
        tokenizers: a run or a prepared corpus whose tokenizers are taken; None to train new ones.
    """

    filters: Filters
    processes: int = 1
    sample: int = SAMPLE
    tokenizers: Path | None = None


def prepare_corpus(
    output: Path, config: Config, plan: Plan, configure: Callable[[int], Config] | None = None
) -> dict[str, Any]:
    """Write a prepared corpus.

    Args:
        output: its folder, which is new or empty; it is there when it is whole.
        config: what is read and held out, and the tokenizers.
        plan: how.
        configure: where the number of pairs decides, returns the tokenizers' configuration for it.

    Returns:
        The manifest.

    Raises:
        UserError: if the data cannot be read or holds no pair, a tokenizer cannot be trained, or
            the folder cannot be written.
    """
    started = time.monotonic()
    if not KINDS[config.source].tokens:
        raise ConfigError(f"training.prepare expected source = text. Received: {config.source}")
    if config.extra_data:
        raise ConfigError(
            "a prepared corpus expected no extra_data: put all of it into one file. Received: "
            f"{config.extra_data}"
        )
    if config.copy:
        raise ConfigError("a prepared corpus expected copy = false. Received: copy = true")
    with written_aside(output) as folder, workers(plan.processes) as run:
        work = folder / "work"
        work.mkdir()
        found = blocks(config.data, seed=config.seed)
        tasks = cleaning_tasks(plan.filters, held_out(config), work, found)
        cleaned = clean(tasks, run)
        check_pairs(config, cleaned)
        counts = [block.pairs for block in cleaned]
        left_out = sum((block.left_out for block in cleaned), Counter[str]())
        if plan.filters.no_duplicates:
            with stages("looking for duplicates"):
                left_out["duplicate"] = int(np.count_nonzero(mark_duplicates(work, counts)))
        pairs = sum(counts) - left_out["duplicate"]
        config = configure(pairs) if configure else config
        hold_out(config, work, folder, len(cleaned))
        for name in ("dev", "test"):
            file = folder / f"{name}.tsv"
            if not file.is_file() and (name == "dev" or getattr(config, name)):
                _write_split(load_split(config, name)[0], file)
        share = make_tokenizers(config, plan, work, folder, cleaned)
        manifest = {
            "format": FORMAT,
            "data": config.data,
            "pairs": pairs,
            "lines": sum(block.lines for block in cleaned),
            "held_out": sum(block.held_out for block in cleaned),
            "left_out": dict(sorted(left_out.items())),
            "unusable": sum(block.unusable for block in cleaned),
            "filters": plan.filters.asked(),
            "tokenizers_learned_from": share,
            "settings": _settings(config, folder),
            **encode(work, folder, counts, run),
        }
        _gather([part(work, block.number, "left") for block in cleaned], folder / "left_out.tsv.gz")
        shutil.rmtree(work)
        files = sorted(folder.glob("[!.]*"))
        manifest["bytes"] = {file.name: file.stat().st_size for file in files}
        manifest["sha256"] |= {
            file.name: hashlib.sha256(file.read_bytes()).hexdigest()
            for file in files
            if file.name not in manifest["sha256"] and file.suffix != ".gz"
        }
        manifest |= {"seconds": round(time.monotonic() - started, 1), "versions": versions()}
        write_json(folder / "manifest.json", manifest)
    return manifest


def cleaning_tasks(
    filters: Filters,
    shares: tuple[float, float],
    work: Path,
    found: Iterable[Block],
    beside: Beside | None = None,
    first: int = 0,
) -> Iterator[tuple]:
    """Yield the arguments of `clean_block` for blocks that are numbered from `first` on."""
    for number, block in enumerate(found, start=first):
        yield replace(block, number=number), filters, shares, work, beside


def clean(tasks: Iterable[tuple], run: Run) -> list[Cleaned]:
    """Clean all blocks; return what came of each."""
    cleaned: list[Cleaned] = []
    with progress(None, "lines read") as advance:
        for block in run(clean_block, tasks):
            cleaned.append(block)
            advance(block.lines)
    return cleaned


def check_pairs(config: Config, cleaned: Sequence[Cleaned]) -> None:
    """Raise a CorpusError where no pair is left."""
    if any(block.pairs for block in cleaned):
        return
    left_out = sum((block.left_out for block in cleaned), Counter[str]())
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common())
    raise CorpusError(
        f"{config.data} has no pair to learn from: expected source TAB target, both with text; "
        f"lines left out: {reasons or 'none'}"
    )


def hold_out(config: Config, work: Path, folder: Path, count: int) -> None:
    """Write the texts of dev and test of which shares are held out."""
    for name, share in zip(("dev", "test"), held_out(config), strict=True):
        if not share:
            continue
        file = folder / f"{name}.tsv"
        most = None if getattr(config, name) else MOST_DEV
        _gather([part(work, number, name) for number in range(count)], file, most)
        if not file.stat().st_size:
            raise CorpusError(
                f"{config.data} has too few sentences to hold out a dev set or a test set: "
                f"{name} would be empty"
            )


def _write_split(split: Split, file: Path) -> None:
    with file.open("w", encoding="utf-8") as opened:
        for source, references in zip(split.sources, split.references, strict=True):
            opened.write("\t".join([source, *references]) + "\n")


def make_tokenizers(
    config: Config,
    plan: Plan,
    work: Path,
    folder: Path,
    cleaned: Sequence[Cleaned],
    kept: float = 1.0,
) -> float | None:
    """Write the tokenizers; return the share of the pairs that they were trained on, if any.

    `kept` is the share of the pairs that are not skipped.
    """
    if plan.tokenizers:
        for side in SIDES:
            theirs = plan.tokenizers / f"{side}.tokenizer"
            if not theirs.is_file():
                raise UserError(
                    f"--tokenizers expected a run or a prepared corpus. Received: no {theirs}"
                )
            shutil.copyfile(theirs, folder / theirs.name)
        return None
    share = min(1.0, plan.sample / (kept * sum(block.size for block in cleaned)))
    counts = [block.pairs for block in cleaned]
    for number, side in enumerate(SIDES):
        kind, size = getattr(config, f"{side}_tokenizer"), getattr(config, f"{side}_vocab_size")
        task = (work, counts, number, share, config.seed, kind, size)
        # A process of its own, whose memory is free again when it has ended.
        with (
            stages(f"training the tokenizer of the {side} side"),
            workers(min(1, plan.processes)) as run,
        ):
            try:
                (state,) = run(train_side, [task])
            except ValueError as error:
                raise ConfigError(f"{side}_vocab_size={size}: {error}") from error
        if config.copy and side == "source":
            state["copies"] = True
        write_state(folder / f"{side}.tokenizer", state)
    return share


def _settings(config: Config, folder: Path) -> dict[str, Any]:
    """Return the configuration's keys that the corpus decides from now on."""
    found: dict[str, Any] = {}
    for side in SIDES:
        state = read_json(folder / f"{side}.tokenizer")
        size = getattr(config, f"{side}_vocab_size")
        found |= {f"{side}_tokenizer": state["kind"], f"{side}_vocab_size": size}
    return found


def encode(
    work: Path, folder: Path, counts: list[int], run: Run, copying: Copying | None = None
) -> dict[str, Any]:
    """Write the token ids; return what the manifest says of them."""
    sides = [Writer(folder, "train", side) for side in SIDES]
    tokenizers = tuple(folder / f"{side}.tokenizer" for side in SIDES)
    tasks = (
        (work, counts, number, tokenizers, copying) for number, count in enumerate(counts) if count
    )
    with progress(sum(counts), "pairs tokenized") as advance:
        for encoded in run(encode_block, tasks):
            encoded = cast(Encoded, encoded)
            for side, ids, lengths in zip(sides, encoded.ids, encoded.lengths, strict=True):
                if lengths.size:
                    side.add(ids, lengths)
            advance(encoded.lengths[0].size)
    closed = [side.close() for side in sides]
    found: dict[str, Any] = {side: said for side, (said, _) in zip(SIDES, closed, strict=True)}
    return {**found, "sha256": closed[0][1] | closed[1][1]}


def _gather(parts: Iterable[Path], file: Path, most: int | None = None) -> None:
    """Join files, or their first lines, into one."""
    with gzip.open(file, "wb") if file.suffix == ".gz" else file.open("wb") as opened:
        for path in parts:
            with path.open("rb") as text:
                if most is None:
                    shutil.copyfileobj(text, opened)
                    continue
                for line in text:
                    if not most:
                        return
                    opened.write(line)
                    most -= 1
