"""Loads trained runs from their directories; `training.runs.files` has the file names."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import keras

from training.command.errors import RunError
from training.config.schema import Config
from training.data.tokens.tokenizers import Tokenizer, load_tokenizer
from training.model.seq2seq import build_model
from training.runs.files import RunFiles
from training.sources._source import Source
from training.sources.kinds import SOURCE_KINDS, source_class
from training.sources.text._source import TextSource


@dataclass(frozen=True)
class Run:
    """A trained model with its configuration, its source and its target tokenizer."""

    path: Path
    config: Config
    source: Source
    target: Tokenizer | None  # None for a label
    model: keras.Model

    @property
    def files(self) -> RunFiles:
        """The files of the run."""
        return RunFiles(self.path)

    @property
    def source_tokenizer(self) -> Tokenizer:
        """The tokenizer of a source text; raises RunError for other kinds of sources."""
        if not isinstance(self.source, TextSource):
            kind = {"image": "images", "events": "histories"}[self.config.source]
            raise RunError(
                f"{self.path} reads {kind}, but this command needs a run that "
                "reads texts. Choose another --run"
            )
        return self.source.tokenizer

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of a target text; raises RunError for a label."""
        if self.target is None:
            raise RunError(
                f"{self.path} predicts an outcome, but this command needs a run that writes texts. "
                "Choose another --run"
            )
        return self.target


def load_run(path: str | Path) -> Run:
    """Load a run with its best weights.

    Raises the errors of `RunFiles.trained`, and RunError if a file is damaged.
    """
    files = RunFiles(path)
    config = files.trained().config
    source, target = load_sides(config, files)
    to_use = dataclasses.replace(config, r_drop=0.0)  # used only in training
    model = build_model(to_use, source.size, target.vocab_size if target else 0)
    load_best(files, model)
    return Run(files.path, config, source, target, model)


def load_best(files: RunFiles, model: keras.Model) -> None:
    """Load a run's best weights into a model.

    Raises RunError if the weights are damaged or do not fit the model.
    """
    files.check(files.best)
    try:
        with warnings.catch_warnings():  # about missing weights, which raise an error anyway
            warnings.simplefilter("ignore")
            model.load_weights(files.best)
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).strip().splitlines() or ["it is damaged"])[0]
        raise RunError(f"cannot read {files.best} as the weights of this model: {reason}") from None


def load_ensemble(paths: Sequence[str | Path]) -> list[Run]:
    """Load runs to be used together.

    Raises the errors of `load_run`, and RunError if the runs' sources or tokenizers differ.
    """
    runs = [load_run(path) for path in paths]
    first = runs[0]
    for run in runs[1:]:
        shapes = [each.model.get_layer("encoder").input.shape for each in (run, first)]
        if run.config.source != first.config.source or shapes[0] != shapes[1]:
            raise RunError(f"{run.path} and {first.path} do not read the same sources")
        for name in (*first.source.files, first.files.tokenizers[1].name):
            files = run.path / name, first.path / name
            if len({file.read_bytes() if file.is_file() else b"" for file in files}) > 1:
                raise RunError(f"{run.path} and {first.path} have different files {name}")
    return runs


def load_translators(paths: Sequence[str | Path]) -> list[Run]:
    """Load runs to be used together; raise a RunError unless all translate text to text."""
    runs = load_ensemble(paths)
    for run in runs:
        _ = run.source_tokenizer, run.target_tokenizer  # raise for runs without texts
    return runs


def load_sides(config: Config, files: RunFiles) -> tuple[Source, Tokenizer | None]:
    """Return the source of a run, and the target's tokenizer; None if the target is a label."""
    for file in files.all_sides():
        files.check(file)
    try:
        source = source_class(config.source).load(config, files.path)
        target = None if config.target == "label" else load_tokenizer(files.tokenizers[1])
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = "tokenizers" if SOURCE_KINDS[config.source].tokens else "source"
        raise RunError(f"cannot read the {what} of {files.path}: {error}") from error
    return source, target
