"""Training from texts, images or histories, with tf.data."""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import keras
import tensorflow as tf

from training.command.errors import RunError
from training.config.load import changed_later
from training.config.schema import Config
from training.data.tokenizers import Tokenizer
from training.fit.callbacks import Bar, EpochEnd
from training.fit.clipping import ClippedAdam
from training.fit.crossentropy import TokenCrossentropy
from training.fit.dev import DevSet, LabelledDevSet
from training.fit.heat_maps import HeatMaps
from training.fit.recorder import Recorder
from training.fit.schedule import make_schedule
from training.model.build import build_model
from training.model.seq2seq import build_attention
from training.runs.begin import (
    begin,
    check_free,
    make_sides,
    saved_config,
    start_from,
    tokenize_pairs,
)
from training.runs.checkpoints import restore_checkpoint, save_checkpoint
from training.runs.files import RunFiles
from training.runs.history import Record, is_complete
from training.runs.lock import locked
from training.runs.origin import Origin, check_corpus, write_origin
from training.runs.run import Run, load_sides
from training.runs.tokens import has_tokens, keep_tokens, read_batches
from training.sources.kinds import source_class
from training.sources.pipeline import Batches, make_batches, make_dataset
from training.sources.source import Source
from training.sources.text.copying import begin_copying
from training.sources.text.source import TextSource

ENOUGH_TO_SCORE = 200  # dev sentences
_UNITS = {"text": "pairs", "image": "images", "events": "examples"}


def train(
    config: Config,
    output: Path,
    resume: bool = False,
    init: Path | None = None,
    force: bool = False,
    changes: Sequence[str] = (),
) -> Record:
    """Train a model into a run directory.

    Args:
        config: what to train on what; a resumed run has its own.
        output: the run directory; made if it is not there.
        resume: go on from the last checkpoint in it.
        init: a run of the same sizes to start from.
        force: go on although the corpus has other sentences than the run began with.
        changes: settings, `KEY=VALUE`, that a resumed run has from now on.

    Returns:
        The last record of the history.

    Raises:
        CorpusError: if the data cannot be read.
        ConfigError: if the configuration does not fit the data.
        RunError: if the run directory cannot be used, or training cannot go on.
    """
    files = RunFiles(output)
    if resume:
        config = changed_later(saved_config(files), changes)
    with locked(files):
        if not resume:
            check_free(files)
        elif changes:
            config.save(files.config)
        return _train(config, files, resume, init, force)


def _train(config: Config, files: RunFiles, resume: bool, init: Path | None, force: bool) -> Record:
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.precision)
    build_attention(config)  # refuses what there is not, before the data are read
    kind = source_class(config)
    data, dev = kind.load_training(config)
    corpus_hash = kind.fingerprint(data, dev)
    if resume:
        check_corpus(files, config.data, corpus_hash, force)
        source, target = load_sides(config, files)
    else:
        source, target = make_sides(config, data, init)
    pairs, dev_pairs = _read(config, files, data, dev, (source, target), corpus_hash, resume)
    unusable = getattr(data, "unusable", 0) + getattr(dev, "unusable", 0)
    del data  # texts, of which the ids are kept

    sizes = source.size, target.vocab_size if target else 0
    model = build_model(config, *sizes)
    source.begin(model)
    if config.copy:
        begin_copying(model, source, target)
    if init is not None:
        start_from(init, model)
    rate = make_schedule(config, pairs.statistics.steps_per_epoch)
    gradient_norm = keras.metrics.Mean()
    model.compile(
        ClippedAdam(rate, config.clip_norm, gradient_norm.update_state),
        _make_loss(config),
        weighted_metrics=[],
        jit_compile=config.jit_compile,
    )
    model.optimizer.build(model.trainable_variables)
    count = dev_pairs.statistics.pairs if target is None else len(dev.sources)
    if config.keep_by == "auto" and target is not None and not resume:
        config = dataclasses.replace(config, keep_by=choose_keep_by(config, count))
    origin = Origin.now(
        config.data, corpus_hash, pairs.statistics, count, sizes, unusable=unusable, init=init
    )
    if resume:
        history = restore_checkpoint(files, model)
        if not files.origin.is_file():  # a run of an older version
            write_origin(files, dataclasses.replace(origin, begun="", command=[]))
    else:
        history = []
        begin(files, source, target, origin)
        save_checkpoint(files, model, history)
        config.save(files.config)
    run = Run(files.path, config, source, target, model)
    _describe(run, origin)

    drawn: list[keras.callbacks.Callback] = []
    dev_set: DevSet | LabelledDevSet
    if target is None:
        dev_set = LabelledDevSet(run, dev)
    else:
        dev_set = DevSet(run, dev, make_dataset(dev_pairs))
        if config.source == "text" and config.attention != "none":
            drawn.append(HeatMaps(run, dev_set.split))
    recorder = Recorder(files, config, model, pairs.statistics, history, dev_set.score)
    if not is_complete(history, config.epochs, config.patience, config.keep_by):
        with Bar() as bar:
            model.fit(
                make_dataset(pairs, start_epoch=len(history)),
                epochs=config.epochs,
                initial_epoch=len(history),
                steps_per_epoch=pairs.statistics.steps_per_epoch,
                callbacks=[
                    bar,
                    EpochEnd(recorder, gradient_norm),
                    keras.callbacks.TerminateOnNaN(),
                    keras.callbacks.TensorBoard(files.tensorboard, write_graph=False),
                    *drawn,
                ],
                shuffle=False,  # the dataset is, anew each epoch
                verbose=0,
            )
    if not history:
        raise RunError("training stopped before the first epoch was finished")
    if config.average_epochs:
        recorder.try_average()
    return history[-1]


def _read(
    config: Config,
    files: RunFiles,
    data: Any,
    dev: Any,
    sides: tuple[Source, Tokenizer | None],
    corpus: str,
    resume: bool,
) -> tuple[Batches, Batches]:
    """Return the batches of the training set and of the dev set.

    Texts are tokenized when a run begins; a run that goes on reads their ids from its directory.
    """
    source, target = sides
    if target is None or source.kind != "text":
        train = make_batches(config, data, source, target, training=True)
        return train, make_batches(config, dev, source, target, training=False)
    tokenizers = cast(TextSource, source).tokenizer.state(), target.state()
    if resume and has_tokens(files, corpus):
        return read_batches(config, files.tokens, tokenizers)
    folder = tokenize_pairs(files, config, data, dev, (source, target), corpus)
    if resume:  # a run of an older version, or on another corpus from now on
        folder = keep_tokens(files)
    return read_batches(config, folder, tokenizers)


def _make_loss(config: Config) -> keras.losses.Loss:
    if config.target == "label":
        return keras.losses.BinaryCrossentropy(from_logits=True)
    return TokenCrossentropy(config.label_smoothing, config.consistency)


def choose_keep_by(config: Config, dev: int) -> str:
    """Return what decides which epoch is kept, for a dev set of so many sentences.

    BLEU of a few sentences is more chance than figure: with 47 of them an epoch with a perplexity
    of 36 was kept, and one with 25 was not.
    """
    translated = min(dev, config.validation_limit or dev)
    return "score" if translated >= ENOUGH_TO_SCORE else "perplexity"


def _describe(run: Run, origin: Origin) -> None:
    devices = tf.config.list_physical_devices("GPU")
    where = f"{len(devices)} GPU" if devices else f"{os.cpu_count()} CPU cores, no GPU"
    unusable = f"{origin.unusable:,} lines without a pair, " if origin.unusable else ""
    by = run.config.metric if run.config.keep_by == "score" else "perplexity"
    chosen = f", the best epoch is chosen by {by}" if run.target else ""
    print(
        f"{run.config.data}: {origin.train:,} {_UNITS[run.config.source]} "
        f"({unusable}{origin.dropped:,} left out as too long or empty), {origin.dev:,} in dev"
        f"{chosen}; "
        f"{run.model.count_params():,} parameters; {where}, "
        f"TensorFlow {tf.__version__}, Keras {keras.__version__}, Python "
        f"{platform.python_version()}. Run directory: {run.path}",
        flush=True,
    )
