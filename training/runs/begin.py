"""How a run begins: in a directory of its own, with tokenizers, and whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import keras

from training.command.errors import ConfigError, RunError
from training.command.files import write_json
from training.config.load import load_config
from training.config.schema import Config
from training.data.pair_files import Split
from training.data.prepared import Prepared
from training.data.sentences import Sentences
from training.data.tokenizers import Tokenizer, load_tokenizer
from training.data.tokenizing import make_tokenizer
from training.runs.digests import keep_digests
from training.runs.files import RunFiles
from training.runs.origin import Origin, write_origin
from training.runs.run import load_best, load_sides
from training.runs.tokens import keep_tokens, write_tokens
from training.sources.kinds import source_class
from training.sources.pipeline import pair_rows
from training.sources.source import Source
from training.sources.text.copying import shared_words, vocabularies
from training.sources.text.source import TextSource


def check_free(files: RunFiles) -> None:
    """Refuse a directory that holds anything trained or prepared.

    Raises:
        RunError: if there is a run, unless no epoch of it was ever finished.
    """
    checkpoints = files.all_checkpoints()
    trained = files.best.exists() or any(checkpoints)  # epoch 0 is not trained
    if trained or (files.config.is_file() and not checkpoints):
        raise RunError(
            f"{files.path} holds a run already: go on with it by training.train --resume, or "
            "choose another --output"
        )


def saved_config(files: RunFiles) -> Config:
    """Return the configuration of the run that is to go on.

    Raises:
        RunError: if there is no run.
    """
    if not files.config.is_file():
        raise RunError(f"nothing to resume: {files.config} does not exist")
    return load_config(files.config)


def begin(files: RunFiles, source: Source, target: Tokenizer | None, origin: Origin) -> None:
    """Write what a run begins with. `files.config` is not written yet, and makes it a run.

    Raises:
        RunError: if that fails.
    """
    try:
        files.config.unlink(missing_ok=True)  # of a run without a finished epoch
        shutil.rmtree(files.checkpoints, ignore_errors=True)
        source.save(files.path)
        if target is not None:
            target.save(files.tokenizers[1])
        keep_digests(files)
        if source.kind == "text":
            keep_tokens(files)
        write_origin(files, origin)
        write_json(files.history, [])
    except OSError as error:
        raise RunError(f"cannot write to {files.path}: {error.strerror}") from error


def make_sides(
    config: Config, data: Any, init: Path | None = None
) -> tuple[Source, Tokenizer | None]:
    """Return what reads the source, and the tokenizer of a text as target, of `init` or new ones.

    Args:
        config: of the run.
        data: the training split.
        init: the run whose sides are taken.

    Raises:
        RunError: if those of `init` cannot be read.
        ConfigError: if none can be made with these settings.
    """
    if isinstance(data, Prepared):
        return _prepared_sides(config, data, init)
    if init is not None:
        source, target = load_sides(config, RunFiles(init))
        tokenizer = getattr(source, "tokenizer", None)
        if isinstance(tokenizer, Tokenizer) and tokenizer.copies != config.copy:
            raise ConfigError(f"copy expected {tokenizer.copies}, as {init} has it")
        return source, target
    source = source_class(config).make(config, data)
    if config.target == "label":
        return source, None
    lines = [text for references in data.references for text in references]
    kind, size = config.target_tokenizer, config.target_vocab_size
    return source, make_tokenizer("target", kind, size, lines)


def _prepared_sides(
    config: Config, data: Prepared, init: Path | None
) -> tuple[Source, Tokenizer | None]:
    """Return what reads the texts as those of a prepared corpus were read."""
    for key, value in data.settings.items():
        if getattr(config, key) != value:
            raise ConfigError(
                f"{key} expected {value}, as {data.spec} has it. Received: {getattr(config, key)}"
            )
    if config.copy:
        raise ConfigError(f"copy expected texts. Received: {data.spec}, which has token ids")
    if init is not None:
        pairs = zip(RunFiles(init).tokenizers, data.tokenizers, strict=True)
        if any(theirs.read_bytes() != ours.read_bytes() for theirs, ours in pairs):
            raise RunError(
                f"{init} and {data.spec} have different tokenizers: prepare the corpus with "
                f"--tokenizers {init}"
            )
    try:
        source, target = (load_tokenizer(file) for file in data.tokenizers)
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read the tokenizers of {data.spec}: {error}") from error
    return TextSource(source), target


def tokenize_pairs(
    files: RunFiles,
    config: Config,
    data: Split | Prepared,
    dev: Split,
    sides: tuple[Source, Tokenizer],
    corpus: str,
) -> Path:
    """Write the token ids of a run's texts aside, see `training.runs.tokens`; return their folder.

    Args:
        files: of the run.
        config: of the run.
        data: what it learns from; what is prepared has its ids.
        dev: what progress is measured on.
        sides: the source, and the tokenizer of the target.
        corpus: hash of both.

    Raises:
        RunError: if they cannot be written.
    """
    texts = {"dev": dev} if isinstance(data, Prepared) else {"train": data, "dev": dev}
    splits = {name: _ids(config, split, sides, name == "train") for name, split in texts.items()}
    words = shared_words(*vocabularies(*sides)) if config.copy else None
    return write_tokens(files, corpus, splits, words)


def _ids(
    config: Config, split: Split, sides: tuple[Source, Tokenizer], training: bool
) -> tuple[Sentences, Sentences]:
    rows = pair_rows(config, split, *sides, training)
    return cast(tuple[Sentences, Sentences], rows)  # both are texts


def start_from(init: Path, model: keras.Model) -> None:
    """Load the best weights of a run to start from.

    Raises:
        RunError: if they do not fit the model, or cannot be read.
    """
    try:
        load_best(RunFiles(init), model)
    except RunError as error:
        raise RunError(f"cannot start from {init}: {error}") from error
