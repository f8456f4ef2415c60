"""Models of images: score functions, and no attention.

Additive, general and dot attention, and the mean of the grid in place of attention, at the same
size, steps and learning rate, for each seed. Scores are of the test split; the figure lays weights
over images. Dot attention wants a decoder as wide as the grid's places: the width of the last
convolution and 16.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lab import shared
from training.command.errors import UserError
from training.config.schema import Config, load_preset, override
from training.data.read._sentences import Split
from training.decode.settings import SearchSettings
from training.decode.texts import make_attender
from training.runs.files import best, read_history
from training.runs.run import Run
from training.score._evaluation import evaluate
from training.sources._source import Source

SEEDS = 3  # trainings of each
SHOWN = 3  # images in the figure
ATTENTIONS = ("additive", "general", "dot", "none")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the study's options."""
    shared.add_models(parser, "captcha")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run the study; return the values that its last line prints."""
    base = override(load_preset(options.preset), options.settings)
    if base.source != "image":
        raise UserError(f"--preset expected source = image. Received: {base.source}")
    seeds = range(base.seed, base.seed + SEEDS)
    models = {
        f"{name}-{seed}": [f"attention={name}", f"seed={seed}"]
        for name in ATTENTIONS
        for seed in seeds
    }
    runs = shared.collect(options, models)
    rows = []
    for name, found in runs.items():
        split = _test(found.source, found.config)
        result = shared.kept(
            options.output / "evaluations" / f"{name}.json",
            shared.key_of(found),
            partial(evaluate, [found], split, SearchSettings(beam_width=1)),
        )
        history = read_history(found.files.history)
        rows.append(
            {
                "model": name.rpartition("-")[0],
                "seed": found.config.seed,
                "weights": found.model.count_params(),
                "exact": result["exact"],
                "cer": result["cer"],
                "pointing": result.get("pointing"),
                "epoch": best(history)["epoch"],
                "minutes": round(sum(record["seconds"] for record in history) / 60, 1),
            }
        )
    shared.write_table(options.output / "regions.csv", rows)
    shown = {name: found for name, found in runs.items() if found.config.seed == seeds[0]}
    _draw(shown, options.output / "regions.png")
    return {"data": base.data, "rows": rows}


def _test(source: Source, config: Config, limit: int | None = None) -> Split:
    split: Split = source.load_split(config, config.data, "test", limit=limit)
    return split


def _draw(runs: dict[str, Run], path: Path) -> None:
    """Draw the weights of each model that attends over the same images, a row for each."""
    attending = {name: found for name, found in runs.items() if found.config.attention != "none"}
    if not attending:
        return
    first = next(iter(attending.values()))
    split = _test(first.source, first.config, SHOWN)
    texts = [references[0] for references in split.references]
    images = first.source.rows(split.sources).read(np.arange(SHOWN))
    columns = max(map(len, texts))
    figure, axes = shared.new_figure(SHOWN * len(attending), columns, 1.6, 0.8)
    for row, (name, found) in enumerate(attending.items()):
        weights = [each.weights for each in make_attender([found])(split.sources, texts)]
        for number in range(SHOWN):
            line = axes[row * SHOWN + number]
            line[0].set_ylabel(name if not number else "")
            for column, one in enumerate(line):
                one.set_xticks([])
                one.set_yticks([])
                if column >= len(texts[number]):
                    one.axis("off")
                    continue
                height, width = images.shape[1:3]
                extent = (0, width, height, 0)
                one.imshow(images[number].squeeze(), cmap="gray", extent=extent)
                one.imshow(weights[number][column], cmap="Reds", alpha=0.6, extent=extent)
                one.set_title(texts[number][column], fontsize=8)
    figure.savefig(path, dpi=120)
