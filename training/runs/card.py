"""A run's `README.md`, written after each epoch."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from string import Template

import keras

from training.command.files import write_text
from training.config.schema import Config
from training.metrics import METRICS
from training.runs.files import RunFiles, kept, read_history
from training.runs.origin import read_origin, versions

FIGURES = {
    "loss": "loss",
    "val_perplexity": "dev perplexity",
    **{name: metric.label for name, metric in METRICS.items()},
    "val_loss": "dev loss",
    "learning_rate": "learning rate",
    "seconds": "seconds",
}


def write_card(files: RunFiles, config: Config, model: keras.Model) -> None:
    """Write the run's settings, figures and progress, in words."""
    origin, name = read_origin(files), files.path.absolute().name
    facts = {} if origin is None else asdict(origin)
    command = f"python {shlex.join(facts.pop('command'))}    # how it was begun" if facts else ""
    facts["versions"] = ", ".join(map(" ".join, versions().items()))
    facts["backend"] = keras.backend.backend()
    facts["parameters"] = f"{model.count_params():,}"
    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    fields = {
        **config.values(),
        "target": config.target,
        "name": name,
        "figures": _figures(files),
        "picture": "![Attention](attention.png)" if files.heat_map.is_file() else "",
        "facts": _table(["", ""], facts.items()),
        "run": shlex.quote(str(files.path)),
        "model": shlex.quote(name),
        "command": command,
    }
    write_text(files.card, Template(template).substitute(fields))


def _figures(files: RunFiles) -> str:
    """Return the table of all epochs, and of the mean that is kept if any; the kept row is bold."""
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
