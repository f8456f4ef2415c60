"""The card of a model: an export's manifest, for people to read."""

from __future__ import annotations

import json
from pathlib import Path, PureWindowsPath
from typing import Any

from training.runs.history import best

FIGURES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "wer": "WER",
    "per": "PER",
    "exact": "Exact",
    "cer": "CER",
    "auc": "AUC",
    "val_perplexity": "Perplexity",
}


def read_card(manifest: Path) -> dict[str, str]:
    """Return the lines of a card, name and value, in the order to be read.

    Args:
        manifest: `assets.extra/manifest.json` of an export.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if it is not a manifest.
    """
    try:
        found = json.loads(manifest.read_text(encoding="utf-8"))
        run = found["runs"][0]
        card = {"Run": _listed(each["name"] for each in found["runs"]), **_of_run(run)}
        settings = {key: value for key, value in found["settings"].items() if value is not None}
        card["Search"] = _listed(f"{key.replace('_', ' ')} {v}" for key, v in settings.items())
        card["Exported"] = str(found["created"])
        card["Versions"] = _listed(f"{key} {value}" for key, value in found["versions"].items())
    except (UnicodeDecodeError, ValueError, KeyError, IndexError, TypeError, AttributeError) as e:
        raise ValueError(f"{manifest} is not the manifest of an export") from e
    return card


def _of_run(run: dict[str, Any]) -> dict[str, str]:
    config, history = run["config"], run["history"]
    # Exports of before have no record of the weights that were kept.
    exported = run.get("kept") or best(history, config.get("keep_by", "auto"))
    card = {"Data": _named(config["data"]), "Attention": config["attention"]}
    # A model of images has no recurrent encoder, one of labels no decoder.
    encoder = config.get("encoder") or "convolutional"
    decoder = f", {config['decoder']} decoder" if "decoder" in config else ""
    card["Model"] = f"{encoder} encoder{decoder}"
    card["Weights"] = f"{run['parameters']:,}"
    card["Training"] = f"{len(history)} epochs"
    epochs: Any = exported.get("epochs")
    which = f"epochs {epochs[0]} to {epochs[-1]}" if epochs else f"epoch {exported['epoch']}"
    for key, name in FIGURES.items():
        if key in exported:
            card[f"{name}, {which}, dev"] = f"{exported[key]:.4g}"
    return card


def _named(data: str) -> str:
    """Return a data SPEC with the names of its files: visitors are not told where they lie."""
    kind, colon, paths = data.partition(":")
    names = ",".join(PureWindowsPath(path).name for path in paths.split(","))  # of any system
    return f"{kind}{colon}{names}"


def _listed(values: Any) -> str:
    return ", ".join(map(str, values))
