"""Training from prepared token ids, on any backend, with TensorFlow or without."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

from training.command.errors import RunError
from training.config.schema import Config, load_config
from training.data.batches import Batch, read_batches
from training.data.plan import Batching
from training.data.splits import Texts
from training.fit import optimizer
from training.fit.distributed import ALONE, Processes
from training.fit.recorder import Recorder, describe, train_epochs
from training.metrics import deciding
from training.runs.checkpoints import restore_checkpoint, save_checkpoint
from training.runs.files import Record, RunFiles
from training.runs.origin import Origin, read_origin


def train_arrays(path: Path, processes: Processes = ALONE) -> Record:
    """Train or resume a prepared run, together with other processes; return its last record.

    Raises RunError if the directory is not prepared or training cannot continue, and UserError if
    the devices cannot share the batches.
    """
    files = RunFiles(path)
    origin = read_origin(files)
    files.check_prepared()
    assert origin is not None
    config = load_config(files.config)
    processes.check_batch_size(config.batch_size)
    with files.locked() if processes.writes else nullcontext():
        processes.check_same(files)
        return _train(config, origin, files, processes)


def _train(config: Config, origin: Origin, files: RunFiles, processes: Processes) -> Record:
    optimizer.configure_keras(config)
    pairs, dev = read_batches(files.tokens, Texts.of(config), Batching.of(config))
    model = optimizer.make_model(config, origin.vocabulary, files.tokens)
    if processes.devices > 1:  # this class shares batches among devices
        from training.fit.sharded import ShardedModel

        model = ShardedModel(model.input, model.output, name=model.name)
    config = optimizer.as_reckoned(config, pairs)
    optimizer.compile_model(model, config, pairs.statistics.steps_per_epoch)
    judge = optimizer.make_judge(model)

    def score() -> dict[str, float]:
        steps, batches = dev.statistics.steps_per_epoch, processes.share(dev.epoch())
        scores = judge.evaluate(batches, steps=steps, verbose=0, return_dict=True)
        return {"val_perplexity": scores["perplexity"]}

    history = restore_checkpoint(files, model, processes.writes)
    if any(deciding(record) for record in history):  # it was ranked by scores, not by perplexity
        raise RunError(f"{files.path} began with training.train: go on with its --resume")
    processes.wait()  # all must restore before one of them writes a checkpoint
    if not files.all_checkpoints():
        processes.write(save_checkpoint, files, model, history)
    recorder = Recorder(files, config, model, pairs.statistics, history, score, processes.write)
    describe(files, model, pairs.shapes_line(), str(processes))

    def batches(epoch: int) -> Iterator[Batch]:
        return processes.share(pairs.epoch(epoch))

    return train_epochs(recorder, batches, pairs.plan.reckoned)
