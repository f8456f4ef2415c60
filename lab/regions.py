"""Models of images: score functions, no attention, and a head without a decoder.

Additive, general and dot attention, the mean of the grid in place of attention, and connectionist
temporal classification (CTC) over the columns of the same convolutions, at the same size, steps and
learning rate, for each seed. Scores are of the test split; the figure lays weights over images. Dot
attention wants a decoder as wide as the grid's places: the width of the last convolution and 16.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np

from lab import ctc, shared
from training.command.errors import UserError
from training.config.load import load_preset, override
from training.config.schema import Config
from training.data.ids import END_ID
from training.data.pair_files import Split
from training.data.pipeline import make_dataset, reader
from training.data.tokenizers import Tokenizer
from training.decode.settings import Search
from training.fit.optimizer import ClippedAdam, make_schedule
from training.metrics import score
from training.runs.history import best, read_history
from training.runs.run import Run
from training.runs.start import make_sides
from training.score.evaluation import evaluate
from training.score.pointing import region_weights
from training.sources.batches import make_batches
from training.sources.kinds import source_class
from training.sources.source import Source

SEEDS = 3  # trainings of each
SHOWN = 3  # images in the figure
ATTENTIONS = ("additive", "general", "dot", "none")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the study's options."""
    shared.add_models(parser, "captcha")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Do the study; return what its last line says."""
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
            partial(evaluate, [found], split, Search(beam_width=1)),
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
    for seed in seeds:
        config = override(base, [f"seed={seed}"])
        file = options.output / "evaluations" / f"ctc-{seed}.json"
        rows.append(shared.kept(file, config.values(), partial(_ctc_row, config)))
    shared.write_table(options.output / "regions.csv", rows)
    shown = {name: found for name, found in runs.items() if found.config.seed == seeds[0]}
    _draw(shown, options.output / "regions.png")
    return {"data": base.data, "rows": rows}


def _test(source: Source, config: Config, limit: int | None = None) -> Split:
    split: Split = source.load_split(config, config.data, "test", limit=limit)
    return split


def _ctc_row(config: Config) -> dict[str, Any]:
    """Train and score a head without a decoder."""
    print(f"ctc: training, seed {config.seed}", flush=True)
    keras.backend.clear_session()
    keras.utils.set_random_seed(config.seed)
    data, _ = source_class(config).load_training(config)
    source, target = make_sides(config, data)
    assert target is not None
    model, minutes = _train_ctc(config, data, source, target)
    split = _test(source, config)
    hypotheses = _read_ctc(model, source, target, split)
    scores = score("characters", hypotheses, split.references)
    return {
        "model": "ctc",
        "seed": config.seed,
        "weights": model.count_params(),
        "exact": scores["exact"],
        "cer": scores["cer"],
        "pointing": None,
        "epoch": config.epochs,
        "minutes": minutes,
    }


def _train_ctc(
    config: Config, data: Split, source: Source, target: Tokenizer
) -> tuple[keras.Model, float]:
    batches = make_batches(config, data, source, target, training=True)
    model = ctc.build_ctc(config, target.vocab_size)
    rate = make_schedule(config, batches.statistics.steps_per_epoch)
    model.compile(ClippedAdam(rate, config.clip_norm), ctc.ctc_loss, jit_compile=False)
    started = time.perf_counter()
    for epoch in range(config.epochs):
        losses = []
        for inputs, labels in make_dataset(batches, epoch).as_numpy_iterator():
            wanted = np.where(labels == END_ID, ctc.BLANK, labels)
            losses.append(float(model.train_on_batch(inputs["source"], wanted)))
        print(f"ctc: epoch {epoch + 1}/{config.epochs}  loss {np.mean(losses):.4g}", flush=True)
    return model, round((time.perf_counter() - started) / 60, 1)


def _read_ctc(model: keras.Model, source: Source, target: Tokenizer, split: Split) -> list[str]:
    read = reader(source.rows(split.sources), 1)
    hypotheses = []
    for first in range(0, len(split.sources), 250):
        chosen = np.arange(first, min(first + 250, len(split.sources)))
        ids = ctc.said(model.predict_on_batch(read(chosen[:, None], 1)))
        found = target.detokenize(ids).numpy()
        hypotheses += [text.decode("utf-8", errors="replace") for text in found]
    return hypotheses


def _draw(runs: dict[str, Run], path: Path) -> None:
    """Draw the weights of each model that attends over the same images, a row for each."""
    attending = {name: found for name, found in runs.items() if found.config.attention != "none"}
    if not attending:
        return
    first = next(iter(attending.values()))
    split = _test(first.source, first.config, SHOWN)
    texts = [references[0] for references in split.references]
    images = reader(first.source.rows(split.sources), 1)(np.arange(SHOWN)[:, None], 1).numpy()
    columns = max(map(len, texts))
    figure, axes = shared.new_figure(SHOWN * len(attending), columns, 1.6, 0.8)
    for row, (name, found) in enumerate(attending.items()):
        weights = region_weights([found], split.sources, texts)
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
