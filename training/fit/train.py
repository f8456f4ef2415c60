"""Training from texts, images or histories, with tf.data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import keras

from keras_attention import plot_attention
from training.command.files import replacing
from training.command.native import count_names_anew, keep_programs
from training.config.schema import Config
from training.data.pair_files import Split
from training.decode.labels import make_predictor
from training.decode.settings import SearchSettings
from training.decode.texts import make_attender, make_translator
from training.fit import optimizer
from training.fit.recorder import Recorder, describe, train_epochs
from training.metrics import METRICS, score_epoch
from training.runs.checkpoints import restore_checkpoint
from training.runs.files import Record, RunFiles
from training.runs.run import Run, load_best
from training.runs.start import (
    Opened,
    as_init_reads,
    open_run,
    reopen,
    scored_part,
    warn_of_metric,
    write_run,
)
from training.score import labels as label_scores
from training.sources.events.histories import Histories
from training.sources.kinds import SOURCE_KINDS

LONGEST = 60  # most characters of a text in a readable picture


class DevSet:
    """The dev set, scored with the current weights; the perplexity is of all its batches."""

    def __init__(self, run: Run, dev: Split, batches: Any) -> None:
        self.run, self.batches = run, batches
        self.split = scored_part(dev, run.config)
        self.translate = make_translator([run], SearchSettings(beam_width=1))
        self.judge = optimizer.make_judge(run.model)
        attends = SOURCE_KINDS[run.config.source].tokens and run.config.attention != "none"
        self.attend = make_attender([run]) if attends else None

    def score(self) -> dict[str, float]:
        """Return `val_perplexity`, and the figures of the configuration's metric."""
        judged = self.judge.evaluate(self.batches, verbose=0, return_dict=True)
        hypotheses = self.translate(self.split.sources)
        scores = score_epoch(self.run.config.metric, hypotheses, self.split.references)
        return {"val_perplexity": judged["perplexity"], **scores}

    def draw(self) -> None:
        """Draw the attention map of the first short pair, or else of the first pair."""
        if self.attend is None:
            return
        pairs = self.split.pairs()
        source, target = next((p for p in pairs if max(map(len, p)) <= LONGEST), pairs[0])
        (attended,) = self.attend([source], [target])
        with replacing(self.run.files.heat_map) as aside:
            plot_attention(attended.source_tokens, attended.target_tokens, attended.weights, aside)


def train(config: Config, output: Path, init: Path | None = None) -> Record:
    """Train a model in a run directory; return the last record.

    Args:
        config: the configuration of the run.
        output: the run directory, which is made if it does not exist.
        init: a run of the same sizes; training starts from its weights and uses its tokenizers.

    Raises CorpusError if the data cannot be read, ConfigError if the configuration does not fit the
    data, and RunError if the run directory cannot be used or training cannot continue.
    """
    files = RunFiles(output)
    with files.locked():
        files.check_free()
        if init is not None:
            config = as_init_reads(config, init)
        optimizer.configure_keras(config)
        opened = open_run(files, config, init)
        model = _build(opened, files.streamed)
        opened.source.begin(model)
        if init is not None:
            load_best(RunFiles(init), model)
        write_run(files, opened, model)
        return _fit(files, opened, model, [])


def resume(output: Path, changes: Sequence[str] = (), force: bool = False) -> Record:
    """Resume a run from its last checkpoint; the losses are as if it had never stopped.

    Args:
        output: the run directory.
        changes: new settings, `KEY=VALUE` each, which the run keeps.
        force: whether the corpus may have other sentences than at the start of the run.

    Raises ConfigError if a key cannot change, and the same errors as `train`.
    """
    files = RunFiles(output)
    config = files.begun(changes)
    with files.locked():
        optimizer.configure_keras(config)
        opened = reopen(files, config, force)
        warn_of_metric(opened)
        model = _build(opened, files.tokens)
        history = restore_checkpoint(files, model)
        if changes:  # only now, when all checks have passed
            config.save(files.config)
        return _fit(files, opened, model, history)


def _build(opened: Opened, tokens: Path) -> keras.Model:
    """Return the compiled model; `tokens` is the folder with the token ids of texts."""
    model = optimizer.make_model(opened.config, opened.origin.vocabulary, tokens)
    config = optimizer.as_reckoned(opened.config, opened.pairs)
    optimizer.compile_model(model, config, opened.pairs.statistics.steps_per_epoch)
    return model


def _fit(files: RunFiles, opened: Opened, model: keras.Model, history: list[Record]) -> Record:
    """Train the missing epochs, and write their files; return the last record."""
    config = optimizer.as_reckoned(opened.config, opened.pairs)
    run = Run(files.path, config, opened.source, opened.target, model)
    describe(files, model, opened.pairs.shapes_line())
    if run.config.compiles():
        folder = keep_programs()
        count_names_anew()
        where = f", and keeps the programs in {folder} for the next training" if folder else ""
        print(f"XLA compiles the step for each shape{where}.")
    record = partial(Recorder, files, run.config, model, opened.pairs.statistics, history)
    if run.target is None:
        recorder = record(_score_labels(run, opened.dev))
    else:
        dev = DevSet(run, opened.dev, opened.dev_pairs.dataset())
        recorder = record(dev.score, draw=dev.draw)
    return train_epochs(recorder, opened.pairs.dataset, opened.pairs.plan.reckoned)


def _score_labels(run: Run, dev: Histories) -> Callable[[], dict[str, float]]:
    """Return a function that computes `val_loss`, the dev set's mean cross-entropy, and `auc`."""
    predict = make_predictor([run])

    def score() -> dict[str, float]:
        probabilities = predict(dev).probabilities
        loss = label_scores.cross_entropy(dev.labels, probabilities)
        return {"val_loss": loss, "auc": METRICS["auc"].score(dev.labels, probabilities)}

    return score
