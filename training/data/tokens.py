"""Texts become token ids in one pass: for a run, or prepared once for many runs.

Files are read twice. The first time their lines are counted and some are drawn, which the
tokenizers are trained on. The second time blocks of lines are cleaned, held out and encoded by
worker processes, and appended to the arrays. Memory does not grow with the corpus.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import numpy as np

from training.command.errors import ConfigError, UserError
from training.command.files import read_json, written_aside
from training.command.progress import progress, stages
from training.config.schema import Config
from training.data import corpus
from training.data.corpus import is_prepared
from training.data.encoding import Copying, Job, encode_block, encode_pairs, train_side
from training.data.lines import Block, Skipped, files_of, read_blocks, text_block
from training.data.pair_files import CorpusError, Split, fingerprint, merge_sources
from training.data.pieces import write_state
from training.data.prepared import ROWS, WORDS, Prepared, tokenizer_files, write_manifest
from training.data.splits import held_out, load_split, too_few
from training.data.store import SIDES, Sequences, SequenceWriter
from training.data.survey import survey
from training.data.workers import workers

INPUT = "input"  # where standard input is written
SMALL_BYTES = 16 << 20  # files with less are read in this process


def prepare_corpus(
    output: Path,
    config: Config,
    *,
    tokenizers: Path | None = None,
    processes: int | None = None,
    unique: bool = False,
    configure: Callable[[int], Config] | None = None,
) -> Prepared:
    """Write a prepared corpus into a folder, which is new or empty, and there when it is whole.

    Arguments are those of `write_tokens`; data may be standard input, `tsv:-`.

    Raises:
        UserError: as `write_tokens`, or the folder cannot be written.
    """
    for key, spec in (("extra_data", config.extra_data), ("copy", config.copy)):
        if spec:
            raise ConfigError(
                f"a prepared corpus expected no {key}: put all texts into one file, without "
                f"copying. Received: {spec}"
            )
    with written_aside(output) as folder:
        if _is_stdin(config.data):
            with (folder / INPUT).open("wb") as file:
                shutil.copyfileobj(sys.stdin.buffer, file)
        _Writer(folder, config, tokenizers, processes, unique, configure).write()
    return Prepared(output)


def write_tokens(folder: Path, config: Config, tokenizers: Path | None = None) -> Prepared:
    """Write the token ids of a run's texts; of a prepared corpus those of dev alone.

    Args:
        folder: made anew.
        config: names the texts, their splits, and the tokenizers.
        tokenizers: a folder whose tokenizers are taken; None to train new ones.

    Raises:
        CorpusError: if the data cannot be read, or there are too few.
        ConfigError: if a tokenizer cannot be trained with these settings.
    """
    if _is_stdin(config.data):
        raise CorpusError(f"a run expected data that can be read again. Received: {config.data}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if is_prepared(config.data):
        if config.extra_data:
            raise CorpusError(f"extra_data expected texts as data. Received: {config.data}")
        tokenizers = Prepared(config.data).path
    _Writer(folder, config, tokenizers).write()
    return Prepared(folder)


def digest_of(config: Config, before: Prepared | None = None) -> str:
    """Return a hash of all texts that a configuration reads.

    Files of the size and time that they had `before` are not read again.

    Raises:
        CorpusError: the data cannot be read.
    """
    files = _stamps(config)
    if before is not None and files and before.manifest["files"] == files:
        return before.manifest["digest"]
    digest = hashlib.sha256()
    for spec in _specs(config):
        for block in _blocks(config, spec):
            digest.update(hashlib.sha256(b"\0".join(block.columns)).digest())
    _add_dev(digest, config, None if _holds_out(config) else load_split(config, "dev")[0])
    return digest.hexdigest()


class _Writer:
    """Writes the token ids of a configuration into a folder."""

    def __init__(
        self,
        folder: Path,
        config: Config,
        tokenizers: Path | None = None,
        processes: int | None = None,
        unique: bool = False,
        configure: Callable[[int], Config] | None = None,
    ) -> None:
        self.folder, self.config, self.configure = folder, config, configure
        self.tokenizers, self.unique = tokenizers, unique
        self.files = tokenizer_files(folder)
        self.processes = _processes(config) if processes is None else processes
        self.copying: Copying | None = None
        self.shares = (0.0, 0.0)
        self.measured: dict[str, Split] = {}

    def write(self) -> None:
        specs = _specs(self.config)
        surveys = [survey(spec, self._blocks(spec), self.config.seed) for spec in specs]
        for note in (note for each in surveys for note in each.notes):
            print(note, flush=True)
        lines = surveys[0].lines if specs else 0
        if self.configure and specs:
            self.config = self.configure(lines)
        config = self.config
        self.shares = held_out(config, lines)
        self._read_measured()
        if config.copy:
            self.copying = Copying(config.copy_hidden, config.max_source_length, config.seed)
        if self.tokenizers is None:
            samples = [
                (each.sample, self._job(spec)) for spec, each in zip(specs, surveys, strict=True)
            ]
            self._train_tokenizers(samples)
        else:
            self._copy_tokenizers(self.tokenizers)
        digest = hashlib.sha256()
        counts = self._encode(specs, sum(each.lines for each in surveys), digest)
        _add_dev(digest, config, None if self.shares[0] else self.measured["dev"])
        for name, split in self.measured.items():
            if name == "dev" or self.shares[1] or config.test:
                self._write_measured(name, split)
        if self.copying is not None:
            self._write_words()
        settings: dict[str, Any] = {}
        for side, file in zip(SIDES, self.files, strict=True):
            settings[f"{side}_tokenizer"] = read_json(file)["kind"]
            settings[f"{side}_vocab_size"] = getattr(config, f"{side}_vocab_size")
        (self.folder / INPUT).unlink(missing_ok=True)
        manifest = {"data": config.data, **counts, "settings": settings}
        manifest |= {"digest": digest.hexdigest(), "files": _stamps(config)}
        write_manifest(self.folder, manifest)

    def _blocks(self, spec: str) -> Iterator[Block]:
        if _is_stdin(spec):
            spec = f"{spec.partition(':')[0]}:{self.folder / INPUT}"
        return _blocks(self.config, spec)

    def _job(self, spec: str) -> Job:
        """Return how a SPEC is encoded: of the data shares are held out, of extra data sources."""
        own = spec == self.config.data
        splits = [] if own else self.measured.values()
        excluded = frozenset(source for split in splits for source in split.sources)
        shares = self.shares if own else (0.0, 0.0)
        return Job(self.files, shares, excluded, self.config.data, self.copying, self.unique)

    def _read_measured(self) -> None:
        """Read dev and test, where they are no shares of the data."""
        dev, test = self.shares
        if not dev:
            self.measured["dev"] = load_split(self.config, "dev")[0]
        if not test and self.config.test:
            self.measured["test"] = load_split(self.config, "test")[0]
        elif not test and self.config.extra_data:
            with suppress(CorpusError):  # a corpus may have none
                self.measured["test"] = load_split(self.config, "test")[0]

    def _train_tokenizers(self, samples: list[tuple[Block, Job]]) -> None:
        for side, file in zip(SIDES, self.files, strict=True):
            kind, size = (getattr(self.config, f"{side}_{k}") for k in ("tokenizer", "vocab_size"))
            # A process of its own, whose memory is free again when it has ended.
            with (
                stages(f"training the tokenizer of the {side} side"),
                workers(min(1, self.processes)) as run,
            ):
                (state,) = run(train_side, [(samples, side, kind, size)])
            if self.config.copy and side == "source":
                state["copies"] = True
            write_state(file, state)

    def _copy_tokenizers(self, folder: Path) -> None:
        for file in self.files:
            if not (folder / file.name).is_file():
                raise UserError(
                    "--tokenizers expected a run or a prepared corpus. Received: no "
                    f"{folder / file.name}"
                )
            shutil.copyfile(folder / file.name, file)

    def _encode(self, specs: list[str], lines: int, digest: Any) -> dict[str, Any]:
        """Write the arrays of all training pairs; return counts for the manifest."""
        pairs = own = unusable = 0
        reasons: Counter[str] = Counter()
        hashes: list[np.ndarray] = []
        parts: dict[str, list[tuple[str, str]]] = {"dev": [], "test": []}
        with (
            ExitStack() as stack,
            workers(self.processes) as run,
            progress(lines, "lines tokenized") as advance,
        ):
            writers: list[SequenceWriter] = []
            for spec in specs:
                job, skipped = self._job(spec), Skipped()
                for encoded in run(encode_block, ((block, job) for block in self._blocks(spec))):
                    for side, ids in zip(SIDES, encoded.sides, strict=True):
                        if len(writers) < len(SIDES):
                            writer = SequenceWriter(self.folder, f"train.{side}", ids[0].dtype)
                            writers.append(stack.enter_context(closing(writer)))
                        writers[SIDES.index(side)].add(*ids)
                    for name, each in encoded.held_out.items():
                        parts[name] += each
                    hashes.append(encoded.hashes)
                    digest.update(encoded.digest)
                    pairs += len(encoded.sides[0][1])
                    skipped.merge(encoded.skipped)
                    advance(encoded.skipped.usable)
                if files_of(spec):
                    skipped.check(spec)
                if spec == specs[0]:
                    self._hold_out(parts)
                own = own or pairs
                unusable += skipped.unusable
                reasons.update({reason: count for reason, (count, _) in skipped.reasons.items()})
                if not pairs:
                    raise CorpusError(f"{spec} has no pair to learn from")
        counts = {"pairs": pairs, "own": own, "lines": lines, "unusable": unusable}
        counts |= {"held_out": sum(map(len, parts.values())), "left_out": reasons}
        if self.unique:
            rows = np.sort(np.unique(np.concatenate(hashes), return_index=True)[1])
            np.save(self.folder / ROWS, rows.astype(np.int32))
            counts |= {"pairs": len(rows), "repeated": pairs - len(rows)}
        return counts

    def _hold_out(self, parts: dict[str, list[tuple[str, str]]]) -> None:
        for name, share in zip(parts, self.shares, strict=True):
            if not share:
                continue
            if not parts[name]:
                raise too_few(self.config.data, name)
            sources, targets = zip(*parts[name], strict=True)
            self.measured[name] = merge_sources(Split([*sources], [[text] for text in targets]))

    def _write_measured(self, name: str, split: Split) -> None:
        """Write dev or test as text, and dev as token ids."""
        text = text_block(name, split).columns[0]
        (self.folder / f"{name}.tsv").write_bytes(text)
        if name == "dev":
            copying = self.copying._replace(hidden=0.0) if self.copying else None
            ids = encode_pairs(split.pairs(), self.files, copying)
            for side, each in zip(SIDES, ids, strict=True):
                Sequences.of(*each).save(self.folder, f"dev.{side}")

    def _write_words(self) -> None:
        """Write which words both vocabularies have, which a new model that copies needs."""
        from training.data.tokenizers import load_tokenizer
        from training.data.tokenizing import shared_words

        source, target = map(load_tokenizer, self.files)
        np.save(self.folder / WORDS, shared_words(source, target))


def _specs(config: Config) -> list[str]:
    """Return what is read as text to learn from."""
    if is_prepared(config.data):
        return []
    for spec in config.extra_data.split():
        if is_prepared(spec):
            raise CorpusError(f"extra_data expected texts. Received: {spec}")
    return [config.data, *config.extra_data.split()]


def _blocks(config: Config, spec: str) -> Iterator[Block]:
    """Yield the lines of files, or of a named corpus, of whose own a limit draws some."""
    if files_of(spec):
        return read_blocks(spec)
    limit = config.train_limit if spec == config.data else 0
    split = corpus.load(spec, "train", limit=limit or None, seed=config.seed)
    return iter([text_block(spec, split)])


def _holds_out(config: Config) -> bool:
    """Whether dev is a share of the data."""
    return held_out(config, 1)[0] > 0


def _add_dev(digest: Any, config: Config, dev: Split | None) -> None:
    """Add to a hash what is read beside the texts to learn from."""
    if is_prepared(config.data):
        there = Prepared(config.data)
        digest.update(there.manifest["digest"].encode())
        for file in there.tokenizers:
            digest.update(file.read_bytes())
    if dev is not None:
        digest.update(fingerprint(dev.pairs()).encode())


def _stamps(config: Config) -> dict[str, list[int]]:
    """Return size and time of all files that are read, by their paths."""
    specs = [config.data, *config.extra_data.split(), config.dev, config.test]
    files = [file for spec in specs for file in files_of(spec)]
    complete = all(files_of(spec) for spec in _specs(config)) and not is_prepared(config.data)
    if not complete:  # of a named corpus the files are not known here
        return {}
    stats = {str(file): file.stat() for file in files if file.exists()}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def _is_stdin(spec: str) -> bool:
    return spec.endswith(f":{corpus.STDIN}")


def _processes(config: Config) -> int:
    """Return how many processes share the work: none where there is little of it."""
    files = [file for spec in (config.data, *config.extra_data.split()) for file in files_of(spec)]
    size = sum(file.stat().st_size for file in files if file.is_file())
    return 0 if size < SMALL_BYTES else os.cpu_count() or 1
