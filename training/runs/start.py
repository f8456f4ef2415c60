"""The start of a run, or its resumption: the data and their readers, written whole or not."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras

from training.command.errors import ConfigError, RunError
from training.command.files import sync, write_json
from training.command.progress import stages
from training.config.schema import Config
from training.data.batches import Batches
from training.data.corpus import is_prepared
from training.data.encoding import train_state
from training.data.prepared import Prepared
from training.data.splits import fitting_metric
from training.data.tokenizers import Tokenizer, tokenizer_of
from training.data.tokens import digest_of, write_tokens
from training.model.build import build_model
from training.model.seq2seq import check_attention
from training.runs.checkpoints import save_checkpoint
from training.runs.files import SIDES, RunFiles
from training.runs.origin import Origin, check_corpus, write_origin
from training.runs.run import load_sides
from training.runs.tokens import move_tokens, read_batches, tokens_of
from training.sources.batches import make_batches
from training.sources.kinds import KINDS, source_class
from training.sources.source import Source

Sides = tuple[Source, Tokenizer | None]
ENOUGH_TO_SCORE = 200  # dev sentences


@dataclass(frozen=True)
class Opened:
    """A run's data and their readers.

    Attributes:
        config: the run's; the dev set has decided its metric and the epoch to keep.
        source: reads the sources.
        target: tokenizer of a text as target; None for a label.
        pairs: batches to train with.
        dev_pairs: batches of the dev set.
        dev: the dev set as it was loaded.
        origin: what the run begins with.
    """

    config: Config
    source: Source
    target: Tokenizer | None
    pairs: Batches
    dev_pairs: Batches
    dev: Any
    origin: Origin


def check_free(files: RunFiles) -> None:
    """Refuse a directory that holds anything trained or prepared."""
    checkpoints = files.all_checkpoints()
    trained = files.best.exists() or any(checkpoints)  # epoch 0 is not trained
    if trained or (files.config.is_file() and not checkpoints):
        raise RunError(
            f"{files.path} holds a run already: go on with it by training.train --resume, or "
            "choose another --output"
        )


def as_init_reads(config: Config, init: Path) -> Config:
    """Return the configuration with the sizes of the vocabularies of `init`, a run to start from.

    A prepared corpus has its own, which must be the same.

    Raises:
        ConfigError: other kinds of tokenizers are asked for than those of `init`.
        RunError: those of `init` cannot be read, or differ from those of a prepared corpus.
    """
    source, target = load_sides(config, RunFiles(init))
    read = getattr(source, "tokenizer", None)
    if read is not None and read.copies != config.copy:
        raise ConfigError(f"copy expected {read.copies}, as {init} has it. Received: {config.copy}")
    if is_prepared(config.data):
        files = zip(RunFiles(init).tokenizers, Prepared(config.data).tokenizers, strict=True)
        if any(theirs.read_bytes() != ours.read_bytes() for theirs, ours in files):
            raise RunError(
                f"{init} and {config.data} have different tokenizers: prepare the corpus with "
                f"--tokenizers {init}"
            )
        return config
    sizes: dict[str, Any] = {}
    for side, tokenizer in zip(SIDES, (read, target), strict=True):
        if tokenizer is None:
            continue
        kind = getattr(config, f"{side}_tokenizer")
        if kind != tokenizer.kind:
            raise ConfigError(
                f"{side}_tokenizer expected {tokenizer.kind}, as {init} has it. Received: {kind}"
            )
        sizes[f"{side}_vocab_size"] = tokenizer.vocab_size
    return replace(config, **sizes)


def open_run(files: RunFiles, config: Config, init: Path | None = None) -> Opened:
    """Read the data of a new run, and make its readers; token ids are written aside.

    Tokenizers are new ones, or those of `init`, a run to start from: see `as_init_reads`.

    Raises:
        UserError: the data cannot be read, or do not fit the configuration.
    """
    if KINDS[config.source].tokens:
        if is_prepared(config.data):
            _check_settings(config, Prepared(config.data))
        tokens = write_tokens(files.streamed, config, init)
        sides = load_sides(config, RunFiles(tokens.path))
        opened = _open_tokens(config, tokens, sides, init)
    else:
        data, dev = source_class(config).load_training(config)
        sides = make_sides(config, data) if init is None else load_sides(config, RunFiles(init))
        opened = _open_examples(config, data, dev, sides, init)
    if init is None:
        _print_sizes(config, *sides)
    return opened if opened.target is None else _decided(opened)


def reopen(files: RunFiles, config: Config, force: bool = False) -> Opened:
    """Read the data of a run that goes on; other sentences than it began with need `force`."""
    sides = load_sides(config, files)
    if not KINDS[config.source].tokens:
        opened = _open_examples(config, *source_class(config).load_training(config), sides)
        check_corpus(files, config.data, opened.origin.corpus, force)
        return opened
    tokens = tokens_of(files)
    digest = digest_of(config, tokens)
    check_corpus(files, config.data, digest, force)
    if tokens is None or tokens.manifest["digest"] != digest:
        write_tokens(files.streamed, config, files.path)
        tokens = Prepared(move_tokens(files))
    return _open_tokens(config, tokens, sides)


def _decided(opened: Opened) -> Opened:
    """Return a run with the metric, and the epoch to keep, that the dev set decides.

    BLEU of few sentences is mostly chance: with 47 of them an epoch with a perplexity of 36 was
    kept, and one with 25 was not.
    """
    config, dev = opened.config, opened.dev
    if config.metric == "auto":
        config = replace(config, metric=fitting_metric(dev.references))
    if config.keep_by == "auto":
        translated = min(len(dev.sources), config.validation_limit or len(dev.sources))
        by = "score" if translated >= ENOUGH_TO_SCORE else "perplexity"
        config = replace(config, keep_by=by)
    return replace(opened, config=config)


def prepare_run(config: Config, output: Path) -> dict[str, int]:
    """Make a run directory with all that training needs; a prepared corpus stays where it is.

    Returns:
        Numbers of pairs, `train` and `dev`.

    Raises:
        CorpusError: if the data cannot be read.
        ConfigError: if the configuration does not fit the data.
        RunError: if the directory cannot be used.
    """
    if not KINDS[config.source].tokens:
        raise ConfigError(f"training.prepare expected source = text. Received: {config.source}")
    files = RunFiles(output)
    with files.locked():
        check_free(files)
        check_attention(config)  # before the data are read
        opened = open_run(files, config)
        build_model(config, *opened.origin.vocabulary)  # finds out now what would fail elsewhere
        write_run(files, opened)
    pairs, dev_pairs = opened.pairs.statistics, opened.dev_pairs.statistics
    return {"train": pairs.pairs + pairs.dropped, "dev": dev_pairs.pairs}


def write_run(files: RunFiles, opened: Opened, model: keras.Model | None = None) -> None:
    """Write the files of a new run. The configuration, which makes it a run, comes last."""
    try:
        files.config.unlink(missing_ok=True)  # of a run without a finished epoch
        shutil.rmtree(files.checkpoints, ignore_errors=True)
        opened.source.save(files.path)
        if opened.target is not None:
            opened.target.save(files.tokenizers[1])
        files.write_digests()
        if KINDS[opened.config.source].tokens:
            move_tokens(files)
        write_origin(files, opened.origin)
        write_json(files.history, [])
        if model is not None:
            save_checkpoint(files, model, [])
        for file in files.all_sides():
            sync(file)
        opened.config.save(files.config)
    except OSError as error:
        raise RunError(f"cannot write to {files.path}: {error.strerror}") from error


def make_sides(config: Config, data: Any) -> Sides:
    """Return the source of examples that are no texts, and a new tokenizer of their targets.

    Raises:
        ConfigError: none can be made with these settings.
    """
    source = source_class(config).make(config, data)
    if config.target == "label":
        return source, None
    lines = [text for references in data.references for text in references]
    kind, size = config.target_tokenizer, config.target_vocab_size
    with stages("training the tokenizer of the target side"):
        state = train_state("target", kind, size, lambda: lines)
    return source, tokenizer_of(state)


def _print_sizes(config: Config, source: Source, target: Tokenizer | None) -> None:
    """Print which vocabularies are smaller than asked for."""
    for side, made in zip(SIDES, (getattr(source, "tokenizer", None), target), strict=True):
        wanted = getattr(config, f"{side}_vocab_size")
        if made is not None and made.vocab_size < wanted:
            print(
                f"The {side} side has {made.vocab_size:,} tokens, not {wanted:,}: all that its "
                "text gives."
            )


def _open_examples(
    config: Config, data: Any, dev: Any, sides: Sides, init: Path | None = None
) -> Opened:
    """Make the batches of examples that are no texts."""
    batches = (
        make_batches(config, data, *sides, training=True),
        make_batches(config, dev, *sides, training=False),
    )
    corpus = source_class(config).fingerprint(data, dev)
    unusable = getattr(data, "unusable", 0) + getattr(dev, "unusable", 0)
    return _opened(config, sides, batches, dev, corpus, unusable, init)


def _open_tokens(
    config: Config, tokens: Prepared, sides: tuple[Any, Any], init: Path | None = None
) -> Opened:
    """Make the batches of token ids."""
    source, target = sides
    states = source.tokenizer.state(), target.state()
    batches = read_batches(config, tokens.path, states)
    dev, manifest = tokens.texts("dev"), tokens.manifest
    unusable = manifest["unusable"] + dev.unusable
    return _opened(config, sides, batches, dev, manifest["digest"], unusable, init)


def _opened(
    config: Config,
    sides: Sides,
    batches: tuple[Batches, Batches],
    dev: Any,
    corpus: str,
    unusable: int,
    init: Path | None,
) -> Opened:
    pairs, dev_pairs = (made.statistics for made in batches)
    source, target = sides
    origin = Origin(
        data=config.data,
        corpus=corpus,
        train=pairs.pairs,
        dropped=pairs.dropped,
        unusable=unusable,
        dev=dev_pairs.pairs if target is None else len(dev.sources),
        target_tokens=pairs.target_tokens,
        vocabulary=(source.size, target.vocab_size if target else 0),
        init=None if init is None else str(init.absolute()),
    )
    return Opened(config, source, target, *batches, dev, origin)


def _check_settings(config: Config, data: Prepared) -> None:
    """Refuse a configuration with other tokenizers than a prepared corpus has."""
    for key, value in data.settings.items():
        if getattr(config, key) != value:
            raise ConfigError(
                f"{key} expected {value}, as {config.data} has it. Received: {getattr(config, key)}"
            )
    if config.copy:
        raise ConfigError(f"copy expected texts. Received: {config.data}, which has token ids")
