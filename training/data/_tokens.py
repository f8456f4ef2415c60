"""Convert texts to token ids in one pass, for a run, or once for many runs.

Files are read twice. The first pass counts the lines and draws a sample, on which the tokenizers
are trained. In the second pass, worker processes clean, split and encode blocks of lines, and the
token ids are appended to the arrays. Memory does not grow with the corpus.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path

import numpy as np

from training.command.errors import ConfigError, UserError
from training.command.files import read_json, written_aside
from training.command.progress import print_note, progress, stages
from training.data._encoding import (
    MOST_CHECKED,
    Encoding,
    Pairs,
    Tokenizing,
    encode_block,
    encode_pairs,
    train_side,
    workers,
)
from training.data._lines import MOST_UNUSABLE, Skipped, text_block
from training.data._pair_files import CorpusError
from training.data._prepared import (
    LEARNED,
    WORDS,
    Manifest,
    Prepared,
    tokenizer_files,
    write_manifest,
)
from training.data._specs import PREPARED
from training.data.pieces import write_state
from training.data.splits import HELD_OUT, Divided, Texts, divide, held_out_splits
from training.data.store import SIDES, Sequences, SequenceWriter

SMALL_BYTES = 16 << 20  # with fewer bytes of files, no worker process is started


def prepare_corpus(
    output: Path,
    texts: Texts,
    tokenizing: Tokenizing,
    tokenizers: Path | None = None,
    processes: int | None = None,
) -> Prepared:
    """Write a prepared corpus into a new or empty folder, which appears when it is complete.

    Arguments are the same as for `write_tokens`. Raises ConfigError unless the data are the texts
    of one SPEC, without copied words.
    """
    if texts.data.form == PREPARED:
        raise ConfigError(f"{texts.data} is prepared already. Give texts: --data tsv:FILE")
    for key, wrong in (("extra_data", texts.extra), ("copy", tokenizing.copying)):
        if wrong:
            raise ConfigError(
                f"a prepared corpus cannot have {key}. Put all texts into one file, without copying"
            )
    with written_aside(output) as folder:
        write_tokens(folder, texts, tokenizing, tokenizers, processes)
    return Prepared(output)


def write_tokens(
    folder: Path,
    texts: Texts,
    tokenizing: Tokenizing,
    tokenizers: Path | None = None,
    processes: int | None = None,
) -> Prepared:
    """Write the token ids of texts; for a prepared corpus, only the token ids of dev.

    Args:
        folder: the output, created if needed, without token ids.
        texts: the data and their splits.
        tokenizing: the settings of the tokenizers.
        tokenizers: a folder whose tokenizers are copied; None to train new tokenizers.
        processes: number of workers; None to choose by the size of the texts.

    Raises CorpusError if the data cannot be read or are too few, and ConfigError if a tokenizer
    cannot be trained with these settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    encoding = Encoding(tokenizer_files(folder), tokenizing.copying)
    if texts.data.form == PREPARED:
        tokenizers = texts.data.paths[0]
    if tokenizers is not None:
        _copy_tokenizers(tokenizers, encoding.tokenizers)
    divided = divide(texts)
    parts, (digest, stamps) = divided.parts, texts.stamped()
    if processes is None:
        size = sum(path.stat().st_size for part in parts for path in part.spec.paths)
        processes = 0 if size < SMALL_BYTES else os.cpu_count() or 1
    if tokenizers is None:
        _train_tokenizers(divided, tokenizing, encoding, processes)
    most = 1.0 if tokenizers is None else MOST_UNUSABLE
    for part in parts:
        sampled = divided.division(part).pairs(part.survey.sample, Skipped())
        pairs = [(source, target) for _, source, target in islice(sampled, MOST_CHECKED)]
        # the texts that tokenizers were trained on have no other letters
        encoding.check(part.spec, pairs, most, sources=tokenizers is not None)
    counts, left_out = _encode(folder, divided, encoding, processes)
    for name, split in divided.measured.items():
        (folder / f"{name}.tsv").write_bytes(text_block(name, split).data)
    for name, share in zip(HELD_OUT, divided.shares, strict=True):
        if name == "dev" or share or texts.test:
            # a share of the data may have rare tokens
            most = 1.0 if share else MOST_UNUSABLE
            encoding.check(name, divided.measured[name].pairs(), most)
    _write_dev(folder, divided.measured["dev"].pairs(), encoding)
    settings = {
        f"{side}_{key}": value
        for side, file, size in zip(SIDES, encoding.tokenizers, tokenizing.sizes, strict=True)
        for key, value in (("tokenizer", read_json(file)["kind"]), ("vocab_size", size))
    }
    manifest = Manifest(
        pairs=sum(counts),
        own=sum(counts[:1]),
        settings=settings,
        digest=digest,
        files=stamps,
        data=texts.data.text,
        lines=sum(part.survey.lines for part in parts),
        unusable=left_out.unusable,
        left_out=dict(left_out.reasons),
    )
    write_manifest(folder, manifest)
    return Prepared(folder)


def _encode(
    folder: Path, divided: Divided, encoding: Encoding, processes: int
) -> tuple[list[int], Skipped]:
    """Write the token ids of all training pairs; add the held-out pairs to `divided`.

    Return the number of training pairs of each part, and the counts of lines that are left out.
    """
    counts, left_out = list[int](), Skipped()
    lines = sum(part.survey.lines for part in divided.parts)
    with (
        ExitStack() as stack,
        workers(processes) as run,
        progress(lines, "lines tokenized") as advance,
    ):
        writers = [
            stack.enter_context(closing(SequenceWriter(folder, f"train.{side}"))) for side in SIDES
        ]
        if divided.parts:
            learned = stack.enter_context((folder / LEARNED).open("wb"))
        for part in divided.parts:
            division = divided.division(part)
            skipped, held_out = Skipped(), dict[str, Pairs](dev=[], test=[])
            counts.append(0)
            tasks = ((block, division, encoding) for block in part.blocks())
            for sides, digests, of_splits, others in run(encode_block, tasks):
                learned.write(digests.tobytes())
                for writer, ids in zip(writers, sides, strict=True):
                    writer.add(*ids)
                for name, pairs in of_splits.items():
                    held_out[name] += pairs
                counts[-1] += len(sides[0][1])
                skipped.merge(others)
                advance(others.usable)
            if part.spec.paths:
                skipped.check(part.spec)
            if (shared := skipped.shared) and not division.extra:
                print_note(
                    f"Warning: {part.spec}: the sources of {shared:,} pairs are also in dev or "
                    "test, so scores may be too high"
                )
            if not any(counts):
                raise CorpusError(f"{part.spec} has no pair to train on")
            divided.measured.update(held_out_splits(part.spec, division.shares, held_out))
            left_out.merge(skipped)
    return counts, left_out


def _write_dev(folder: Path, pairs: Pairs, encoding: Encoding) -> None:
    """Write the token ids of dev and, if words are copied, the words that both sides share."""
    if encoding.copying:
        from training.data._token_ids import shared_words
        from training.data.tokenizers import load_tokenizer

        np.save(folder / WORDS, shared_words(*map(load_tokenizer, encoding.tokenizers)))
        encoding = encoding._replace(copying=encoding.copying._replace(hidden=0.0))
    for side, ids in zip(SIDES, encode_pairs(pairs, encoding), strict=True):
        Sequences.of(*ids).save(folder, f"dev.{side}")


def _train_tokenizers(
    divided: Divided, tokenizing: Tokenizing, encoding: Encoding, processes: int
) -> None:
    """Train both tokenizers on samples, and write their files."""
    samples = [(part.survey.sample, divided.division(part)) for part in divided.parts]
    sides = zip(SIDES, encoding.tokenizers, tokenizing.kinds, tokenizing.sizes, strict=True)
    for side, file, kind, size in sides:
        # A separate process, whose memory is freed when the process ends.
        alone = workers(min(1, processes))
        with stages(f"training the tokenizer of the {side} side"), alone as run:
            (state,) = run(train_side, [(samples, side, kind, size)])
        if encoding.copying and side == "source":
            state["copies"] = True
        write_state(file, state)


def _copy_tokenizers(folder: Path, files: Sequence[Path]) -> None:
    for file in files:
        if not (other := folder / file.name).is_file():
            raise UserError(f"--tokenizers needs a run or a prepared corpus: {other} is missing")
        shutil.copyfile(other, file)
