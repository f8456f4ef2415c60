"""Texts become token ids in one pass: for a run, or prepared once for many runs.

Files are read twice. The first time their lines are counted and some are drawn, which the
tokenizers are trained on. The second time blocks of lines are cleaned, held out and encoded by
worker processes, and appended to the arrays. Memory does not grow with the corpus.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

from training.command.errors import ConfigError, UserError
from training.command.files import read_json, written_aside
from training.command.progress import progress, stages
from training.config.schema import Config
from training.data import corpus
from training.data.corpus import is_prepared
from training.data.encoding import (
    BlockEncoding,
    check_targets,
    encode_block,
    encode_pairs,
    pairs_of,
    train_side,
    workers,
)
from training.data.lines import (
    MOST_UNUSABLE,
    Block,
    Skipped,
    files_of,
    read_blocks,
    stamps,
    survey,
    text_block,
)
from training.data.pair_files import CorpusError, Split, merge_sources
from training.data.pieces import write_state
from training.data.prepared import MANIFEST, WORDS, Prepared, tokenizer_files, write_manifest
from training.data.splits import held_out, load_split, too_few
from training.data.store import SIDES, Sequences, SequenceWriter

SMALL_BYTES = 16 << 20  # files with less are read in this process


def prepare_corpus(
    output: Path, config: Config, tokenizers: Path | None = None, processes: int | None = None
) -> Prepared:
    """Write a prepared corpus into a folder, which is new or empty, and there when it is complete.

    Args:
        output: the folder.
        config: names the texts, their splits, and the kinds of tokenizers.
        tokenizers: a folder whose tokenizers are taken; None to train new ones.
        processes: workers; None for as many as the texts are worth.
    """
    for key, value in (("extra_data", config.extra_data), ("copy", config.copy)):
        if value:
            raise ConfigError(
                f"a prepared corpus expected no {key}: put all texts into one file, without "
                f"copying. Received: {value}"
            )
    with written_aside(output) as folder:
        _write(folder, config, tokenizers, processes)
    return Prepared(output)


def write_tokens(folder: Path, config: Config, tokenizers: Path | None = None) -> Prepared:
    """Write the token ids of a run's texts, of a prepared corpus those of dev alone, anew.

    Arguments are those of `prepare_corpus`. Raises CorpusError where the data cannot be read, or
    there are too few, and ConfigError where a tokenizer cannot be trained with these settings.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _write(folder, config, Prepared(config.data).path if is_prepared(config.data) else tokenizers)
    return Prepared(folder)


def digest_of(config: Config, before: Prepared | None = None) -> str:
    """Return a hash of all files that a configuration reads.

    Those of the sizes and times that they had `before` are not read again. Raises CorpusError where
    the data cannot be read.
    """
    files = _files(config)
    if before is not None and before.manifest["files"] == stamps(files):
        return str(before.manifest["digest"])
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _write(
    folder: Path, config: Config, tokenizers: Path | None, processes: int | None = None
) -> None:
    """Make the pass over all texts; arguments are those of `prepare_corpus`."""
    specs, files = _specs(config), tokenizer_files(folder)
    surveys = [survey(spec, _blocks(config, spec)) for spec in specs]
    if processes is None:
        size = sum(file.stat().st_size for spec in specs for file in files_of(spec))
        processes = 0 if size < SMALL_BYTES else os.cpu_count() or 1
    counts, total = Counter(pairs=0, own=0, lines=sum(lines for lines, _ in surveys)), Skipped()
    shares = held_out(config, surveys[0][0] if specs else 0)
    measured = _read_measured(config, shares)
    copying = None
    if config.copy:
        copying = config.copy_hidden, config.max_source_length, config.seed

    def job(spec: str) -> BlockEncoding:
        """Shares of the data are held out, sources that are measured on of extra data."""
        sources = frozenset(text for split in measured.values() for text in split.sources)
        extra = spec != config.data
        return BlockEncoding(
            files, (0.0, 0.0) if extra else shares, sources, extra, config.data, copying
        )

    samples = [(sample, job(spec)) for (_, sample), spec in zip(surveys, specs, strict=True)]
    settings = _make_tokenizers(config, files, tokenizers, samples, processes)
    target = read_json(files[1])
    if not config.copy:  # whose targets may have words of the source alone
        for block, each in samples:
            texts = [text for _, _, text in pairs_of(block, each, Skipped())]
            check_targets(block.spec, texts, target, 1.0 if tokenizers is None else MOST_UNUSABLE)
    with (
        ExitStack() as stack,
        workers(processes) as run,
        progress(counts["lines"], "lines tokenized") as advance,
    ):
        writers: list[SequenceWriter] = []
        for spec in specs:
            skipped, parts = Skipped(), dict[str, list[tuple[str, str]]](dev=[], test=[])
            blocks = ((block, each) for each in [job(spec)] for block in _blocks(config, spec))
            for sides, of_splits, others in run(encode_block, blocks):
                for side, ids in zip(SIDES[len(writers) :], sides, strict=False):
                    writer = SequenceWriter(folder, f"train.{side}", ids[0].dtype)
                    writers.append(stack.enter_context(closing(writer)))
                for writer, ids in zip(writers, sides, strict=True):
                    writer.add(*ids)
                for name, pairs in of_splits.items():
                    parts[name] += pairs
                counts["pairs"] += len(sides[0][1])
                skipped.merge(others)
                advance(others.usable)
            if files_of(spec):
                skipped.check(spec)
            if spec == config.data:
                counts["own"] = counts["pairs"]
                if skipped.shared:
                    print(
                        f"{spec}: {skipped.shared:,} pairs have sources of dev or test", flush=True
                    )
                for (name, pairs), share in zip(parts.items(), shares, strict=True):
                    if share and not pairs:
                        raise too_few(spec, name)
                    if share:
                        sources = [source for source, _ in pairs]
                        measured[name] = merge_sources(
                            Split(sources, [[text] for _, text in pairs])
                        )
            if not counts["pairs"]:
                raise CorpusError(f"{spec} has no pair to learn from")
            total.merge(skipped)
    for name, split in measured.items():
        if name == "dev" or shares[1] or config.test:
            (folder / f"{name}.tsv").write_bytes(text_block(name, split).data)
    if not config.copy:
        most = 1.0 if shares[0] else MOST_UNUSABLE  # a few of the data's own may be rare
        check_targets("dev", [text for _, text in measured["dev"].pairs()], target, most)
    ids_of_dev = encode_pairs(measured["dev"].pairs(), files, copying and (0.0, *copying[1:]))
    for side, ids in zip(SIDES, ids_of_dev, strict=True):
        Sequences.of(*ids).save(folder, f"dev.{side}")
    if copying is not None:
        from training.data.token_ids import shared_words
        from training.data.tokenizers import load_tokenizer

        np.save(folder / WORDS, shared_words(*map(load_tokenizer, files)))
    manifest = {"data": config.data, **counts, "settings": settings}
    manifest |= {"unusable": total.unusable, "left_out": total.reasons}
    manifest |= {"digest": digest_of(config), "files": stamps(_files(config))}
    write_manifest(folder, manifest)


def _read_measured(config: Config, shares: tuple[float, float]) -> dict[str, Split]:
    """Read dev and test, where they are no shares of the data."""
    measured = {} if shares[0] else {"dev": load_split(config, "dev")[0]}
    if not shares[1] and (config.test or config.extra_data):
        with nullcontext() if config.test else suppress(CorpusError):  # a corpus may have none
            measured["test"] = load_split(config, "test")[0]
    return measured


def _make_tokenizers(
    config: Config,
    files: tuple[Path, Path],
    tokenizers: Path | None,
    samples: list[tuple[Block, BlockEncoding]],
    processes: int,
) -> dict[str, Any]:
    """Train both tokenizers on a sample, or copy them; return the keys that they decide."""
    settings: dict[str, Any] = {}
    for side, file in zip(SIDES, files, strict=True):
        kind, size = (getattr(config, f"{side}_{key}") for key in ("tokenizer", "vocab_size"))
        if tokenizers is None:
            # A process of its own, whose memory is free again when it has ended.
            alone = workers(min(1, processes))
            with stages(f"training the tokenizer of the {side} side"), alone as run:
                (state,) = run(train_side, [(samples, side, kind, size)])
            if config.copy and side == "source":
                state["copies"] = True
            write_state(file, state)
        elif (other := tokenizers / file.name).is_file():
            shutil.copyfile(other, file)
        else:
            raise UserError(
                f"--tokenizers expected a run or a prepared corpus. Received: no {other}"
            )
        settings |= {f"{side}_tokenizer": read_json(file)["kind"], f"{side}_vocab_size": size}
    return settings


def _specs(config: Config) -> list[str]:
    """Return what is read as text to learn from."""
    extra = config.extra_data.split()
    for spec in extra:
        if is_prepared(spec) or is_prepared(config.data):
            raise CorpusError(f"extra_data expected texts beside texts. Received: {spec}")
    return [] if is_prepared(config.data) else [config.data, *extra]


def _blocks(config: Config, spec: str) -> Iterator[Block]:
    """Yield the lines of files, or of a named corpus, of whose own a limit draws some."""
    if files_of(spec):
        return read_blocks(spec)
    limit = config.train_limit if spec == config.data else 0
    split = corpus.load(spec, "train", limit=limit or None, seed=config.seed)
    return iter([text_block(spec, split)])


def _files(config: Config) -> list[Path]:
    """Return the files that a configuration reads to learn from and to measure progress on."""
    if is_prepared(config.data):
        folder = Prepared(config.data).path
        files = [folder / MANIFEST, *tokenizer_files(folder)]
    else:
        files = [file for spec in _specs(config) for file in corpus.files_of_training(spec)]
    return files + files_of(config.dev)
