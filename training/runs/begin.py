"""The beginning of a run, or its resumption: the data and their readers, written whole or not."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import keras

from training.command.errors import ConfigError, RunError
from training.command.files import sync, write_json
from training.config.load import load_config
from training.config.schema import Config
from training.data.batches import Batches
from training.data.pair_files import Split
from training.data.prepared import Prepared, Streamed, is_prepared
from training.data.splits import fitting_metric
from training.data.store import Sequences
from training.data.tokenizers import Tokenizer, load_tokenizer
from training.data.tokenizing import make_tokenizer
from training.runs.checkpoints import save_checkpoint
from training.runs.digests import keep_digests
from training.runs.files import SIDES, RunFiles
from training.runs.origin import Origin, check_corpus, write_origin
from training.runs.run import load_sides
from training.runs.tokens import has_tokens, keep_tokens, read_batches, write_tokens
from training.sources.batches import make_batches, pair_rows
from training.sources.kinds import source_class
from training.sources.source import Source
from training.sources.text.copying import shared_words, vocabularies
from training.sources.text.source import TextSource

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


def saved_config(files: RunFiles) -> Config:
    """Return the configuration of the run that is to go on; a RunError if there is none."""
    if not files.config.is_file():
        raise RunError(f"nothing to resume: {files.config} does not exist")
    return load_config(files.config)


def as_init_reads(config: Config, init: Path) -> Config:
    """Return the configuration with the sizes of the vocabularies of `init`, a run to start from.

    A prepared corpus has its own, which are compared later.

    Raises:
        ConfigError: other kinds of tokenizers are asked for than those of `init`.
        RunError: those of `init` cannot be read.
    """
    if is_prepared(config.data):
        return config
    source, target = load_sides(config, RunFiles(init))
    read = source.tokenizer if isinstance(source, TextSource) else None
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


def open_run(
    files: RunFiles, config: Config, init: Path | None = None, streamed: Streamed | None = None
) -> Opened:
    """Read the data of a new run, and make its readers; token ids are written aside.

    Texts were `streamed`, by their own tokenizers or those of `init`, a run to start from.

    Raises:
        UserError: the data cannot be read, or do not fit the configuration.
    """
    read = _read(config, streamed)
    sides = make_sides(config, read.data, init)
    ids = _keep_ids(files, config, read, sides)
    opened = _opened(config, read, sides, ids, init)
    return opened if opened.target is None else replace(opened, config=_decided(config, opened.dev))


def knows(files: RunFiles, config: Config, corpus: str, force: bool) -> bool:
    """Whether a run that goes on has the token ids of the texts with this hash.

    Raises:
        RunError: it began with others, and `force` does not take these.
    """
    check_corpus(files, config.data, corpus, force)
    return has_tokens(files, corpus)


def reopen(
    files: RunFiles, config: Config, force: bool = False, streamed: Streamed | None = None
) -> Opened:
    """Read the data of a run that goes on; other sentences than it began with need `force`.

    Texts were `streamed`, by the run's own tokenizers where it does not know them.
    """
    read = _read(config, streamed)
    check_corpus(files, config.data, read.corpus, force)
    sides = load_sides(config, files)
    ids: Path | None = files.tokens
    if not has_tokens(files, read.corpus):  # an older version's, or of another corpus until now
        ids = _keep_ids(files, config, read, sides) and keep_tokens(files)
    opened = _opened(config, read, sides, ids)
    shutil.rmtree(files.streamed, ignore_errors=True)
    if not files.origin.is_file():  # a run of an older version
        write_origin(files, replace(opened.origin, begun="", command=[]))
    return opened


def _decided(config: Config, dev: Split) -> Config:
    """Return the configuration with the metric, and the epoch to keep, that the dev set decides.

    BLEU of few sentences is mostly chance: with 47 of them an epoch with a perplexity of 36 was
    kept, and one with 25 was not.
    """
    if config.metric == "auto":
        config = replace(config, metric=fitting_metric(dev.references))
    if config.keep_by == "auto":
        translated = min(len(dev.sources), config.validation_limit or len(dev.sources))
        by = "score" if translated >= ENOUGH_TO_SCORE else "perplexity"
        config = replace(config, keep_by=by)
    return config


def begin(files: RunFiles, opened: Opened, model: keras.Model | None = None) -> None:
    """Write the files of a new run. The configuration, which makes it a run, comes last."""
    try:
        files.config.unlink(missing_ok=True)  # of a run without a finished epoch
        shutil.rmtree(files.checkpoints, ignore_errors=True)
        opened.source.save(files.path)
        if opened.target is not None:
            opened.target.save(files.tokenizers[1])
        keep_digests(files)
        shutil.rmtree(files.streamed, ignore_errors=True)
        if isinstance(opened.source, TextSource):
            keep_tokens(files)
        write_origin(files, opened.origin)
        write_json(files.history, [])
        if model is not None:
            save_checkpoint(files, model, [])
        for file in files.all_sides():
            sync(file)
        opened.config.save(files.config)
    except OSError as error:
        raise RunError(f"cannot write to {files.path}: {error.strerror}") from error


def make_sides(config: Config, data: Any, init: Path | None = None) -> Sides:
    """Return the source and the tokenizer of a text as target: those of `init`, or new ones.

    Raises:
        RunError: those of `init` cannot be read.
        ConfigError: none can be made with these settings.
    """
    if isinstance(data, Prepared):
        return _prepared_sides(config, data, init)
    if isinstance(data, Streamed):
        sides: Sides = _load_tokenizers([data.folder / f"{side}.tokenizer" for side in SIDES])
    elif init is None:
        sides = _new_sides(config, data)
    else:
        sides = load_sides(config, RunFiles(init))
    if init is None:
        _tell_sizes(config, *sides)
    return sides


def _new_sides(config: Config, data: Any) -> Sides:
    source = source_class(config).make(config, data)
    if config.target == "label":
        return source, None
    lines = [text for references in data.references for text in references]
    kind, size = config.target_tokenizer, config.target_vocab_size
    return source, make_tokenizer("target", kind, size, lines)


def _tell_sizes(config: Config, source: Source, target: Tokenizer | None) -> None:
    """Say which vocabularies are smaller than asked for."""
    read = source.tokenizer if isinstance(source, TextSource) else None
    for side, made in zip(SIDES, (read, target), strict=True):
        asked = getattr(config, f"{side}_vocab_size")
        if made is not None and made.vocab_size < asked:
            print(
                f"The {side} side has {made.vocab_size:,} tokens, not {asked:,}: all that its "
                "text gives."
            )


@dataclass(frozen=True)
class _Read:
    """The training set, the dev set, and the hash of both."""

    data: Any
    dev: Any
    corpus: str


def _read(config: Config, streamed: Streamed | None) -> _Read:
    if streamed is not None:
        return _Read(streamed, streamed.dev, streamed.fingerprint)
    kind = source_class(config)
    data, dev = kind.load_training(config)
    return _Read(data, dev, kind.fingerprint(data, dev))


def _keep_ids(files: RunFiles, config: Config, read: _Read, sides: Sides) -> Path | None:
    """Write the token ids of dev aside, beside those of the data; return their folder.

    There are none, nor a folder, where not both sides are texts.
    """
    source, target = sides
    if not isinstance(source, TextSource) or target is None:
        return None
    rows = cast(tuple[Sequences, Sequences], pair_rows(config, read.dev, source, target))
    words = shared_words(*vocabularies(source, target)) if config.copy else None
    train = None
    if isinstance(read.data, Streamed):
        assert read.data.said is not None
        train = (read.data.folder, read.data.said)
    return write_tokens(files, read.corpus, rows, words, train)


def _opened(
    config: Config, read: _Read, sides: Sides, ids: Path | None, init: Path | None = None
) -> Opened:
    """Make the batches, of token `ids` in a folder where both sides are texts."""
    source, target = sides
    batches: tuple[Batches, Batches]
    if ids is None:
        train, dev = (
            make_batches(config, split, source, target, training=training)
            for split, training in ((read.data, True), (read.dev, False))
        )
        batches = train, dev
    else:
        assert isinstance(source, TextSource)
        assert target is not None
        states = source.tokenizer.state(), target.state()
        batches = read_batches(config, ids, states, config.jit_compile)
    pairs, dev_pairs = (made.statistics for made in batches)
    origin = Origin(
        data=config.data,
        corpus=read.corpus,
        train=pairs.pairs,
        dropped=pairs.dropped,
        unusable=getattr(read.data, "unusable", 0) + getattr(read.dev, "unusable", 0),
        dev=dev_pairs.pairs if target is None else len(read.dev.sources),
        target_tokens=pairs.target_tokens,
        vocabulary=(source.size, target.vocab_size if target else 0),
        init=None if init is None else str(init.absolute()),
    )
    return Opened(config, source, target, *batches, read.dev, origin)


def _prepared_sides(config: Config, data: Prepared, init: Path | None) -> Sides:
    """Return the source and the target's tokenizer of a prepared corpus."""
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
    return _load_tokenizers(data.tokenizers)


def _load_tokenizers(paths: Sequence[Path]) -> tuple[TextSource, Tokenizer]:
    try:
        source, target = (load_tokenizer(file) for file in paths)
    except (OSError, ValueError) as error:
        raise RunError(f"cannot read the tokenizers of {paths[0].parent}: {error}") from error
    return TextSource(source), target
