"""Training from texts, images or histories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import keras

from keras_attention import plot_attention
from training.command.files import replacing
from training.command.native import count_names_anew, keep_programs
from training.config.schema import Config
from training.data.batches._batches import Batches
from training.data.read._sentences import Split
from training.decode.labels import make_predictor
from training.decode.settings import SearchSettings
from training.decode.texts import make_attender, make_translator
from training.fit import _optimizer as optimizer
from training.fit._recorder import Recorder, describe, train_epochs
from training.fit._trial import settle_attention
from training.fit.devices._processes import ALONE, Processes
from training.metrics import METRICS, deciding, score_epoch
from training.runs._start import Opened, open_run, reopen, scored_part, warn_of_metric, write_run
from training.runs.checkpoints import restore_checkpoint
from training.runs.files import Record, RunFiles
from training.runs.run import Run, load_best
from training.score import _labels as label_scores
from training.sources.events._histories import Histories
from training.sources.kinds import SOURCE_KINDS

LONGEST = 60  # most characters of a text in a readable picture


class DevSet:
    """The dev set, scored with the current weights; the perplexity is of all its batches."""

    def __init__(self, run: Run, dev: Split, batches: Batches) -> None:
        self.run, self.batches = run, batches
        self.split = scored_part(dev, run.config)
        self.translate = make_translator([run], SearchSettings(beam_width=1))
        self.judge = optimizer.make_judge(run.model)
        attends = SOURCE_KINDS[run.config.source].tokens and run.config.attention != "none"
        self.attend = make_attender([run]) if attends else None

    def score(self) -> dict[str, float]:
        """Return `val_perplexity`, and the figures of the configuration's metric."""
        judged = self.perplexity()
        hypotheses, references = self.translate(self.split.sources), self.split.references
        return {**judged, **score_epoch(self.run.config.metric, hypotheses, references)}

    def perplexity(self) -> dict[str, float]:
        return {"val_perplexity": optimizer.judged(self.judge, self.batches)["perplexity"]}

    def draw(self) -> None:
        """Draw the attention map of the first short pair, or else of the first pair."""
        if self.attend is None:
            return
        pairs = self.split.pairs()
        source, target = next((p for p in pairs if max(map(len, p)) <= LONGEST), pairs[0])
        (attended,) = self.attend([source], [target])
        with replacing(self.run.files.heat_map) as aside:
            plot_attention(attended.source_tokens, attended.target_tokens, attended.weights, aside)


def train(
    config: Config, output: Path, init: Path | None = None, processes: Processes = ALONE
) -> Record:
    """Train a model in a run directory; return the last record.

    Args:
        config: the configuration of the run.
        output: the run directory, which is made if it does not exist.
        init: a run of the same sizes; training starts from its weights and uses its tokenizers.
        processes: the devices and processes that train together.

    Raises CorpusError if the data cannot be read, ConfigError if the configuration does not fit the
    data, and RunError if the run directory cannot be used or training cannot continue.
    """
    files = RunFiles(output)
    if processes.count > 1:  # all resume the run that the first begins
        processes.write(_begin_alone, files, config, init)
        return resume(output, processes=processes)
    with files.locked():
        opened, model = _begin(files, config, init, processes)
        return _fit(files, opened, model, [], processes)


def _begin_alone(files: RunFiles, config: Config, init: Path | None) -> None:
    with files.locked():
        _begin(files, config, init, ALONE)


def _begin(
    files: RunFiles, config: Config, init: Path | None, processes: Processes
) -> tuple[Opened, keras.Model]:
    """Write a new run with its first weights; return its data and its model."""
    files.check_free()
    optimizer.configure_keras(config)
    opened = open_run(files, config, init)
    model = _build(opened, files.streamed, processes)
    opened.source.begin(model)
    if init is not None:
        load_best(RunFiles(init), model)
    processes.write(write_run, files, opened, model)
    return opened, model


def resume(
    output: Path, changes: Sequence[str] = (), force: bool = False, processes: Processes = ALONE
) -> Record:
    """Resume a run from its last checkpoint; the losses are as if it had never stopped.

    Args:
        output: the run directory.
        changes: new settings, `KEY=VALUE` each, which the run keeps.
        force: whether the corpus may have other sentences than at the start of the run.
        processes: the devices and processes that train together. Their number may differ from the
            number before; then dropout draws other numbers.

    Raises ConfigError if a key cannot change, and the same errors as `train`.
    """
    files = RunFiles(output)
    config = files.begun(changes)
    with processes.holding(files):
        optimizer.configure_keras(config)
        if processes.count > 1:  # token ids of changed texts are written before all read them
            processes.write(reopen, files, config, force)
        opened = reopen(files, config, force)
        warn_of_metric(opened)
        model = _build(opened, files.tokens, processes)
        history = []
        if not opened.config.other_attention:  # a trial starts again
            history = restore_checkpoint(files, model, processes.writes)
        processes.wait()  # all must restore before one of them writes a checkpoint
        if changes:  # only now, when all checks have passed
            processes.write(config.save, files.config)
        return _fit(files, opened, model, history, processes)


def _build(opened: Opened, tokens: Path, processes: Processes) -> keras.Model:
    """Return the compiled model; `tokens` is the folder with the token ids of texts."""
    vocabulary, batches = opened.origin.vocabulary, opened.pairs
    return optimizer.make_trainable(opened.config, vocabulary, tokens, batches, processes)


def _fit(
    files: RunFiles, opened: Opened, model: keras.Model, history: list[Record], processes: Processes
) -> Record:
    """Train the missing epochs, and write their files; return the last record."""
    if opened.config.other_attention:
        config, model = settle_attention(
            files,
            opened.config,
            model,
            lambda config: _build(replace(opened, config=config), files.tokens, processes),
            opened.pairs,
            opened.dev_pairs,
            processes,
        )
        opened = replace(opened, config=config)
    config = optimizer.as_predicted(opened.config, opened.pairs)
    describe(files, model, opened.pairs.shapes_line(), str(processes))
    if config.compiles() and keras.backend.backend() == "tensorflow":
        folder = keep_programs()
        count_names_anew()
        where = f", and keeps the programs in {folder} for the next training" if folder else ""
        print(f"XLA compiles the step for each shape{where}.")
    by_perplexity = bool(history) and not any(map(deciding, history))  # begun without TensorFlow
    score, draw = _scoring(files, opened, model, config, processes, by_perplexity)
    recorder = Recorder(
        files, config, model, opened.pairs.statistics, history, score, processes.write, draw
    )

    def batches(epoch: int) -> Any:
        return processes.epoch(opened.pairs, epoch)

    return train_epochs(recorder, batches, opened.pairs.plan.predicted)


def _scoring(
    files: RunFiles,
    opened: Opened,
    model: keras.Model,
    config: Config,
    processes: Processes,
    by_perplexity: bool,
) -> tuple[Callable[[], Mapping[str, float]], Callable[[], None]]:
    """Return a function that scores the dev set in the first process, and one that draws."""
    if not processes.writes:
        return partial(processes.on_first, dict), lambda: None
    vocabulary = opened.origin.vocabulary
    scored, update = processes.to_score(
        model, lambda: optimizer.make_model(config, vocabulary, files.tokens)
    )
    run = Run(files.path, config, opened.source, opened.target, scored)
    dev = None
    with processes.local():
        score: Callable[[], Mapping[str, float]]
        if run.target is None:
            score = _score_labels(run, opened.dev)
        else:
            dev = DevSet(run, opened.dev, opened.dev_pairs)
            score = dev.perplexity if by_perplexity else dev.score

    def current() -> Mapping[str, float]:
        update()
        return score()

    return partial(processes.on_first, current), dev.draw if dev else lambda: None


def _score_labels(run: Run, dev: Histories) -> Callable[[], dict[str, float]]:
    """Return a function that computes `val_loss`, the dev set's mean cross-entropy, and `auc`."""
    predict = make_predictor([run])

    def score() -> dict[str, float]:
        probabilities = predict(dev).probabilities
        loss = label_scores.cross_entropy(dev.labels, probabilities)
        return {"val_loss": loss, "auc": METRICS["auc"].score(dev.labels, probabilities)}

    return score
