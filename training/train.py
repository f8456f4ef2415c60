"""Train a model: python -m training.train --preset NAME."""

from __future__ import annotations

import training.quiet  # noqa: F401

import argparse
import json
import os
import platform
import sys
from pathlib import Path

import keras
import tensorflow as tf

from training import corpus
from training.batches import PairBatches, Statistics
from training.checkpoints import restore_checkpoint
from training.cli import add_configuration, configuration, main_guard
from training.clipping import ClippedAdam
from training.config import Config, ConfigError, load_config
from training.heat_maps import HeatMaps
from training.history import is_complete
from training.losses import TokenCrossentropy
from training.model import build_seq2seq
from training.pipeline import make_dataset, tokenize_pairs
from training.prepare import make_output, make_tokenizers
from training.recorder import Recorder
from training.run import Run, RunError
from training.schedule import make_schedule


def train(config: Config, output: Path, resume: bool = False, init: Path | None = None) -> dict:
    """Train a model into a run directory.

    Args:
        config: what to train on what.
        output: the run directory; made if it is not there.
        resume: go on from the last checkpoint in it.
        init: a run of the same sizes to start from.

    Returns:
        The last record of the history.

    Raises:
        CorpusError: if the data cannot be read.
        RunError: if the run directory cannot be used.
    """
    if resume:
        saved = _saved_config(output)
        if saved != config:
            print(f"Going on with the configuration in {output / 'config.toml'}.")
        config = saved
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.precision)
    data, dev = corpus.load_training(config.data, config.train_limit, config.seed)
    if not resume:
        make_output(output, config)
    tokenizers = make_tokenizers(config, output, data.pairs(), init)
    ids, dev_ids = (tokenize_pairs(split.pairs(), tokenizers) for split in (data, dev))
    pairs = PairBatches.of(config, *ids, training=True)
    dev_pairs = PairBatches.of(config, *dev_ids, training=False)

    model = build_seq2seq(config, *(tokenizer.vocab_size for tokenizer in tokenizers))
    run = Run(output, config, *tokenizers, model)
    rate = make_schedule(config, pairs.statistics.steps_per_epoch)
    gradient_norm = keras.metrics.Mean()
    model.compile(
        ClippedAdam(rate, config.clip_norm, gradient_norm.update_state),
        TokenCrossentropy(config.label_smoothing),
        weighted_metrics=[],
        jit_compile=config.jit_compile,
    )
    history = restore_checkpoint(output, model) if resume else []
    if init is not None and not history:
        try:
            model.load_weights(init / "best.weights.h5")
        except (OSError, ValueError) as error:
            raise RunError(f"cannot start from {init}: {str(error).splitlines()[0]}") from error

    _describe(run, pairs.statistics, dev_pairs.statistics.pairs)
    dev_set = make_dataset(dev_pairs)
    recorder = Recorder(run, dev, dev_set, pairs.statistics, history, rate, gradient_norm)
    if not is_complete(history, config.epochs, config.patience):
        model.fit(
            make_dataset(pairs, start_epoch=len(history)),
            epochs=config.epochs,
            initial_epoch=len(history),
            steps_per_epoch=pairs.statistics.steps_per_epoch,
            callbacks=[
                recorder,
                keras.callbacks.TerminateOnNaN(),
                keras.callbacks.TensorBoard(output / "tensorboard", write_graph=False),
                *([HeatMaps(run, recorder.dev)] if config.attention != "none" else []),
            ],
            shuffle=False,  # the dataset is, anew each epoch
            verbose=1 if sys.stdout.isatty() else 2,
        )
    if not history:
        raise RunError("training stopped before the first epoch was finished")
    if config.average_epochs:
        recorder.try_average()
    return history[-1]


def _saved_config(output: Path) -> Config:
    """Return the configuration that the run in `output` began with."""
    there = output / "config.toml"
    if not there.is_file():
        raise RunError(f"nothing to resume: {there} does not exist")
    return load_config(there)


def _describe(run: Run, statistics: Statistics, dev: int) -> None:
    devices = tf.config.list_physical_devices("GPU")
    where = f"{len(devices)} GPU" if devices else f"{os.cpu_count()} CPU cores, no GPU"
    print(
        f"{run.config.data}: {statistics.pairs:,} pairs ({statistics.dropped:,} left out as too "
        f"long or empty), {dev:,} in dev; {run.model.count_params():,} parameters; {where}, "
        f"TensorFlow {tf.__version__}, Keras {keras.__version__}, Python "
        f"{platform.python_version()}. Run directory: {run.path}",
        flush=True,
    )


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m training.train",
        description="Train an encoder-decoder with attention.",
    )
    add_configuration(parser, preset_needed=False)
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: runs/NAME")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on from the last checkpoint in the output, which needs no --preset",
    )
    parser.add_argument("--init", type=Path, metavar="RUN", help="fine-tune from this run")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    options = parse_arguments(arguments)
    if options.preset:
        config = configuration(options)
    elif not (options.resume and options.output) or options.data or options.settings:
        raise ConfigError("say what to train with --preset, or what to resume with --output alone")
    else:
        config = _saved_config(options.output)
    if options.init and not (options.init / "best.weights.h5").is_file():
        raise ConfigError(f"--init expected a trained run. Received: {options.init}")
    output = options.output or Path("runs") / options.preset
    record = train(config, output, options.resume, options.init)
    print(json.dumps({"run": str(output), **record}))


if __name__ == "__main__":
    main_guard(main)
