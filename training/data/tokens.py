"""Texts become token ids in one pass: for a run, or prepared once for many runs.

Files are read twice. The first time their lines are counted and some are drawn, which the
tokenizers are trained on. The second time blocks of lines are cleaned, held_out out and encoded by
worker processes, and appended to the arrays. Memory does not grow with the corpus.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from training.command.errors import ConfigError, UserError
from training.command.files import read_json, written_aside
from training.command.progress import progress, stages
from training.config.schema import Config
from training.data import corpus
from training.data.encoding import Copying, Job, encode_block, encode_pairs, train_side
from training.data.lines import Block, Skipped, files_of, read_blocks, survey, text_block
from training.data.pair_files import CorpusError, Split, fingerprint, merge_sources
from training.data.pieces import write_state
from training.data.prepared import ROWS, WORDS, Prepared, write_manifest
from training.data.specs import is_prepared
from training.data.splits import held_out, load_split
from training.data.store import SIDES, Sequences, SequenceWriter
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
        config: what is read and held_out out, and the tokenizers.
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
        self.files = folder / f"{SIDES[0]}.tokenizer", folder / f"{SIDES[1]}.tokenizer"
        self.processes = _processes(config) if processes is None else processes
        self.copying: Copying | None = None
        self.measured: dict[str, Split] = {}

    def write(self) -> None:
        config, specs = self.config, _specs(self.config)
        surveys = {}
        for spec in specs:
            surveys[spec] = survey(spec, self._blocks(spec), config.seed)
            for note in surveys[spec].notes:
                print(note, flush=True)
        if self.configure and specs:
            self.config = config = self.configure(surveys[specs[0]].lines)
        shares = held_out(config, surveys[specs[0]].lines if specs else 0)
        self._read_measured(shares)
        if config.copy:
            self.copying = Copying(config.copy_hidden, config.max_source_length, config.seed)
        jobs = {spec: self._job(spec, shares) for spec in specs}
        if self.tokenizers is None:
            samples = [(block, jobs[spec]) for spec in specs for block in surveys[spec].sample]
            self._train_tokenizers(samples)
        else:
            self._take_tokenizers(self.tokenizers)
        digest, counts = hashlib.sha256(), self._encode(specs, shares, surveys)
        for each in counts.pop("digests"):
            digest.update(each)
        _add_dev(digest, config, None if shares[0] else self.measured["dev"])
        for name, split in self.measured.items():
            if name == "dev" or shares[1] or config.test:
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

    def _job(self, spec: str, shares: tuple[float, float]) -> Job:
        """Return how a SPEC is encoded: of the data shares are held out, of extra data sources."""
        own = spec == self.config.data
        measured = [] if own else [split.sources for split in self.measured.values()]
        excluded = frozenset(source for sources in measured for source in sources)
        shares = shares if own else (0.0, 0.0)
        return Job(self.files, shares, excluded, self.config.data, self.copying, self.unique)

    def _read_measured(self, shares: tuple[float, float]) -> None:
        """Read dev and test, where they are no shares of the data."""
        if not shares[0]:
            self.measured["dev"] = load_split(self.config, "dev")[0]
        if not shares[1] and self.config.test:
            self.measured["test"] = load_split(self.config, "test")[0]
        elif not shares[1] and self.config.extra_data:
            with suppress(CorpusError):
                self.measured["test"] = load_split(self.config, "test")[0]

    def _train_tokenizers(self, samples: list[tuple[Block, Job]]) -> None:
        for number, side in enumerate(SIDES):
            kind = getattr(self.config, f"{side}_tokenizer")
            size = getattr(self.config, f"{side}_vocab_size")
            # A process of its own, whose memory is free again when it has ended.
            with (
                stages(f"training the tokenizer of the {side} side"),
                workers(min(1, self.processes)) as run,
            ):
                try:
                    (state,) = run(train_side, [(samples, number, kind, size)])
                except ValueError as error:
                    raise ConfigError(f"{side}_vocab_size={size}: {error}") from error
            if self.config.copy and side == "source":
                state["copies"] = True
            write_state(self.files[number], state)

    def _take_tokenizers(self, folder: Path) -> None:
        for file in self.files:
            if not (folder / file.name).is_file():
                raise UserError(
                    "--tokenizers expected a run or a prepared corpus. Received: no "
                    f"{folder / file.name}"
                )
            shutil.copyfile(folder / file.name, file)

    def _encode(
        self, specs: list[str], shares: tuple[float, float], surveys: dict[str, Any]
    ) -> dict[str, Any]:
        """Write the arrays of all training pairs; return counts for the manifest."""
        writers: list[SequenceWriter] = []
        pairs = own = unusable = 0
        reasons: dict[str, int] = {}
        hashes, digests = [], []
        measured: dict[str, list[tuple[str, str]]] = {"dev": [], "test": []}
        lines = sum(each.lines for each in surveys.values())
        with (
            ExitStack() as stack,
            workers(self.processes) as run,
            progress(lines, "lines tokenized") as advance,
        ):
            for spec in specs:
                job = self._job(spec, shares)
                skipped = Skipped()
                for encoded in run(encode_block, ((block, job) for block in self._blocks(spec))):
                    if not writers:
                        for side, (values, _) in zip(SIDES, encoded.sides, strict=True):
                            writer = SequenceWriter(self.folder, f"train.{side}", values.dtype)
                            writers.append(writer)
                            stack.callback(writer.close)
                    for writer, ids in zip(writers, encoded.sides, strict=True):
                        writer.add(*ids)
                    for name, each in encoded.held_out.items():
                        measured[name] += each
                    hashes.append(encoded.hashes)
                    digests.append(encoded.digest)
                    pairs += len(encoded.sides[0][1])
                    skipped.merge(encoded.skipped)
                    advance(encoded.skipped.usable)
                if files_of(spec):
                    skipped.check(spec)
                for name, share in zip(("dev", "test"), shares, strict=True):
                    if share and spec == specs[0]:
                        self._keep_held_out(name, measured[name])
                own = own or pairs
                unusable += skipped.unusable
                for reason, (count, _) in skipped.reasons.items():
                    reasons[reason] = reasons.get(reason, 0) + count
                if not pairs:
                    raise CorpusError(f"{spec} has no pair to learn from")
        counts = {"pairs": pairs, "own": own, "lines": lines, "unusable": unusable}
        counts |= {"held_out": sum(map(len, measured.values()))}
        more: dict[str, Any] = {"left_out": reasons, "digests": digests}
        if self.unique:
            rows = np.sort(np.unique(np.concatenate(hashes), return_index=True)[1])
            np.save(self.folder / ROWS, rows.astype(np.int32))
            more["repeated"] = pairs - len(rows)
            counts["pairs"] = len(rows)
        return {**counts, **more}

    def _keep_held_out(self, name: str, pairs: list[tuple[str, str]]) -> None:
        if not pairs:
            raise CorpusError(
                f"{self.config.data} has too few sentences to hold out a dev set or a test set: "
                f"{name} would be empty"
            )
        sources, targets = zip(*pairs, strict=True)
        self.measured[name] = merge_sources(Split([*sources], [[target] for target in targets]))

    def _write_measured(self, name: str, split: Split) -> None:
        """Write dev or test as text, and dev as token ids."""
        rows = zip(split.sources, split.references, strict=True)
        text = "".join("\t".join([source, *targets]) + "\n" for source, targets in rows)
        (self.folder / f"{name}.tsv").write_text(text, encoding="utf-8")
        if name == "dev":
            copying = self.copying._replace(hidden=0.0) if self.copying else None
            ids = encode_pairs(split.pairs(), self.files, copying)
            for side, each in zip(SIDES, ids, strict=True):
                Sequences.of(*each).save(self.folder, f"dev.{side}")

    def _write_words(self) -> None:
        """Write which words both vocabularies have, which a new model that copies needs."""
        from training.data.copying import shared_words
        from training.data.tokenizers import load_tokenizer

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
