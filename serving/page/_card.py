"""Makes the card of a model, facts for users, from the manifest of its export."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path, PureWindowsPath
from typing import Any

from serving.api._export_files import read_json
from training.metrics import METRICS, deciding

FIGURES = {
    **{name: metric.label for name, metric in METRICS.items()},
    "exact": "Exact matches",
    "val_perplexity": "Perplexity",
}
# Matches phrasebook-en-fr and parallel:data/train.en,data/train.fr.
_LANGUAGES = re.compile(r"-([a-z]{2})-([a-z]{2})$|\.([a-z]{2}),.*\.([a-z]{2})$")


@dataclass(frozen=True)
class Card:
    """The facts about a model that the page shows.

    Attributes:
        lines: values by name, in the order of the page.
        languages: the codes of source and target, if the data's name has them.
        score: the dev score by which the weights were chosen.
        examples: inputs to begin with.
    """

    lines: dict[str, str] = field(default_factory=dict)
    languages: tuple[str, ...] = ()
    score: str = ""
    examples: tuple[str, ...] = ()


def read_card(manifest: Path) -> Card:
    """Return the card of an export, given its `manifest.json`.

    Raises ValueError if the file cannot be read or is not a manifest.
    """
    path = manifest.resolve()
    about = read_json(path.parent, path.name)
    try:
        return _card(about)
    except Exception as error:  # a damaged manifest may raise any class
        raise ValueError(f"{manifest} is not the manifest of an export") from error


def _card(about: dict[str, Any]) -> Card:
    run = about["runs"][0]
    config, kept = run["config"], run["kept"] or {}
    epochs = kept.get("epochs") or [kept.get("epoch")]
    which = f"epochs {epochs[0]} to {epochs[-1]}" if len(epochs) > 1 else f"epoch {epochs[0]}"
    figures = {name: f"{kept[key]:.4g}" for key, name in FIGURES.items() if key in kept}
    # A model of images has no recurrent encoder, one of labels no decoder.
    encoder = config.get("encoder") or "convolutional"
    decoder = f", {config['decoder']} decoder" if "decoder" in config else ""
    settings = about["settings"].items()
    lines = {
        "Run": _listed(each["name"] for each in about["runs"]),
        "Data": _named(config["data"]),
        "Attention": config["attention"],
        "Model": f"{encoder} encoder{decoder}",
        "Weights": f"{run['parameters']:,}",
        "Training": f"{len(run['history'])} epochs",
        **{f"{name}, {which}, dev": value for name, value in figures.items()},
        "Search": _listed(f"{key.replace('_', ' ')} {value}" for key, value in settings if value),
        "Exported": str(about["created"]),
        "Versions": _listed(f"{key} {value}" for key, value in about["versions"].items()),
    }
    # The score by which the epoch was chosen.
    by_loss = "perplexity" in (config.get("keep_epoch") or config.get("keep_by", ""))
    names = ["val_perplexity"] if by_loss else [deciding(kept) or "", *FIGURES]
    by = next((FIGURES[name] for name in names if name in kept), "")
    languages = _LANGUAGES.search(config["data"])
    return Card(
        lines,
        tuple(filter(None, languages.groups())) if languages else (),
        f"{by} {figures[by]} on dev" if by else "",
        tuple(map(str, about.get("examples", ()))),
    )


def _named(data: str) -> str:
    """Return a data SPEC with file names instead of paths, which visitors should not see."""
    kind, colon, paths = data.partition(":")
    names = ",".join(PureWindowsPath(path).name for path in paths.split(","))  # splits at / and \
    return f"{kind}{colon}{names}"


def _listed(values: Any) -> str:
    return ", ".join(map(str, values))
