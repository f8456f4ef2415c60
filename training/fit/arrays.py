"""Training from prepared token ids, on any backend, with TensorFlow or without."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras

from training.command.errors import RunError
from training.command.files import read_json
from training.config.load import load_config
from training.config.schema import Config
from training.data.batches import Batches
from training.fit.callbacks import Bar
from training.fit.crossentropy import Perplexity, TokenCrossentropy
from training.fit.distributed import ALONE, Processes, SharedRecorder, undistributed
from training.fit.optimizer import compile_model, configure_keras
from training.metrics import deciding
from training.model.build import build_model
from training.runs.checkpoints import restore_checkpoint, save_checkpoint
from training.runs.files import RunFiles
from training.runs.history import Record
from training.runs.origin import Origin, read_origin
from training.runs.tokens import read_batches, read_source_words


def train_arrays(path: Path, processes: Processes = ALONE) -> Record:
    """Train a prepared run together with other processes, or go on with it; return its last record.

    Raises:
        RunError: the directory has not been prepared, or training cannot go on.
        UserError: the devices cannot share its batches.
    """
    files = RunFiles(path)
    origin = read_origin(files)
    if not files.config.is_file() or not files.tokens.is_dir() or origin is None:
        raise RunError(
            f"{files.path} is not prepared: {files.tokens.name} is missing; see training.prepare"
        )
    config = load_config(files.config)
    processes.check_batch_size(config.batch_size)
    with files.locked() if processes.writes else nullcontext():
        processes.check_same(files)
        return _train(config, origin, files, processes)


def _train(config: Config, origin: Origin, files: RunFiles, processes: Processes) -> Record:
    configure_keras(config)
    model = _build(config, origin, files, processes)
    tokenizers = [read_json(file) for file in files.tokenizers] if config.subword_sampling else ()
    pairs, dev = read_batches(config, files.tokens, tokenizers)
    steps = pairs.statistics.steps_per_epoch
    compile_model(model, config, steps)
    score = _judge(model, config, dev, processes)
    history = restore_checkpoint(files, model, processes.writes)
    if any(deciding(record) for record in history):  # perplexities are another measure
        raise RunError(f"{files.path} began with training.train: go on with its --resume")
    processes.wait()
    if processes.writes and not files.all_checkpoints():
        with undistributed():
            save_checkpoint(files, model, history)
    recorder = SharedRecorder(processes, files, config, model, pairs.statistics, history, score)
    print(
        f"{config.data}: {pairs.statistics.pairs:,} pairs, {dev.statistics.pairs:,} in dev; "
        f"{model.count_params():,} parameters; {keras.backend.backend()} on {device()}"
        f"{processes}, Keras {keras.__version__}. Run directory: {files.path}",
        flush=True,
    )
    if line := pairs.shapes_line():
        print(line, flush=True)
    for epoch in range(len(history), config.epochs):
        started = time.perf_counter()
        with Bar() as bar:
            fitted = model.fit(
                _batches(pairs, processes, epoch),
                initial_epoch=epoch,
                epochs=epoch + 1,
                steps_per_epoch=steps,
                callbacks=[bar, keras.callbacks.TerminateOnNaN()],
                shuffle=False,  # the batches are
                verbose=0,
            )
        seconds = time.perf_counter() - started
        recorder.finish(fitted.history["loss"][0], seconds)
    if config.average_epochs:
        recorder.try_average()
    return history[-1]


def _build(config: Config, origin: Origin, files: RunFiles, processes: Processes) -> keras.Model:
    """Build the model of a prepared run, of a class that shares its batches among devices."""
    model = build_model(config, *origin.vocabulary)
    if config.copy:
        model.get_layer("source_words").words.assign(read_source_words(files.tokens))
    if processes.devices == 1:
        return model
    from training.fit.sharded import ShardedModel

    return ShardedModel(model.input, model.output, name=model.name)


def _judge(
    model: keras.Model, config: Config, dev: Batches, processes: Processes
) -> Callable[[], dict[str, float]]:
    """Return a function that scores the model on dev."""
    judge = type(model)(model.input, model.output)
    judge.compile(loss=TokenCrossentropy(), metrics=[Perplexity()], jit_compile=config.compiles())

    def score() -> dict[str, float]:
        scores = judge.evaluate(
            _batches(dev, processes),
            steps=dev.statistics.steps_per_epoch,
            verbose=0,
            return_dict=True,
        )
        return {"val_perplexity": float(scores["perplexity"])}

    return score


def _batches(batches: Batches, processes: Processes, epoch: int = 0) -> Any:
    """Return this process's part of the batches of an epoch: by tf.data where it is installed."""
    if importlib.util.find_spec("tensorflow") is None:
        return processes.share(batches.epoch(epoch))
    import tensorflow as tf

    from training.data.pipeline import make_dataset

    if keras.backend.backend() != "tensorflow":
        tf.config.set_visible_devices([], "GPU")  # whose memory TensorFlow would take
    dataset = make_dataset(batches, epoch)
    return dataset if processes.devices == 1 else processes.share(dataset.as_numpy_iterator())


def device() -> str:
    """Return the device that the backend computes on, as it names it."""
    if keras.backend.backend() == "jax":
        import jax

        return str(jax.devices()[0].device_kind)
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return "GPU" if keras.distribution.list_devices("gpu") else "cpu"
