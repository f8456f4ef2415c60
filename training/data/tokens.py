"""Texts become token ids in one pass: for a run, or prepared once for many runs.

Files are read twice. The first time their lines are counted and some are drawn, which the
tokenizers are trained on. The second time blocks of lines are cleaned, held out and encoded by
worker processes, and appended to the arrays. Memory does not grow with the corpus.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from training.command.errors import ConfigError, UserError
from training.command.files import read_json, written_aside
from training.command.progress import progress, stages
from training.config.schema import Config
from training.data.encoding import (
    BlockEncoding,
    Copying,
    Pairs,
    Run,
    Tokenizing,
    check_targets,
    encode_block,
    encode_pairs,
    pairs_of,
    train_side,
    workers,
)
from training.data.lines import MOST_UNUSABLE, Block, Skipped, text_block
from training.data.pair_files import CorpusError
from training.data.pieces import write_state
from training.data.prepared import WORDS, Prepared, tokenizer_files, write_manifest
from training.data.specs import PREPARED
from training.data.splits import Part, Texts, divide, held_out_splits
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
    texts = Texts.of(config)
    if texts.data.form == PREPARED:
        raise ConfigError(f"a prepared corpus expected texts. Received: {texts.data}")
    for key, value in (("extra_data", config.extra_data), ("copy", config.copy)):
        if value:
            raise ConfigError(
                f"a prepared corpus expected no {key}: put all texts into one file, without "
                f"copying. Received: {value}"
            )
    with written_aside(output) as folder:
        _write(folder, texts, Tokenizing.of(config), tokenizers, processes)
    return Prepared(output)


def write_tokens(folder: Path, config: Config, tokenizers: Path | None = None) -> Prepared:
    """Write the token ids of a run's texts, of a prepared corpus those of dev alone, anew.

    Arguments are those of `prepare_corpus`. Raises CorpusError where the data cannot be read, or
    there are too few, and ConfigError where a tokenizer cannot be trained with these settings.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    texts = Texts.of(config)
    if texts.data.form == PREPARED:
        tokenizers = texts.data.paths[0]
    _write(folder, texts, Tokenizing.of(config), tokenizers)
    return Prepared(folder)


def _write(
    folder: Path,
    texts: Texts,
    tokenizing: Tokenizing,
    tokenizers: Path | None,
    processes: int | None = None,
) -> None:
    """Make the pass over all texts; arguments are those of `prepare_corpus`."""
    files = tokenizer_files(folder)
    if tokenizers is not None:
        _copy_tokenizers(tokenizers, files)
    parts, shares, measured, stamp = divide(texts)
    lines = sum(part.survey.lines for part in parts)
    if processes is None:
        size = sum(path.stat().st_size for part in parts for path in part.spec.paths)
        processes = 0 if size < SMALL_BYTES else os.cpu_count() or 1

    def job(part: Part) -> BlockEncoding:
        """From the data hold out shares; from extra data leave out sources of dev and test."""
        sources = frozenset(text for split in measured.values() for text in split.sources)
        extra = part is not parts[0]
        held = (0.0, 0.0) if extra else shares
        return BlockEncoding(files, held, sources, extra, texts.data.text, tokenizing.copying)

    samples = [(part.survey.sample, job(part)) for part in parts]
    if tokenizers is None:
        _train_tokenizers(tokenizing, samples, processes)
    target = read_json(files[1])
    if not tokenizing.copying:  # whose targets may have words of the source alone
        for block, sampled in samples:
            answers = [text for _, _, text in pairs_of(block, sampled, Skipped())]
            check_targets(block.spec, answers, target, 1.0 if tokenizers is None else MOST_UNUSABLE)
    counts, left_out = Counter(pairs=0, own=0, lines=lines), Skipped()
    with (
        ExitStack() as stack,
        workers(processes) as run,
        progress(lines, "lines tokenized") as advance,
    ):
        writers = [
            stack.enter_context(closing(SequenceWriter(folder, f"train.{side}"))) for side in SIDES
        ]
        for part in parts:
            count, held_out, skipped = _encode_part(part, job(part), run, writers, advance)
            counts["pairs"] += count
            if part is parts[0]:
                counts["own"] = count
                measured |= held_out_splits(part.spec, shares, held_out)
                if shared := skipped.shared:
                    print(f"{part.spec}: {shared:,} pairs have sources of dev or test", flush=True)
            if not counts["pairs"]:
                raise CorpusError(f"{part.spec} has no pair to learn from")
            left_out.merge(skipped)
    for name, split in measured.items():
        if name == "dev" or shares[1] or texts.test:
            (folder / f"{name}.tsv").write_bytes(text_block(name, split).data)
    dev = measured["dev"].pairs()
    if not tokenizing.copying:
        most = 1.0 if shares[0] else MOST_UNUSABLE  # a few of the data's own may be rare
        check_targets("dev", [text for _, text in dev], target, most)
    _write_dev(folder, dev, files, tokenizing.copying)
    settings = {
        f"{side}_{key}": value
        for side, file, size in zip(SIDES, files, tokenizing.sizes, strict=True)
        for key, value in (("tokenizer", read_json(file)["kind"]), ("vocab_size", size))
    }
    manifest = {"data": texts.data.text, **counts, "settings": settings}
    manifest |= {"unusable": left_out.unusable, "left_out": left_out.reasons}
    write_manifest(folder, manifest | stamp)


def _encode_part(
    part: Part,
    job: BlockEncoding,
    run: Run,
    writers: Sequence[SequenceWriter],
    advance: Callable[[int], None],
) -> tuple[int, dict[str, Pairs], Skipped]:
    """Append the token ids of a part's training pairs to the arrays.

    Return the number of these pairs, the pairs that are held out, and the lines left out.
    """
    count, held_out, skipped = 0, dict[str, Pairs](dev=[], test=[]), Skipped()
    for sides, of_splits, others in run(encode_block, zip(part.blocks(), itertools.repeat(job))):
        for writer, ids in zip(writers, sides, strict=True):
            writer.add(*ids)
        for name, pairs in of_splits.items():
            held_out[name] += pairs
        count += len(sides[0][1])
        skipped.merge(others)
        advance(others.usable)
    if part.spec.paths:
        skipped.check(part.spec)
    return count, held_out, skipped


def _write_dev(
    folder: Path, pairs: Pairs, files: tuple[Path, Path], copying: Copying | None
) -> None:
    """Write the token ids of dev, and of a run that copies the words that both sides have."""
    hidden = copying and (0.0, *copying[1:])  # no name of dev is
    for side, ids in zip(SIDES, encode_pairs(pairs, files, hidden), strict=True):
        Sequences.of(*ids).save(folder, f"dev.{side}")
    if copying:
        from training.data.token_ids import shared_words
        from training.data.tokenizers import load_tokenizer

        np.save(folder / WORDS, shared_words(*map(load_tokenizer, files)))


def _train_tokenizers(
    tokenizing: Tokenizing, samples: list[tuple[Block, BlockEncoding]], processes: int
) -> None:
    """Train both tokenizers on a sample, and write their files."""
    sides = zip(SIDES, samples[0][1].tokenizers, tokenizing.kinds, tokenizing.sizes, strict=True)
    for side, file, kind, size in sides:
        # A process of its own, whose memory is free again when it has ended.
        alone = workers(min(1, processes))
        with stages(f"training the tokenizer of the {side} side"), alone as run:
            (state,) = run(train_side, [(samples, side, kind, size)])
        if tokenizing.copying and side == "source":
            state["copies"] = True
        write_state(file, state)


def _copy_tokenizers(folder: Path, files: Sequence[Path]) -> None:
    for file in files:
        if not (other := folder / file.name).is_file():
            raise UserError(
                f"--tokenizers expected a run or a prepared corpus. Received: no {other}"
            )
        shutil.copyfile(other, file)
