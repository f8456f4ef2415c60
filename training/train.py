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
from training.cli import add_settings, main_guard
from training.clipping import ClippedAdam
from training.config import Config, ConfigError, load_config, load_preset, override, preset_names
from training.heat_maps import HeatMaps
from training.history import is_complete
from training.losses import TokenCrossentropy
from training.model import build_seq2seq
from training.pipeline import Statistics, make_dataset
from training.recorder import Recorder
from training.run import SIDES, Run, RunError, load_tokenizers, restore_checkpoint, write_text
from training.schedule import make_schedule
from training.text import Tokenizer, train_tokenizer


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
        _make_output(output)
    config.save(output / "config.toml")
    sources, targets = zip(*data.pairs(), strict=True)
    source_tokenizer, target_tokenizer = _tokenizers(config, output, sources, targets, init)

    model = build_seq2seq(config, source_tokenizer.vocab_size, target_tokenizer.vocab_size)
    run = Run(output, config, source_tokenizer, target_tokenizer, model)
    limits = {
        "max_source_length": config.max_source_length,
        "max_target_length": config.max_target_length,
        "length_multiple": config.length_multiple,
    }
    steps = max(1, len(sources) // config.batch_size)
    rate = make_schedule(config, steps)
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

    dataset, statistics = make_dataset(
        sources,
        targets,
        source_tokenizer,
        target_tokenizer,
        batch_size=config.batch_size,
        training=True,
        seed=config.seed,
        start_epoch=len(history),
        **limits,
    )
    dev_sources, dev_targets = zip(*dev.pairs(), strict=True)
    dev_set, _ = make_dataset(
        dev_sources,
        dev_targets,
        source_tokenizer,
        target_tokenizer,
        batch_size=config.batch_size,
        training=False,
        **limits,
    )
    _describe(config, output, model, statistics, len(dev_sources))
    recorder = Recorder(run, dev, dev_set, statistics, history, rate, gradient_norm)
    if not is_complete(history, config.epochs, config.patience):
        model.fit(
            dataset,
            epochs=config.epochs,
            initial_epoch=len(history),
            steps_per_epoch=statistics.steps_per_epoch,
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


def _make_output(output: Path) -> None:
    """Make the run directory; a run that is there already may only be resumed."""
    if (output / "config.toml").exists():
        raise RunError(f"{output} holds a run already: add --resume, or choose another --output")
    try:
        output.mkdir(parents=True, exist_ok=True)
        write_text(output / "history.json", "[]\n")
    except OSError as error:
        raise RunError(f"cannot write to {output}: {error.strerror}") from error


def _tokenizers(
    config: Config, output: Path, sources: tuple, targets: tuple, init: Path | None
) -> tuple[Tokenizer, Tokenizer]:
    files = [output / f"{side}.tokenizer" for side in SIDES]
    if all(file.is_file() for file in files):
        return load_tokenizers(output)
    if init is not None:
        made = load_tokenizers(init)
    else:
        print("Training the tokenizers …", flush=True)
        made = tuple(
            train_tokenizer(
                getattr(config, f"{side}_tokenizer"),
                lines,
                getattr(config, f"{side}_vocab_size"),
                **_normalization(config, side),
            )
            for side, lines in zip(SIDES, (sources, targets), strict=True)
        )
    for tokenizer, file in zip(made, files, strict=True):
        aside = file.with_suffix(".writing")
        tokenizer.save(aside)
        aside.replace(file)
    return made


def _normalization(config: Config, side: str) -> dict:
    if getattr(config, f"{side}_tokenizer") != "sentencepiece":
        return {}
    # Whatever way a source is typed, it is read alike; a target keeps its own characters.
    return {"normalization": "nmt_nfkc" if side == "source" else "identity"}


def _describe(
    config: Config, output: Path, model: keras.Model, statistics: Statistics, dev: int
) -> None:
    devices = tf.config.list_physical_devices("GPU")
    where = f"{len(devices)} GPU" if devices else f"{os.cpu_count()} CPU cores, no GPU"
    print(
        f"{config.data}: {statistics.pairs:,} pairs ({statistics.dropped:,} left out as too long "
        f"or empty), {dev:,} in dev; {model.count_params():,} parameters; {where}, "
        f"TensorFlow {tf.__version__}, Keras {keras.__version__}, Python "
        f"{platform.python_version()}. Run directory: {output}",
        flush=True,
    )


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m training.train",
        description="Train an encoder-decoder with attention. "
        f"Presets: {', '.join(preset_names())}.",
    )
    parser.add_argument(
        "--preset", metavar="NAME", help="what to train; not needed for --resume --output DIR"
    )
    parser.add_argument("--data", metavar="SPEC", help="a corpus, in place of the preset's")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: runs/NAME")
    add_settings(parser)
    parser.add_argument(
        "--resume", action="store_true", help="go on from the last checkpoint in the output"
    )
    parser.add_argument("--init", type=Path, metavar="RUN", help="fine-tune from this run")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    options = parse_arguments(arguments)
    settings = [*options.settings, *([f"data={options.data}"] if options.data else [])]
    if options.preset:
        config = override(load_preset(options.preset), settings)
    elif not (options.resume and options.output) or settings:
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
