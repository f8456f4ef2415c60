"""Train a model: python -m training.train --preset NAME."""

from __future__ import annotations

import training.quiet  # noqa: F401

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from training import corpus, metrics
from training.cli import main_guard
from training.config import Config, ConfigError, load_config, load_preset, override, preset_names
from training.inference import make_translator
from training.losses import Perplexity, TokenCrossentropy
from training.model import build_seq2seq
from training.pipeline import Statistics, make_dataset
from training.run import (
    SIDES,
    Run,
    RunError,
    load_tokenizers,
    restore_checkpoint,
    save_best,
    save_checkpoint,
    write_text,
)
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
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.precision)
    config = _prepare_output(config, output, resume)
    data, dev = corpus.load_training(config.data, config.train_limit, config.seed)
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
    model.compile(
        keras.optimizers.Adam(_learning_rate(config, steps), global_clipnorm=config.clip_norm),
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
    recorder = Recorder(run, dev, dev_set, statistics, history)
    if len(history) < config.epochs and not recorder.out_of_patience():
        model.fit(
            dataset,
            epochs=config.epochs,
            initial_epoch=len(history),
            steps_per_epoch=statistics.steps_per_epoch,
            callbacks=[
                recorder,
                keras.callbacks.TerminateOnNaN(),
                keras.callbacks.TensorBoard(output / "tensorboard", write_graph=False),
            ],
            shuffle=False,  # the dataset is, anew each epoch
            verbose=1 if sys.stdout.isatty() else 2,
        )
    if not recorder.history:
        raise RunError("training stopped before the first epoch was finished")
    return recorder.history[-1]


class Recorder(keras.callbacks.Callback):
    """After each epoch: score the dev set, keep the checkpoint and the best weights.

    Args:
        run: where to, and what to translate with.
        dev: the dev set, for translations.
        dev_set: its batches, for the perplexity.
        statistics: of the training set.
        history: the records of the epochs done before.
    """

    def __init__(
        self, run: Run, dev: corpus.Split, dev_set: object, statistics: Statistics, history: list
    ) -> None:
        super().__init__()
        self.run, self.dev_set, self.statistics, self.history = run, dev_set, statistics, history
        limit = run.config.validation_limit or len(dev.sources)
        chosen = np.random.default_rng(0).permutation(len(dev.sources))[:limit]
        self.dev = dev.select(sorted(chosen))
        self.translate = make_translator([run], beam_width=1)
        self.perplexity = Perplexity()

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        """Start the clock."""
        self.started = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Score, record and save."""
        seconds = time.perf_counter() - self.started
        self.perplexity.reset_state()
        for inputs, labels in self.dev_set:
            self._add_to_perplexity(inputs, labels)
        hypotheses = self.translate(self.dev.sources)
        scores = metrics.score(self.run.config.metric, hypotheses, self.dev.references)
        record = {
            "epoch": epoch + 1,
            "loss": float(logs["loss"]),
            "val_perplexity": float(self.perplexity.result()),
            **{key: value for key, value in scores.items() if isinstance(value, float)},
            "learning_rate": float(self.model.optimizer.learning_rate),
            "seconds": round(seconds, 1),
            "target_tokens_per_second": round(self.statistics.target_tokens / seconds),
        }
        logs.update({key: value for key, value in record.items() if key != "epoch"})
        self.history.append(record)
        if self._best() is record:
            save_best(self.run.path, self.model)
        save_checkpoint(self.run.path, epoch + 1, self.model, self.history)
        write_text(self.run.path / "history.json", json.dumps(self.history, indent=1) + "\n")
        if self.out_of_patience():
            print(f"No better score for {self.run.config.patience} epochs: training stops.")
            self.model.stop_training = True

    def out_of_patience(self) -> bool:
        """Whether the best epoch lies too far back."""
        patience = self.run.config.patience
        if not patience or not self.history:
            return False
        return self.history[-1]["epoch"] - self._best()["epoch"] >= patience

    def _best(self) -> dict:
        if "wer" in self.history[0]:
            return min(self.history, key=lambda record: record["wer"])
        return max(self.history, key=lambda record: record["bleu"])

    @tf.function(reduce_retracing=True, autograph=False)
    def _add_to_perplexity(self, inputs: dict, labels: tf.Tensor) -> None:
        self.perplexity.update_state(labels, self.run.model(inputs, training=False))


def _prepare_output(config: Config, output: Path, resume: bool) -> Config:
    """Make the run directory; when resuming, return the configuration that the run began with."""
    there = output / "config.toml"
    if resume:
        if not there.is_file():
            raise RunError(f"nothing to resume: {there} does not exist")
        saved = load_config(there)
        if saved != config:
            print(f"Going on with the configuration in {there}.")
        return saved
    if there.exists():
        raise RunError(f"{output} holds a run already: add --resume, or choose another --output")
    try:
        output.mkdir(parents=True, exist_ok=True)
        write_text(output / "history.json", "[]\n")
    except OSError as error:
        raise RunError(f"cannot write to {output}: {error.strerror}") from error
    return config


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


def _learning_rate(config: Config, steps: int) -> object:
    if config.schedule == "constant" and not config.warmup_steps:
        return config.learning_rate
    total = config.epochs * steps
    warmup = min(config.warmup_steps, total // 10)
    return keras.optimizers.schedules.CosineDecay(
        0.0 if warmup else config.learning_rate,
        max(1, total - warmup),
        alpha=1.0 if config.schedule == "constant" else 0.01,
        warmup_target=config.learning_rate if warmup else None,
        warmup_steps=warmup,
    )


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
    parser.add_argument("--preset", required=True, metavar="NAME", help="what to train")
    parser.add_argument("--data", metavar="SPEC", help="a corpus, in place of the preset's")
    parser.add_argument("--output", type=Path, metavar="DIR", help="default: runs/NAME")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change one key of the preset; may be given several times",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on from the last checkpoint in the output"
    )
    parser.add_argument("--init", type=Path, metavar="RUN", help="fine-tune from this run")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    options = parse_arguments(arguments)
    config = override(load_preset(options.preset), options.settings)
    if options.data:
        config = override(config, [f"data={options.data}"])
    if options.init and not (options.init / "best.weights.h5").is_file():
        raise ConfigError(f"--init expected a trained run. Received: {options.init}")
    output = options.output or Path("runs") / options.preset
    record = train(config, output, options.resume, options.init)
    print(json.dumps({"run": str(output), **record}))


if __name__ == "__main__":
    main_guard(main)
