"""A run's `README.md`, written after each epoch."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from string import Template

import keras

from training.command.files import replacing, write_text
from training.config.schema import Config
from training.metrics import METRICS
from training.runs._origin import read_origin, versions
from training.runs.files import RunFiles, best, kept, read_history

FIGURES = {
    "loss": "loss",
    "val_perplexity": "dev perplexity",
    **{name: metric.label for name, metric in METRICS.items()},
    "val_loss": "dev loss",
    "learning_rate": "learning rate",
    "seconds": "seconds",
}


def write_card(files: RunFiles, config: Config, model: keras.Model) -> None:
    """Write a page on the run for people: settings, figures and progress."""
    origin, name = read_origin(files), files.path.absolute().name
    form, colon, _ = config.data.partition(":")
    whole = colon and config.source != "text"  # files without splits
    pictures = [file.name for file in (files.curves, files.heat_map) if file.is_file()]
    facts = {} if origin is None else asdict(origin)
    command = f"python {shlex.join(facts.pop('command'))}    # how it was begun" if facts else ""
    facts["versions"] = ", ".join(map(" ".join, versions().items()))
    facts["backend"] = keras.backend.backend()
    facts["parameters"] = f"{model.count_params():,}"
    template = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    fields = {
        **config.values(),
        "target": config.target,
        "name": name,
        "figures": _figures(files),
        "pictures": "\n\n".join(f"![{picture}]({picture})" for picture in pictures),
        "scored": f"--data {form}:PATH" if whole else "--split dev    # or --data DATA",
        "facts": _table(["", ""], facts.items()),
        "run": shlex.quote(str(files.path)),
        "model": shlex.quote(name),
        "command": command,
    }
    write_text(files.card, Template(template).substitute(fields))


def draw_curves(files: RunFiles, config: Config) -> None:
    """Draw losses and scores over the epochs, if Matplotlib is installed; mark the best epoch."""
    if not importlib.util.find_spec("matplotlib"):
        return
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    history = read_history(files.history)
    panels = [["loss"], ["val_perplexity"], ["val_loss"], list(METRICS)]
    panels = [[key for key in keys if key in history[-1]] for keys in panels]
    panels = [keys for keys in panels if keys]
    figure = Figure(figsize=(4 * len(panels), 3.2), layout="constrained")
    epochs = [record["epoch"] for record in history]
    for axes, keys in zip(figure.subplots(1, len(panels)), panels, strict=True):
        for key in keys:
            values = [record.get(key) for record in history]
            axes.plot(epochs, values, marker=".", label=FIGURES[key])
        axes.axvline(
            best(history, config.keep_epoch)["epoch"], color="0.7", linestyle=":", zorder=0
        )
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()
        if "val_perplexity" in keys:
            axes.set_yscale("log")
    with replacing(files.curves) as aside:
        figure.savefig(aside, format="png", dpi=100)


def _figures(files: RunFiles) -> str:
    """Return a table of all epochs, and of the mean if it is kept; the kept row is bold."""
    history, chosen = read_history(files.history), kept(files)
    keys = [key for key in FIGURES if any(key in record for record in history)]
    rows = [(str(record["epoch"]), record) for record in history]
    best = str(chosen.get("epoch"))
    if epochs := chosen.get("epochs"):
        best = f"mean of {epochs[0]} to {epochs[-1]}"
        rows.append((best, chosen))
    lines = []
    for name, record in rows:
        mark = "**" if name == best else ""
        cells = [name, *(f"{record[key]:.4g}" if key in record else "" for key in keys)]
        lines.append([cell and f"{mark}{cell}{mark}" for cell in cells])
    return _table(["epoch", *(FIGURES[key] for key in keys)], lines)


def _table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
