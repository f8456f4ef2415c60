"""Training a prepared run where TensorFlow is not installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from training.command.errors import RunError
from training.config.schema import Config
from training.data.batches._batches import make_batches
from training.data.batches._plan import Batching
from training.data.read.texts import Texts
from training.data.tokens._prepared import Prepared
from training.fit import _optimizer as optimizer
from training.fit._recorder import Recorder, describe, train_epochs
from training.fit._trial import settle_attention
from training.fit.devices._processes import ALONE, Processes
from training.metrics import deciding
from training.runs._origin import read_origin
from training.runs.checkpoints import restore_checkpoint, save_checkpoint
from training.runs.files import Record, RunFiles


def train_prepared(path: Path, changes: Sequence[str] = (), processes: Processes = ALONE) -> Record:
    """Train or resume a run of token ids; return its last record.

    The dev set is scored by its perplexity only, because translations need the tokenizers, which
    need TensorFlow.

    Args:
        path: the run directory.
        changes: new settings, `KEY=VALUE` each, which the run keeps.
        processes: the devices and processes that train together.

    Raises RunError if the directory is not prepared or training cannot continue.
    """
    files = RunFiles(path)
    files.check_prepared()
    config = files.begun(changes)
    with processes.holding(files):
        optimizer.configure_keras(config)
        texts = Texts.of(config)
        pairs, dev = make_batches(Prepared(files.tokens, texts.data), texts, Batching.of(config))
        origin = read_origin(files)
        assert origin is not None  # `check_prepared`
        vocabulary, tokens = origin.vocabulary, files.tokens
        model = optimizer.make_trainable(config, vocabulary, tokens, pairs, processes)
        config = optimizer.as_predicted(config, pairs)
        history = []
        if not config.other_attention:
            history = restore_checkpoint(files, model, processes.writes)
        if any(deciding(record) for record in history):  # ranked by scores, not by perplexity
            raise RunError(
                f"{path} has epochs with scores of translations, which need TensorFlow: "
                "install it to continue the run"
            )
        begins = not files.all_checkpoints()
        processes.wait()  # all must restore before one of them writes a checkpoint
        if changes:
            processes.write(config.save, files.config)
        if begins:
            processes.write(save_checkpoint, files, model, history)
        if config.other_attention:

            def make(config: Config) -> keras.Model:
                return optimizer.make_trainable(config, vocabulary, tokens, pairs, processes)

            config, model = settle_attention(files, config, model, make, pairs, dev, processes)
        scored, update = processes.to_score(
            model, lambda: optimizer.make_model(config, vocabulary, tokens)
        )
        with processes.local():
            judge = optimizer.make_judge(scored)

        def perplexity() -> dict[str, float]:
            update()
            return {"val_perplexity": optimizer.judged(judge, dev)["perplexity"]}

        def score() -> dict[str, float]:
            return processes.on_first(perplexity)

        def batches(epoch: int) -> Any:
            return processes.epoch(pairs, epoch)

        recorder = Recorder(files, config, model, pairs.statistics, history, score, processes.write)
        describe(files, model, pairs.shapes_line(), str(processes))
        return train_epochs(recorder, batches, pairs.plan.predicted)
