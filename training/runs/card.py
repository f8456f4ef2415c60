"""A run's `README.md` and `curves.png`, updated after each epoch."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

import keras

from training.command.files import replacing, write_text
from training.config.schema import Config
from training.metrics import METRICS, deciding
from training.runs.files import Record, RunFiles, best, kept, read_history
from training.runs.origin import Origin, read_origin, versions

FIGURES = {
    "loss": "loss",
    "val_perplexity": "dev perplexity",
    **{name: metric.label for name, metric in METRICS.items()},
    "val_loss": "dev loss",
    "learning_rate": "learning rate",
    "seconds": "seconds",
}
FACTS = {  # of an origin
    "train": "pairs learned from",
    "dropped": "left out as too long or empty",
    "unusable": "lines without a pair",
    "dev": "dev sentences",
    "target_tokens": "target tokens an epoch",
    "corpus": "SHA-256 of train and dev",
    "vocabulary": "token ids of source and target",
    "init": "started from",
}


def write_card(files: RunFiles, config: Config, model: keras.Model) -> None:
    """Write the run's settings, figures and progress, in words and as curves.

    The curves need Matplotlib, and are left out where it is not installed.
    """
    history, origin, record = read_history(files.history), read_origin(files), kept(files)
    if importlib.util.find_spec("matplotlib"):
        with replacing(files.curves) as aside:
            draw_curves(history, config, aside)
    which = f"epoch {record.get('epoch')}"
    if epochs := record.get("epochs"):
        which = f"the mean weights of epochs {epochs[0]} to {epochs[-1]}"
    decided = (deciding(record), "val_perplexity", "val_loss")[config.keep_by == "perplexity" :]
    by = next(FIGURES[name] for name in decided if name in record)
    if config.keep_by == "last":
        by = "their place alone: they are the last"
    limit = f", texts by greedy search (validation_limit = {config.validation_limit})"
    pictures = [name for name in (files.curves, files.heat_map) if name.is_file()]
    fields = {
        **{
            key: getattr(config, key) for key in ("source", "target", "attention", "data", "epochs")
        },
        **{"name": files.path.absolute().name, "config": files.config.name},
        **{"done": len(history), "best": files.best.name, "which": which, "by": by},
        "limit": limit if config.target == "text" else "",
        "figures": _figures(record, history),
        "pictures": "\n\n".join(f"![{one.stem.capitalize()}]({one.name})" for one in pictures),
        "facts": _table(["", ""], _facts(config, origin, model.count_params()).items()),
        "commands": _commands(files, config, origin),
    }
    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    write_text(files.card, Template(template).substitute(fields))


def draw_curves(history: Sequence[Record], config: Config, path: Path) -> None:
    """Draw losses and scores over the epochs; a line marks the best epoch."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    panels = [["loss"], ["val_perplexity"], ["val_loss"], list(METRICS)]
    panels = [[key for key in keys if key in history[-1]] for keys in panels]
    panels = [keys for keys in panels if keys]
    figure = Figure(figsize=(4 * len(panels), 3.2), layout="constrained")
    epochs = [record["epoch"] for record in history]
    for axes, keys in zip(figure.subplots(1, len(panels)), panels, strict=True):
        for key in keys:
            values = [record.get(key) for record in history]
            axes.plot(epochs, values, marker=".", label=FIGURES[key])
        axes.axvline(best(history, config.keep_by)["epoch"], color="0.7", linestyle=":", zorder=0)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()
        if "val_perplexity" in keys:
            axes.set_yscale("log")
    figure.savefig(path, format="png", dpi=100)


def _figures(chosen: Mapping[str, object], history: Sequence[Record]) -> str:
    keys = [key for key in FIGURES if any(key in record for record in history)]
    mean: list[Any] = [{**chosen, "epoch": "mean"}] if "epochs" in chosen else []
    rows = []
    for record in (*history, *mean):
        mark = "**" if record["epoch"] in (chosen.get("epoch"), "mean") else ""
        cells = [str(record["epoch"]), *(f"{record[k]:.4g}" if k in record else "" for k in keys)]
        rows.append([cell and f"{mark}{cell}{mark}" for cell in cells])
    return _table(["epoch", *(FIGURES[key] for key in keys)], rows)


def _table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _facts(config: Config, origin: Origin | None, parameters: int) -> dict[str, object]:
    facts = {name: getattr(config, name) for name in ("extra_data", "dev", "test")}
    facts |= {label: getattr(origin, name, None) for name, label in FACTS.items()}
    if origin is not None:
        facts[FACTS["vocabulary"]] = " and ".join(f"{size:,}" for size in origin.vocabulary)
    facts |= {"parameters": parameters, "Keras backend": keras.backend.backend(), **versions()}
    return {
        label: f"{fact:,}" if isinstance(fact, int) else fact
        for label, fact in facts.items()
        if fact not in (None, "")
    }


def _commands(files: RunFiles, config: Config, origin: Origin | None) -> str:
    run, name = shlex.quote(str(files.path)), shlex.quote(files.path.absolute().name)
    form, colon, _ = config.data.partition(":")
    data = f"--data {form}:PATH" if colon and config.source != "text" else "--split dev"
    lines = [
        f"python -m training.evaluate --run {run} {data}",
        f"python -m serving.export --run {run} --output models/{name}",
        f"python -m training.train --resume --output {run}    # goes on where it stopped",
    ]
    if (config.source, config.target) == ("text", "text"):
        lines[1:1] = [f"python -m training.translate --run {run} < source.txt > target.txt"]
    if origin is not None and origin.command:
        lines.append(f"python {shlex.join(origin.command)}    # how it was begun")
    return "\n".join(lines)
