"""Convert texts to token ids in one pass, for a run, or once for many runs.

Files are read twice. The first pass counts the lines and draws a sample, on which the tokenizers
are trained. In the second pass, worker processes clean, split and encode blocks of lines, and the
token ids are appended to the arrays. Memory does not grow with the corpus.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from training.command.errors import ConfigError, RunError, UserError
from training.command.files import read_json, written_aside
from training.command.progress import progress
from training.config.schema import Config
from training.data.read._files import Block
from training.data.read._manifest import Manifest, tokenizer_files, write_manifest
from training.data.read._pairs import MOST_UNUSABLE, LineCounts
from training.data.read._sentences import digest_of
from training.data.read._specs import PREPARED, Spec
from training.data.read._splits import HELD_OUT, SplitRule, SurveyedTexts
from training.data.read.texts import Texts, read_texts
from training.data.tokens._pool import workers
from training.data.tokens._prepared import LEARNED, WORDS, Prepared
from training.data.tokens._vocabularies import (
    MOST_CHECKED,
    Copying,
    Encoding,
    Pairs,
    encode_pairs,
    train_tokenizers,
)
from training.data.tokens.store import SIDES, Ids, Sequences, SequenceWriter

SMALL_BYTES = 16 << 20  # with fewer bytes of files, no worker process is started


class Tokenizing(NamedTuple):
    """The settings of both tokenizers."""

    kinds: tuple[str, str]  # kinds of the source's and the target's tokenizer
    sizes: tuple[int, int]  # largest sizes of their vocabularies
    copying: Copying | None  # None if no words are copied

    def settings(self) -> dict[str, Any]:
        """Return the kinds and the sizes by their configuration keys."""
        sides = zip(SIDES, self.kinds, self.sizes, strict=True)
        pairs = [(side, ("tokenizer", kind), ("vocab_size", size)) for side, kind, size in sides]
        return {f"{side}_{key}": value for side, *each in pairs for key, value in each}

    @classmethod
    def of(cls, config: Config) -> Tokenizing:
        copying = Copying(config.copy_masking, config.max_source_length, config.seed)
        return cls(
            (config.source_tokenizer, config.target_tokenizer),
            (config.source_vocab_size, config.target_vocab_size),
            copying if config.copy else None,
        )


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
        if tokenizers is not None:  # before the data are read
            _checked_tokenizers(tokenizers)
        write_tokens(folder, read_texts(texts), tokenizing, tokenizers, processes)
    return Prepared(output)


def write_tokens(
    folder: Path,
    surveyed: SurveyedTexts,
    tokenizing: Tokenizing,
    tokenizers: Path | None = None,
    processes: int | None = None,
) -> Prepared:
    """Write the token ids of texts; for a prepared corpus, only the token ids of dev.

    Args:
        folder: the output, created if needed, without token ids.
        surveyed: the data and their splits.
        tokenizing: the settings of the tokenizers.
        tokenizers: a folder whose tokenizers are copied; None to train new tokenizers, or to take
            those of a prepared corpus.
        processes: number of workers; None to choose by the size of the texts.

    Raises CorpusError if the data cannot be read or are too few, ConfigError if a tokenizer cannot
    be trained with these settings, and RunError if a prepared corpus has other tokenizers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    encoding = Encoding(tokenizer_files(folder), tokenizing.copying)
    data, sources, measured = surveyed.data, surveyed.sources, surveyed.measured
    given = None if tokenizers is None else _checked_tokenizers(tokenizers)
    if data.form == PREPARED:
        given = _prepared_tokenizers(data, tokenizing, given)
    samples = [(source.sample, surveyed.rule(source)) for source in sources]
    if processes is None:
        size = sum(path.stat().st_size for source in sources for path in source.spec.paths)
        processes = 0 if size < SMALL_BYTES else os.cpu_count() or 1
    if given is None:
        train_tokenizers(samples, encoding, tokenizing.kinds, tokenizing.sizes, processes)
    else:
        for theirs, own in zip(given, encoding.tokenizers, strict=True):
            shutil.copyfile(theirs, own)
    most = 1.0 if given is None else MOST_UNUSABLE
    for sample, rule in samples:
        found = islice(rule.pairs(sample, LineCounts(sample.spec)), MOST_CHECKED)
        pairs = [(source, target) for _, source, target in found]
        # the texts that tokenizers were trained on have no other letters
        encoding.check(sample.spec, pairs, most, sources=given is not None)
    numbers, left_out = _encode(folder, surveyed, encoding, processes)
    for name, split in measured.items():
        (folder / f"{name}.tsv").write_bytes(split.lines())
    for name, share in zip(HELD_OUT, surveyed.shares, strict=True):
        if name == "dev" or share or surveyed.has_test:
            # a share of the data may have rare tokens
            most = 1.0 if share else MOST_UNUSABLE
            encoding.check(name, measured[name].pairs(), most)
    _write_dev(folder, measured["dev"].pairs(), encoding)
    kinds = [read_json(file)["kind"] for file in encoding.tokenizers]
    manifest = Manifest(
        pairs=sum(numbers),
        own=sum(numbers[:1]),
        settings=tokenizing._replace(kinds=(kinds[0], kinds[1])).settings(),
        digest=surveyed.digest,
        files=surveyed.stamps,
        data=data.text,
        lines=sum(source.lines for source in sources),
        unusable=left_out.unusable,
        left_out=dict(left_out.reasons),
    )
    write_manifest(folder, manifest)
    return Prepared(folder, data)


def _prepared_tokenizers(
    data: Spec, tokenizing: Tokenizing, given: tuple[Path, Path] | None
) -> tuple[Path, Path]:
    """Return the tokenizers of a prepared corpus.

    Raises an error if a run has other settings or, if they are `given`, other tokenizers.
    """
    corpus = Prepared(data.paths[0])
    if given is not None:
        files = zip(given, corpus.tokenizers, strict=True)
        if any(theirs.read_bytes() != ours.read_bytes() for theirs, ours in files):
            tokenizers = given[0].parent
            hint = f"prepare the corpus with --tokenizers {tokenizers}"
            raise RunError(f"{tokenizers} and {data} have different tokenizers: {hint}")
    asked = tokenizing.settings()
    for key, value in corpus.manifest.settings.items():
        if (received := asked[key]) != value:
            remedy = f"Add --set {key}={value}"
            raise ConfigError.expected(key, f"{value}, as {data} has it", received, remedy)
    if tokenizing.copying is not None:
        raise ConfigError(f"copy needs texts, but {data} has token ids")
    return corpus.tokenizers


def _checked_tokenizers(folder: Path) -> tuple[Path, Path]:
    """Return the tokenizers of a folder; raise a UserError if one is missing."""
    files = tokenizer_files(folder)
    for file in files:
        if not file.is_file():
            raise UserError(f"--tokenizers needs a run or a prepared corpus: {file} is missing")
    return files


def _encode(
    folder: Path, surveyed: SurveyedTexts, encoding: Encoding, processes: int
) -> tuple[list[int], LineCounts]:
    """Write the token ids of all training pairs; add the held-out pairs to `surveyed`.

    Return the number of training pairs of each source, and the counts of lines that are left out.
    """
    numbers, left_out = list[int](), LineCounts(surveyed.data)
    lines = sum(source.lines for source in surveyed.sources)
    with (
        ExitStack() as stack,
        workers(processes) as run,
        progress(lines, "lines tokenized") as advance,
    ):
        writers = [
            stack.enter_context(closing(SequenceWriter(folder, f"train.{side}"))) for side in SIDES
        ]
        if surveyed.sources:
            learned = stack.enter_context((folder / LEARNED).open("wb"))
        for source in surveyed.sources:
            rule = surveyed.rule(source)
            counts, held_out = LineCounts(source.spec), dict[str, Pairs](dev=[], test=[])
            numbers.append(0)
            tasks = ((block, rule, encoding) for block in source.blocks())
            for sides, digests, of_splits, others in run(encode_block, tasks):
                learned.write(digests.tobytes())
                for writer, ids in zip(writers, sides, strict=True):
                    writer.add(*ids)
                for name, pairs in of_splits.items():
                    held_out[name] += pairs
                numbers[-1] += len(sides[0][1])
                counts.merge(others)
                advance(others.usable)
            surveyed.hold_out(source, counts, held_out, learned=sum(numbers))
            left_out.merge(counts)
    return numbers, left_out


def _write_dev(folder: Path, pairs: Pairs, encoding: Encoding) -> None:
    """Write the token ids of dev and, if words are copied, the words that both sides share."""
    if encoding.copying:
        from training.data.tokens._token_ids import shared_words
        from training.data.tokens.tokenizers import load_tokenizer

        np.save(folder / WORDS, shared_words(*map(load_tokenizer, encoding.tokenizers)))
        encoding = encoding._replace(copying=encoding.copying._replace(hidden=0.0))
    for side, ids in zip(SIDES, encode_pairs(pairs, encoding), strict=True):
        Sequences.of(*ids).save(folder, f"dev.{side}")


def encode_block(
    block: Block, rule: SplitRule, encoding: Encoding
) -> tuple[tuple[Ids, Ids], np.ndarray, dict[str, Pairs], LineCounts]:
    """Encode the training pairs of a block.

    Returns:
        The token ids of both sides, the `digest_of` each source, uint64 `(n,)`, the dev and the
        test pairs, and the counts of lines.
    """
    counts, parts = LineCounts(block.spec), dict[str, Pairs](train=[], dev=[], test=[])
    for split, source, target in rule.pairs(block, counts):
        parts[split].append((source, target))
    pairs = parts.pop("train")
    digests = np.array([digest_of(source.encode()) for source, _ in pairs], np.uint64)
    return encode_pairs(pairs, encoding), digests, parts, counts
