"""Train from prepared token ids: KERAS_BACKEND=jax python -m training.train_arrays RUN.

TensorFlow is not imported, so that this runs wherever JAX or PyTorch find a GPU, with Keras, NumPy
and h5py alone. What it leaves in the run directory is what `training.train` leaves, and is used by
TensorFlow alike: evaluated, exported, served. The epoch with the lowest perplexity on dev is kept,
since to translate takes the tokenizers, which are TensorFlow's.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np

from training.batches import PairBatches, Sentences
from training.checkpoints import restore_checkpoint, save_best, save_checkpoint, write_text
from training.cli import main_guard
from training.clipping import ClippedAdam
from training.config import Config, load_config
from training.errors import UserError
from training.history import best, is_complete
from training.losses import Perplexity, TokenCrossentropy
from training.model import build_seq2seq
from training.schedule import Plateau, make_schedule

TOKENS = "tokens.npz"


def train_arrays(path: Path) -> dict:
    """Train a prepared run, or go on with it.

    Args:
        path: the run directory, made by `training.prepare`.

    Returns:
        The last record of the history.

    Raises:
        UserError: if the directory has not been prepared, or training does not get far enough.
    """
    config, tokens = read_tokens(path)
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.precision)
    sizes = [int(tokens[f"{side}_vocab_size"]) for side in ("source", "target")]
    model = build_seq2seq(config, *sizes)
    pairs = token_batches(tokens, "", config, training=True)
    dev = token_batches(tokens, "dev_", config, training=False)
    steps = pairs.statistics.steps_per_epoch
    rate = make_schedule(config, steps)
    on_jax = keras.backend.backend() == "jax"  # where nothing but what is compiled is quick
    model.compile(
        ClippedAdam(rate, config.clip_norm),
        TokenCrossentropy(config.label_smoothing),
        jit_compile=True if on_jax else config.jit_compile,
    )
    judge = keras.Model(model.input, model.output)
    judge.compile(loss=TokenCrossentropy(), metrics=[Perplexity()], jit_compile=on_jax)
    history = restore_checkpoint(path, model)
    print(
        f"{config.data}: {pairs.statistics.pairs:,} pairs, {dev.statistics.pairs:,} in dev; "
        f"{model.count_params():,} parameters; {keras.backend.backend()}, Keras "
        f"{keras.__version__}. Run directory: {path}",
        flush=True,
    )
    while not is_complete(history, config.epochs, config.patience):
        epoch = len(history)
        if isinstance(rate, Plateau) and rate.follow(history):
            model.make_train_function(force=True)  # on JAX, the rate is a constant of the old one
        started = time.perf_counter()
        fitted = model.fit(
            pairs.epoch(epoch),
            initial_epoch=epoch,
            epochs=epoch + 1,
            steps_per_epoch=steps,
            callbacks=[keras.callbacks.TerminateOnNaN()],
            verbose=1 if sys.stdout.isatty() else 2,
        )
        seconds = time.perf_counter() - started
        loss = fitted.history["loss"][0]
        if not np.isfinite(loss):
            raise UserError(f"the loss is {loss} in epoch {epoch + 1}: training stops")
        scores = judge.evaluate(
            dev.epoch(), steps=dev.statistics.steps_per_epoch, verbose=0, return_dict=True
        )
        history.append(
            {
                "epoch": epoch + 1,
                "loss": float(loss),
                "val_perplexity": float(scores["perplexity"]),
                "learning_rate": float(model.optimizer.learning_rate),
                "seconds": round(seconds, 1),
                "target_tokens_per_second": round(pairs.statistics.target_tokens / seconds),
            }
        )
        print(json.dumps(history[-1]), flush=True)
        if best(history) is history[-1]:
            save_best(path, model)
        save_checkpoint(path, epoch + 1, model, history)
        write_text(path / "history.json", json.dumps(history, indent=1) + "\n")
    return history[-1]


def read_tokens(path: Path) -> tuple[Config, Mapping[str, np.ndarray]]:
    """Read the configuration of a prepared run, and its arrays.

    Raises:
        UserError: if the directory has not been prepared.
    """
    if not (path / TOKENS).is_file():
        raise UserError(f"{path} is not prepared: {TOKENS} is missing; see training.prepare")
    return load_config(path / "config.toml"), np.load(path / TOKENS)


def token_batches(
    tokens: Mapping[str, np.ndarray], prefix: str, config: Config, training: bool
) -> PairBatches:
    """Return the batches of the training set, or with the prefix `dev_` of the dev set."""
    sides = (
        Sentences.of(tokens[f"{prefix}{side}"], tokens[f"{prefix}{side}_lengths"])
        for side in ("source", "target")
    )
    return PairBatches.of(config, *sides, training=training)


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m training.train_arrays",
        description="Train a run that training.prepare made, without TensorFlow, on the backend "
        "that KERAS_BACKEND names. Stopped in whatever way, it goes on with the same command.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="the run directory")
    options = parser.parse_args(arguments)
    print(json.dumps({"run": str(options.run), **train_arrays(options.run)}))


if __name__ == "__main__":
    main_guard(main)
