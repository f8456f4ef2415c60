"""Shared by the studies: trained models, results that are kept, tables."""

from __future__ import annotations

import argparse
import csv
import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import keras

from training.command.errors import UserError
from training.command.files import read_json, write_json
from training.command.options import add_options
from training.command.progress import progress
from training.config.schema import Config, load_config, load_preset, override
from training.decode.settings import SearchSettings
from training.decode.texts import make_translator
from training.fit._train import resume, train
from training.runs.files import RunFiles, read_history, reason_to_stop
from training.runs.run import Run, load_run


def add_runs(parser: argparse.ArgumentParser) -> None:
    """Add the option of trained models by name."""
    parser.add_argument(
        "--run",
        dest="runs",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="a trained model; may be given several times",
    )


def add_models(parser: argparse.ArgumentParser, preset: str) -> None:
    """Add the options that say which models there are and how the others are trained."""
    add_runs(parser)
    parser.add_argument("--preset", default=preset, metavar="NAME", help="of the other models")
    add_options(parser, "--set")


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add the options of the sentences."""
    parser.add_argument("--data", metavar="DATA", help="default: the runs' training corpus")
    add_split(parser)


def add_split(parser: argparse.ArgumentParser) -> None:
    """Add the option of the split of a corpus."""
    parser.add_argument("--split", default="dev", metavar="NAME", help="split of the corpus")


def given_runs(options: argparse.Namespace) -> dict[str, Path]:
    """Read the `--run NAME=DIR` options."""
    runs = {}
    for text in options.runs:
        name, separator, path = text.partition("=")
        if not separator or not name or not path:
            raise UserError(f"--run expected NAME=DIR. Received: {text}")
        if name in runs:
            raise UserError(f"--run {name} is given twice")
        runs[name] = Path(path)
    return runs


def collect(options: argparse.Namespace, models: Mapping[str, Sequence[str]]) -> dict[str, Run]:
    """Load the model of each name, trained if it is not given and not there yet.

    Settings, `KEY=VALUE`, make each model out of the preset; of a given run the same must hold.

    Raises:
        UserError: a name that is none of `models`, a run that does not fit its name, or one in
            the output that was trained with other settings.
    """
    given = given_runs(options)
    for name, path in given.items():
        if name not in models:
            raise UserError(f"--run expected one of {', '.join(models)}. Received: {name}")
        config = load_run(path).config
        if override(config, models[name]) != config:
            raise UserError(f"--run {name} expected {', '.join(models[name])}: {path} has not")
    configs = {}
    for name, settings in models.items():
        if name not in given:
            configs[name] = override(load_preset(options.preset), [*options.settings, *settings])
            check(name, configs[name])
    paths = {name: options.output / "runs" / name for name in configs}
    for name, config in configs.items():
        train_missing(name, config, paths[name])
    return {name: load_run((given | paths)[name]) for name in models}


def same_data(runs: Mapping[str, Run]) -> Config:
    """Return the configuration of the first run; all must have been trained on the same data."""
    others = {run.config.data for run in runs.values()}
    if len(others) > 1:
        raise UserError(f"the runs expected the same data. Received: {', '.join(sorted(others))}")
    return next(iter(runs.values())).config


def check(name: str, config: Config) -> None:
    """Refuse a model that cannot be built, before another one is trained for hours."""
    from training.model.seq2seq import build_seq2seq

    try:
        build_seq2seq(config, 5, 5)
    except ValueError as error:
        raise UserError(f"{name} cannot be built: {str(error).splitlines()[0]}") from error


def train_missing(name: str, config: Config, path: Path) -> None:
    """Train a model unless it is there; go on with one that was stopped."""
    files = RunFiles(path)
    begun = files.config.is_file()
    if begun:
        saved = load_config(files.config)
        for key in ("keep_epoch", "metric", "max_answer"):  # "auto" is what the run has decided
            if getattr(config, key) == "auto":
                config = replace(config, **{key: getattr(saved, key)})
        other = [key for key, value in asdict(config).items() if getattr(saved, key) != value]
        if other:
            raise UserError(
                f"{path} was trained with another {', '.join(other)}: choose another --output"
            )
    if begun and is_finished(files, config):
        print(f"{name}: trained already, {path}", flush=True)
        return
    print(f"{name}: {'training goes on' if begun else 'training'}, {path}", flush=True)
    keras.backend.clear_session()
    resume(path) if begun else train(config, path)
    keras.config.set_dtype_policy("float32")  # which training may have changed


def is_finished(files: RunFiles, config: Config) -> bool:
    """Whether a run needs no more training."""
    history = read_history(files.history) if files.history.is_file() else []
    if reason_to_stop(history, config) is None:
        return False
    if not config.average_epochs:
        return True
    average = files.average
    return average.is_file() and read_json(average)["epochs"][-1] == history[-1]["epoch"]


def key_of(run: Run, *what: Any) -> str:
    """Return the key of results that a run's weights give, and all else that they depend on."""
    digest = hashlib.sha1(run.files.best.read_bytes())
    digest.update(json.dumps(what).encode())
    return digest.hexdigest()


def kept(file: Path, key: Any, make: Callable[[], Any]) -> Any:
    """Return the result that an earlier try kept in a file under this key, or make and keep it.

    Key and result are JSON.
    """
    if file.is_file():
        found = read_json(file)
        if found["key"] == json.loads(json.dumps(key)):
            return found["value"]
    value = make()
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, {"key": key, "value": value})
    return value


def make_kept_translator(
    run: Run, asked: SearchSettings
) -> Callable[[str, Sequence[str], Path], list[str]]:
    """Return a function to translations by a run, or to those that an earlier try kept in a file.

    Its arguments are a name for messages, the sources and the file. The run is compiled once, and
    only where a file lacks.
    """
    translator = functools.cache(lambda: make_translator([run], asked))

    def translated(name: str, sources: Sequence[str], file: Path) -> list[str]:
        def translate() -> list[str]:
            print(f"{name}: translating {len(sources):,} sentences", flush=True)
            with progress(len(sources), "sentences") as advance:
                return translator()(sources, advance)

        found: list[str] = kept(file, key_of(run, asdict(asked), sources), translate)
        return found

    return translated


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], printed: bool = True) -> None:
    """Write rows of the same keys as CSV, and print them."""
    columns = list(rows[0])
    lines = [columns, *([_written(row[key]) for key in columns] for row in rows)]
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)
    if not printed:
        return
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        print("  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)))


def _written(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def new_figure(rows: int, columns: int, width: float = 5.0, height: float = 4.0) -> tuple:
    """Return a figure and its axes `(rows, columns)`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)
