"""Training from prepared token ids, on any backend and without TensorFlow."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np

from training.config import Config
from training.data.batches import PairBatches, Sentences
from training.data.prepared import Prepared, is_prepared
from training.errors import RunError
from training.fit.callbacks import Bar
from training.fit.clipping import ClippedAdam
from training.fit.crossentropy import Perplexity, TokenCrossentropy
from training.fit.recorder import Recorder
from training.fit.schedule import Plateau, make_schedule
from training.model import build_seq2seq
from training.runs.checkpoints import restore_checkpoint, save_checkpoint
from training.runs.files import SIDES, RunFiles
from training.runs.history import Record, is_complete
from training.runs.lock import locked
from training.sampling import set_rate
from training.settings import load_config


def train_arrays(path: Path) -> Record:
    """Train a prepared run, or go on with it.

    Args:
        path: the run directory, made by `training.prepare`.

    Returns:
        The last record of the history.

    Raises:
        RunError: if the directory has not been prepared, or training cannot go on.
    """
    files = RunFiles(path)
    config, tokens = read_tokens(files)
    with locked(files):
        return _train(config, tokens, files)


def _train(config: Config, tokens: Mapping[str, np.ndarray], files: RunFiles) -> Record:
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.precision)
    sizes = [int(tokens[f"{side}_vocab_size"]) for side in SIDES]
    model = build_seq2seq(config, *sizes)
    if config.copy:
        model.get_layer("source_words").words.assign(tokens["source_words"])
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
    model.optimizer.build(model.trainable_variables)
    judge = keras.Model(model.input, model.output)
    judge.compile(loss=TokenCrossentropy(), metrics=[Perplexity()], jit_compile=on_jax)

    def score() -> dict[str, float]:
        scores = judge.evaluate(
            dev.epoch(), steps=dev.statistics.steps_per_epoch, verbose=0, return_dict=True
        )
        return {"val_perplexity": float(scores["perplexity"])}

    history = restore_checkpoint(files, model)
    if not files.all_checkpoints():
        save_checkpoint(files, model, history)
    recorder = Recorder(files, config, model, pairs.statistics, history, score)
    print(
        f"{config.data}: {pairs.statistics.pairs:,} pairs, {dev.statistics.pairs:,} in dev; "
        f"{model.count_params():,} parameters; {keras.backend.backend()}, Keras "
        f"{keras.__version__}. Run directory: {files.path}",
        flush=True,
    )
    while not is_complete(history, config.epochs, config.patience, config.keep_by):
        epoch = len(history)
        if isinstance(rate, Plateau) and rate.follow(history):
            model.make_train_function(force=True)  # on JAX, the rate is a constant of the old one
        set_rate(model, config, epoch)
        started = time.perf_counter()
        with Bar() as bar:
            fitted = model.fit(
                pairs.epoch(epoch),
                initial_epoch=epoch,
                epochs=epoch + 1,
                steps_per_epoch=steps,
                callbacks=[bar, keras.callbacks.TerminateOnNaN()],
                verbose=0,
            )
        seconds = time.perf_counter() - started
        recorder.finish(fitted.history["loss"][0], seconds)
        if recorder.is_out_of_patience():
            break
    if config.average_epochs:
        recorder.try_average()
    return history[-1]


def read_tokens(files: RunFiles) -> tuple[Config, Mapping[str, np.ndarray]]:
    """Read the configuration of a prepared run, and its arrays.

    Raises:
        RunError: if the directory has not been prepared.
    """
    if not files.tokens.is_file():
        raise RunError(
            f"{files.path} is not prepared: {files.tokens.name} is missing; see training.prepare"
        )
    try:
        with np.load(files.tokens) as tokens:
            return load_config(files.config), dict(tokens)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise RunError(f"cannot read {files.tokens}: {error}") from error


def token_arrays(prefix: str, sides: tuple[Sentences, Sentences]) -> dict[str, np.ndarray]:
    """Return the arrays that `token_batches` reads, for the training set or with `dev_`."""
    arrays: dict[str, np.ndarray] = {}
    for side, ids in zip(SIDES, sides, strict=True):
        arrays |= {f"{prefix}{side}": ids.values[:-1], f"{prefix}{side}_lengths": ids.lengths}
    return arrays


def token_batches(
    tokens: Mapping[str, np.ndarray], prefix: str, config: Config, training: bool
) -> PairBatches:
    """Return the batches of the training set, or with the prefix `dev_` of the dev set."""
    if not prefix and is_prepared(config.data):
        sides = Prepared(config.data).sides(config.train_limit, config.seed)
        return PairBatches.of(config, *sides, training=training)
    source, target = (
        Sentences.of(tokens[f"{prefix}{side}"], tokens[f"{prefix}{side}_lengths"]) for side in SIDES
    )
    return PairBatches.of(config, source, target, training=training)
