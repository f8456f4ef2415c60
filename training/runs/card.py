"""A run's origin, and its `README.md` and `curves.png`, updated after each epoch."""

from __future__ import annotations

import importlib.util
import platform
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import keras

from training.command.errors import RunError
from training.command.files import read_json, replacing, write_json, write_text
from training.config.schema import Config
from training.metrics import METRICS, deciding
from training.runs.files import Record, RunFiles, best, kept, read_history

PACKAGES = "keras-attention-rnn keras tensorflow tensorflow-text jax torch numpy"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that are installed."""
    installed = {"python": platform.python_version()}
    for name in PACKAGES.split():
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


@dataclass(frozen=True)
class Origin:
    """The beginning of a run."""

    data: str  # SPEC of the corpus
    corpus: str  # SHA-256 of all training and dev sentences, see `Source.fingerprint`
    train: int  # sentence pairs learned from
    dropped: int  # pairs left out of training: too long, or empty on one side
    unusable: int  # lines of the files that hold no pair
    dev: int  # sentences that progress is measured on
    target_tokens: int  # of an epoch
    vocabulary: tuple[int, int]  # token ids of the source and of the target
    init: str | None  # the run whose weights it started from
    # of pairs with letters as source: those that 99 % have at most, and the target's tokens a
    # letter that all but 0.2 % have at least
    longest: int = 0
    fewest: float = 0.0
    command: list[str] = field(default_factory=lambda: sys.orig_argv[1:])  # what was typed
    # when, UTC
    begun: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    # of the packages that matter, where they are installed
    versions: dict[str, str] = field(default_factory=versions)


def write_origin(files: RunFiles, origin: Origin) -> None:
    """Write the origin of a run."""
    write_json(files.origin, asdict(origin))


def read_origin(files: RunFiles) -> Origin | None:
    """Return the origin of a run; None where it has no such file."""
    if not files.origin.is_file():
        return None
    try:
        return Origin(**read_json(files.origin))
    except TypeError as error:
        raise RunError(f"cannot read {files.origin}: {error}") from None


def check_corpus(files: RunFiles, spec: str, corpus: str, force: bool) -> None:
    """Refuse to go on with other sentences than the run began with, unless `force` takes them.

    `corpus` is their fingerprint as they are read again.
    """
    origin = read_origin(files)
    if origin is None or origin.corpus == corpus:
        return
    if not force:
        raise RunError(
            f"{spec} no longer has the sentences that {files.path} began with: --force goes on "
            "with the new ones"
        )
    write_origin(files, replace(origin, corpus=corpus))


FIGURES = {
    "loss": "loss",
    "val_perplexity": "dev perplexity",
    **{name: metric.label for name, metric in METRICS.items()},
    "val_loss": "dev loss",
    "learning_rate": "learning rate",
    "seconds": "seconds",
}
DEV_LOSSES = ("val_perplexity", "val_loss")


def write_card(files: RunFiles, config: Config, model: keras.Model) -> None:
    """Write the run's settings, figures and progress, in words and as curves.

    The curves need Matplotlib, and are left out where it is not installed.
    """
    history, origin, record = read_history(files.history), read_origin(files), kept(files)
    if importlib.util.find_spec("matplotlib"):
        with replacing(files.curves) as aside:
            draw_curves(history, config, aside)
    epochs = record.get("epochs", [])
    which = f"the mean weights of epochs {epochs[0]} to {epochs[-1]}" if epochs else ""
    loss = "val_perplexity" if "val_perplexity" in record else "val_loss"
    by = FIGURES[(config.keep_by != "perplexity" and deciding(record)) or loss]
    if config.keep_by == "last":
        by = "their place alone: they are the last"
    attention = "no attention" if config.attention == "none" else f"{config.attention} attention"
    target, note = "an outcome's probability", ""
    if config.target == "text":
        target, note = "text", "; texts are those of greedy search"
        if config.validation_limit:
            note += f" for at most {config.validation_limit:,} of them"
    pictures = [name for name in (files.curves, files.heat_map) if name.is_file()]
    shown = "\n\n".join(f"![{picture.stem.capitalize()}]({picture.name})" for picture in pictures)
    text = f"""# {files.path.absolute().name}

From {config.source} to {target}, with {attention}, trained on `{config.data}`.
All settings are in `{files.config.name}`.

{len(history)} of {config.epochs} epochs are done. Kept in `{files.best.name}`: \
{which or f"epoch {record['epoch']}"}, chosen by {by}.

## Figures

Of the dev set{note}.

{_figures(record, history)}

{shown}

## Data, model and versions

{_table(["", ""], _facts(config, origin, model.count_params()).items())}

## Commands

```
{_commands(files, config, origin)}
```
"""
    write_text(files.card, text)


def draw_curves(history: Sequence[Record], config: Config, path: Path) -> None:
    """Draw losses and scores over the epochs; a line marks the best epoch."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    scores = [key for key in METRICS if key in history[-1]]
    panels = [["loss"], *([k] for k in DEV_LOSSES if k in history[-1]), scores]
    panels = [keys for keys in panels if keys]
    figure = Figure(figsize=(4 * len(panels), 3.2), layout="constrained")
    epochs = [record["epoch"] for record in history]
    marked = best(history, config.keep_by)["epoch"]
    for axes, keys in zip(figure.subplots(1, len(panels)), panels, strict=True):
        for key in keys:
            values = [record.get(key) for record in history]
            axes.plot(epochs, values, marker=".", label=FIGURES[key])
        axes.axvline(marked, color="0.7", linestyle=":", zorder=0)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend()
        if "val_perplexity" in keys:
            axes.set_yscale("log")
    figure.savefig(path, format="png", dpi=100)


def _figures(chosen: Mapping[str, object], history: Sequence[Record]) -> str:
    keys = [key for key in FIGURES if any(key in record for record in history)]
    mean: Any = [{**chosen, "epoch": "mean"}] if "epochs" in chosen else []
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
    specs = {name: getattr(config, name) for name in ("extra_data", "dev", "test")}
    facts: dict[str, object] = {name: f"`{spec}`" for name, spec in specs.items() if spec}
    if origin is not None:
        facts |= {
            "pairs learned from": f"{origin.train:,}",
            "left out as too long or empty": f"{origin.dropped:,}",
            "lines without a pair": f"{origin.unusable:,}",
            "dev sentences": f"{origin.dev:,}",
            "target tokens an epoch": f"{origin.target_tokens:,}",
            "SHA-256 of train and dev": f"`{origin.corpus}`",
            "vocabulary": " and ".join(f"{size:,}" for size in origin.vocabulary),
            **({"started from": f"`{origin.init}`"} if origin.init else {}),
        }
    backend = keras.backend.backend()
    return {**facts, "parameters": f"{parameters:,}", "Keras backend": backend, **versions()}


def _commands(files: RunFiles, config: Config, origin: Origin | None) -> str:
    run, name = shlex.quote(str(files.path)), shlex.quote(files.path.absolute().name)
    form, colon, _ = config.data.partition(":")
    data = f"--data {form}:PATH" if colon and config.source != "text" else "--split dev"
    lines = [f"python -m training.evaluate --run {run} {data}"]
    if (config.source, config.target) == ("text", "text"):
        lines.append(f"python -m training.translate --run {run} < source.txt > target.txt")
    lines += [
        f"python -m serving.export --run {run} --output models/{name}",
        f"python -m training.train --resume --output {run}    # goes on where it stopped",
    ]
    if origin is not None and origin.command:
        lines.append(f"python {shlex.join(origin.command)}    # how it was begun")
    return "\n".join(lines)
