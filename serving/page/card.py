"""The card of a model: an export's manifest, for people to read."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath
from typing import Any

from training.metrics import METRICS, deciding

FIGURES = {
    **{name: metric.label for name, metric in METRICS.items()},
    "exact": "Exact matches",
    "val_perplexity": "Perplexity",
}
# As in phrasebook-en-fr, and in parallel:data/train.en,data/train.fr.
_LANGUAGES = re.compile(r"-([a-z]{2})-([a-z]{2})$|\.([a-z]{2}),.*\.([a-z]{2})$")


@dataclass(frozen=True)
class Card:
    """The facts of a model that people are told.

    `lines` are values by name, in the order to be read; `languages` are the codes of source and
    target, if the data's name has them; `score` is the figure by which the weights were chosen.
    """

    lines: dict[str, str] = field(default_factory=dict)
    languages: tuple[str, ...] = ()
    score: str = ""
    examples: tuple[str, ...] = ()


def read_card(manifest: Path) -> Card:
    """Read the manifest of an export, `manifest.json`.

    Raises OSError if the file cannot be read; ValueError if it is not a manifest.
    """
    try:
        about = json.loads(manifest.read_text(encoding="utf-8"))
        run = about["runs"][0]
        figures, which, deciding = _figures(run)
        languages = _LANGUAGES.search(run["config"]["data"])
        lines = {"Run": _listed(each["name"] for each in about["runs"]), **_of_run(run)}
        lines |= {f"{name}, {which}, dev": value for name, value in figures.items()}
        settings = about["settings"].items()  # of which some are off
        lines["Search"] = _listed(f"{key.replace('_', ' ')} {v}" for key, v in settings if v)
        lines["Exported"] = str(about["created"])
        lines["Versions"] = _listed(f"{key} {value}" for key, value in about["versions"].items())
        return Card(
            lines,
            tuple(filter(None, languages.groups())) if languages else (),
            f"{deciding} {figures[deciding]} on dev" if deciding else "",
            tuple(map(str, about.get("examples", ()))),
        )
    except OSError:
        raise
    except Exception as error:  # a damaged manifest may end in any of them
        raise ValueError(f"{manifest} is not the manifest of an export") from error


def _of_run(run: dict[str, Any]) -> dict[str, str]:
    config = run["config"]
    card = {"Data": _named(config["data"]), "Attention": config["attention"]}
    # A model of images has no recurrent encoder, one of labels no decoder.
    encoder = config.get("encoder") or "convolutional"
    decoder = f", {config['decoder']} decoder" if "decoder" in config else ""
    card["Model"] = f"{encoder} encoder{decoder}"
    card["Weights"] = f"{run['parameters']:,}"
    card["Training"] = f"{len(run['history'])} epochs"
    return card


def _figures(run: dict[str, Any]) -> tuple[dict[str, str], str, str]:
    """Return the figures of the weights that were exported, their epochs, and the deciding figure.

    The deciding figure is the one that the epoch was chosen by.
    """
    record = run["kept"] or {}
    epochs = record.get("epochs")
    which = f"epochs {epochs[0]} to {epochs[-1]}" if epochs else f"epoch {record.get('epoch')}"
    figures = {name: f"{record[key]:.4g}" for key, name in FIGURES.items() if key in record}
    names = [deciding(record) or "", *FIGURES]
    if run["config"].get("keep_by") == "perplexity":
        names = ["val_perplexity"]
    return figures, which, next((FIGURES[name] for name in names if name in record), "")


def _named(data: str) -> str:
    """Return a data SPEC with the names of its files: visitors are not told where they lie."""
    kind, colon, paths = data.partition(":")
    names = ",".join(PureWindowsPath(path).name for path in paths.split(","))  # of any system
    return f"{kind}{colon}{names}"


def _listed(values: Any) -> str:
    return ", ".join(map(str, values))
