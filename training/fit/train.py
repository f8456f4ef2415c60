"""Training from texts, images or histories, with tf.data."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path

import keras
import tensorflow as tf

from training.command.errors import RunError
from training.command.programs import keep_programs
from training.config.load import changed_later, load_config
from training.config.schema import Config
from training.data.pipeline import make_dataset
from training.fit.callbacks import Bar, EpochEnd, EpochEnds
from training.fit.dev import DevSet, LabelledDevSet
from training.fit.heat_maps import HeatMaps
from training.fit.optimizer import compile_model, configure_keras
from training.fit.recorder import Recorder
from training.model.build import build_model
from training.runs.checkpoints import restore_checkpoint
from training.runs.files import RunFiles
from training.runs.history import Record, reason_to_stop
from training.runs.run import Run, load_best
from training.runs.start import Opened, as_init_reads, check_free, open_run, reopen, write_run
from training.sources.kinds import KINDS
from training.sources.text.source import begin_copying


def train(config: Config, output: Path, init: Path | None = None) -> Record:
    """Train a model into a run directory, which is made if need be; return the last record.

    `init` is a run of the same sizes to start from, whose tokenizers are taken.

    Raises:
        CorpusError: the data cannot be read.
        ConfigError: the configuration does not fit the data.
        RunError: the run directory cannot be used, or training cannot go on.
    """
    files = RunFiles(output)
    with files.locked():
        check_free(files)
        if init is not None:
            config = as_init_reads(config, init)
        configure_keras(config)
        opened = open_run(files, config, init)
        model, gradient_norm = _build(opened)
        opened.source.begin(model)
        if opened.config.copy:
            begin_copying(model, opened.source, opened.target)
        if init is not None:
            load_best(RunFiles(init), model)
        write_run(files, opened, model)
        return _fit(files, opened, model, gradient_norm, [])


def resume(output: Path, changes: Sequence[str] = (), force: bool = False) -> Record:
    """Go on with a run from its last checkpoint, to the same losses as if it had not stopped.

    Args:
        output: the run directory.
        changes: settings, `KEY=VALUE`, that the run has from now on.
        force: go on although the corpus has other sentences than the run began with.

    Raises:
        ConfigError: a key cannot change.
        UserError: as `train`.
    """
    files = RunFiles(output)
    if not files.config.is_file():
        raise RunError(f"nothing to resume: {files.config} does not exist")
    config = changed_later(load_config(files.config), changes)
    with files.locked():
        configure_keras(config)
        opened = reopen(files, config, force)
        model, gradient_norm = _build(opened)
        history = restore_checkpoint(files, model)
        if changes:  # which nothing has refused
            config.save(files.config)
        return _fit(files, opened, model, gradient_norm, history)


def _build(opened: Opened) -> tuple[keras.Model, keras.metrics.Mean]:
    """Return the compiled model, and the mean of its gradient's norm."""
    model = build_model(opened.config, *opened.origin.vocabulary)
    gradient_norm = keras.metrics.Mean()
    steps = opened.pairs.statistics.steps_per_epoch
    compile_model(model, opened.config, steps, gradient_norm.update_state, weighted_metrics=[])
    return model, gradient_norm


def _fit(
    files: RunFiles,
    opened: Opened,
    model: keras.Model,
    gradient_norm: keras.metrics.Mean,
    history: list[Record],
) -> Record:
    """Train the missing epochs, and keep their files."""
    config, pairs = opened.config, opened.pairs
    run = Run(files.path, config, opened.source, opened.target, model)
    _describe(run, opened)
    drawn: list[keras.callbacks.Callback] = []
    dev_set: DevSet | LabelledDevSet
    if run.target is None:
        dev_set = LabelledDevSet(run, opened.dev)
    else:
        dev_set = DevSet(run, opened.dev, make_dataset(opened.dev_pairs))
        if KINDS[config.source].tokens and config.attention != "none":
            drawn.append(HeatMaps(run, dev_set.split))
    recorder = Recorder(files, config, model, pairs.statistics, history, dev_set.score)
    if reason_to_stop(history, config) is None:
        curves = keras.callbacks.TensorBoard(files.tensorboard, write_graph=False)
        with Bar() as bar, EpochEnds(model, [curves, *drawn]) as pictures:
            for epoch in range(len(history), config.epochs):
                model.fit(
                    make_dataset(pairs, epoch),
                    initial_epoch=epoch,
                    epochs=epoch + 1,
                    callbacks=[
                        bar,
                        EpochEnd(recorder, gradient_norm),
                        pictures,
                        keras.callbacks.TerminateOnNaN(),
                    ],
                    shuffle=False,  # the dataset is, anew each epoch
                    verbose=0,
                )
                if reason_to_stop(history, config) is not None:
                    break
        if reason := reason_to_stop(history, config):
            print(f"{reason}: training stops.")
    if not history:
        raise RunError("training stopped before the first epoch was finished")
    if config.average_epochs:
        recorder.try_average()
    return history[-1]


def _describe(run: Run, opened: Opened) -> None:
    """Print the data, the model, the machine and the run directory."""
    config, origin = run.config, opened.origin
    devices = tf.config.list_physical_devices("GPU")
    where = f"{len(devices)} GPU" if devices else f"{os.cpu_count()} CPU cores, no GPU"
    unusable = f"{origin.unusable:,} lines without a pair, " if origin.unusable else ""
    by = config.metric if config.keep_by == "score" else config.keep_by
    chosen = f", the best epoch is chosen by {by}" if run.target else ""
    chosen = ", the last epochs are kept" if by == "last" else chosen
    print(
        f"{config.data}: {origin.train:,} {KINDS[config.source].unit} "
        f"({unusable}{origin.dropped:,} left out as too long or empty), {origin.dev:,} in dev"
        f"{chosen}; {run.model.count_params():,} parameters; {where}, "
        f"TensorFlow {tf.__version__}, Keras {keras.__version__}, Python "
        f"{platform.python_version()}. Run directory: {run.path}",
        flush=True,
    )
    if line := opened.pairs.shapes_line():
        print(line, flush=True)
    if config.compiles():
        folder = keep_programs()
        where = f" and keeps the programs in {folder}" if folder else ""
        print(
            f"XLA compiles the step for each shape{where}: the first minute is for that.",
            flush=True,
        )
