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
from dataclasses import dataclass, field
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
    """Write a prepared corpus into a folder, which is new or empty, and there when it is complete.

    Args:
        output: the folder.
        config: names the texts, which may be standard input, `tsv:-`, their splits, and the kinds
            of tokenizers.
        tokenizers: a folder whose tokenizers are taken; None to train new ones.
        processes: workers; None for as many as the texts are worth.
        unique: whether pairs that came before are left out.
        configure: returns the configuration for a number of lines.

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
        _Pass(folder, config, tokenizers, processes, unique, configure).write()
    return Prepared(output)


def write_tokens(folder: Path, config: Config, tokenizers: Path | None = None) -> Prepared:
    """Write the token ids of a run's texts, of a prepared corpus those of dev alone, anew.

    Arguments are those of `prepare_corpus`.

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
    _Pass(folder, config, tokenizers).write()
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
    for block in (block for spec in _specs(config) for block in _blocks(config, spec)):
        digest.update(hashlib.sha256(b"\0".join(block.columns)).digest())
    _add_dev(digest, config, None if held_out(config, 1)[0] else load_split(config, "dev")[0])
    return digest.hexdigest()


@dataclass
class _Pass:
    """The pass over all texts, whose arguments are those of `prepare_corpus`.

    Attributes:
        shares: of the data that are held out for dev and test.
        measured: dev and test.
        copying: how words are copied, None where none are.
    """

    folder: Path
    config: Config
    tokenizers: Path | None = None
    processes: int | None = None
    unique: bool = False
    configure: Callable[[int], Config] | None = None
    shares: tuple[float, float] = (0.0, 0.0)
    measured: dict[str, Split] = field(default_factory=dict)
    copying: Copying | None = None

    def __post_init__(self) -> None:
        self.files = tokenizer_files(self.folder)
        self.processes = _processes(self.config) if self.processes is None else self.processes

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
        samples = [each.sample for each in surveys]
        settings = self._make_tokenizers(list(zip(samples, map(self._job, specs), strict=True)))
        digest = hashlib.sha256()
        counts = self._encode(specs, sum(each.lines for each in surveys), digest)
        _add_dev(digest, config, None if self.shares[0] else self.measured["dev"])
        for name, split in self.measured.items():
            if name == "dev" or self.shares[1] or config.test:
                (self.folder / f"{name}.tsv").write_bytes(text_block(name, split).columns[0])
        copying = self.copying and self.copying._replace(hidden=0.0)
        ids = encode_pairs(self.measured["dev"].pairs(), self.files, copying)
        for side, each in zip(SIDES, ids, strict=True):
            Sequences.of(*each).save(self.folder, f"dev.{side}")
        if self.copying is not None:
            self._write_words()
        (self.folder / INPUT).unlink(missing_ok=True)
        manifest = {"data": config.data, **counts, "settings": settings}
        manifest |= {"digest": digest.hexdigest(), "files": _stamps(config)}
        write_manifest(self.folder, manifest)

    def _blocks(self, spec: str) -> Iterator[Block]:
        if _is_stdin(spec):
            spec = f"{spec.partition(':')[0]}:{self.folder / INPUT}"
        return _blocks(self.config, spec)

    def _job(self, spec: str) -> Job:
        """Return how a SPEC is encoded: shares of the data are held out, sources of extra data."""
        splits = [] if spec == self.config.data else self.measured.values()
        excluded = frozenset(source for split in splits for source in split.sources)
        shares = self.shares if spec == self.config.data else (0.0, 0.0)
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

    def _make_tokenizers(self, samples: list[tuple[Block, Job]]) -> dict[str, Any]:
        """Train both tokenizers on a sample, or copy them; return the keys that they decide."""
        settings: dict[str, Any] = {}
        for side, file in zip(SIDES, self.files, strict=True):
            kind, size = (
                getattr(self.config, f"{side}_{key}") for key in ("tokenizer", "vocab_size")
            )
            if self.tokenizers is None:
                # A process of its own, whose memory is free again when it has ended.
                alone = workers(min(1, self.processes or 0))
                with stages(f"training the tokenizer of the {side} side"), alone as run:
                    (state,) = run(train_side, [(samples, side, kind, size)])
                if self.config.copy and side == "source":
                    state["copies"] = True
                write_state(file, state)
            elif (other := self.tokenizers / file.name).is_file():
                shutil.copyfile(other, file)
            else:
                raise UserError(
                    f"--tokenizers expected a run or a prepared corpus. Received: no {other}"
                )
            settings[f"{side}_tokenizer"] = read_json(file)["kind"]
            settings[f"{side}_vocab_size"] = size
        return settings

    def _encode(self, specs: list[str], lines: int, digest: Any) -> dict[str, Any]:
        """Write the arrays of all training pairs; return counts for the manifest."""
        counts = Counter(pairs=0, own=0, lines=lines, unusable=0, held_out=0)
        reasons: Counter[str] = Counter()
        hashes: list[np.ndarray] = []
        with (
            ExitStack() as stack,
            workers(self.processes or 0) as run,
            progress(lines, "lines tokenized") as advance,
        ):
            writers: list[SequenceWriter] = []
            for spec in specs:
                job, skipped = self._job(spec), Skipped()
                parts: dict[str, list[tuple[str, str]]] = {"dev": [], "test": []}
                for encoded in run(encode_block, ((block, job) for block in self._blocks(spec))):
                    for number, ids in enumerate(encoded.sides):
                        if len(writers) == number:
                            name = f"train.{SIDES[number]}"
                            writer = SequenceWriter(self.folder, name, ids[0].dtype)
                            writers.append(stack.enter_context(closing(writer)))
                        writers[number].add(*ids)
                    for name, pairs in encoded.held_out.items():
                        parts[name] += pairs
                    hashes.append(encoded.hashes)
                    digest.update(encoded.digest)
                    counts["pairs"] += len(encoded.sides[0][1])
                    skipped.merge(encoded.skipped)
                    advance(encoded.skipped.usable)
                if files_of(spec):
                    skipped.check(spec)
                for name, share in zip(parts, job.shares, strict=True):
                    if share:
                        self.measured[name] = _merged(spec, name, parts[name])
                if not counts["pairs"]:
                    raise CorpusError(f"{spec} has no pair to learn from")
                counts["own"] = counts["own"] or counts["pairs"]
                counts["unusable"] += skipped.unusable
                counts["held_out"] += sum(map(len, parts.values()))
                reasons.update({reason: count for reason, (count, _) in skipped.reasons.items()})
        if self.unique:
            rows = np.sort(np.unique(np.concatenate(hashes), return_index=True)[1])
            np.save(self.folder / ROWS, rows.astype(np.int32))
            counts["repeated"] = counts["pairs"] - len(rows)
            counts["pairs"] = len(rows)
        return {**counts, "left_out": reasons}

    def _write_words(self) -> None:
        """Write which words both vocabularies have, which a new model that copies needs."""
        from training.data.tokenizers import load_tokenizer
        from training.data.tokenizing import shared_words

        source, target = map(load_tokenizer, self.files)
        np.save(self.folder / WORDS, shared_words(source, target))


def _merged(spec: str, name: str, pairs: list[tuple[str, str]]) -> Split:
    """Return held-out pairs, each source once."""
    if not pairs:
        raise too_few(spec, name)
    sources, targets = zip(*pairs, strict=True)
    return merge_sources(Split([*sources], [[text] for text in targets]))


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
