"""Joey NMT, trained for quality_peers.py: python -m peers.quality_joeynmt TASK MODEL.

Its `train` and `test`, with the recipes of its configurations for IWSLT'14 German to English,
configs/iwslt14_deen_bpe.yaml and configs/transformer_iwslt14_deen_bpe.yaml, but that the RNN is
validated every 500 steps: 2,000 are too few in this time. The Transformer's 1,000 are, too, but a
validation takes it two minutes on a core. It is of the perplexity; the best weights there are kept,
or the last where it did not come to one.
"""

from __future__ import annotations

import inspect
import logging
import os
import signal
from pathlib import Path
from typing import Any

import torch
import yaml
from joeynmt import builders
from joeynmt.config import load_config
from joeynmt.model import build_model
from joeynmt.prediction import test
from joeynmt.training import train
from joeynmt.vocabulary import Vocabulary
from parts.quality import Task, nearest_width, read_lines, serve, timed
from peers.joeynmt_symbols import SYMBOLS

RECIPES: dict[str, dict[str, Any]] = {
    "RNN": {
        "learning_rate": 2e-4,
        "batch_size": 80,
        "batch_type": "sentence",
        "patience": 8,
        "validation_freq": 500,
    },
    "Transformer": {
        "adam_betas": [0.9, 0.999],
        "learning_rate": 3e-4,
        "label_smoothing": 0.1,
        "batch_size": 4096,
        "batch_type": "token",
        "patience": 5,
        "validation_freq": 1000,
    },
}


def layers(name: str, units: int) -> dict[str, Any]:
    """The model's configuration."""
    embeddings = {"embedding_dim": units, "scale": name == "Transformer"}
    if name == "Transformer":
        side = {
            "type": "transformer",
            "num_layers": 3,  # of 6, or its embeddings would be narrow
            "num_heads": 4,
            "embeddings": {**embeddings, "dropout": 0.0},
            "hidden_size": units,
            "ff_size": 4 * units,
            "dropout": 0.3,
        }
        initial = {"initializer": "xavier", "embed_initializer": "xavier", "tied_softmax": True}
        return {**initial, "bias_initializer": "zeros", "encoder": side, "decoder": dict(side)}
    side = {"type": "recurrent", "rnn_type": "gru", "num_layers": 1, "dropout": 0.0}
    encoder = {**side, "embeddings": dict(embeddings), "hidden_size": units, "bidirectional": True}
    decoder = {
        **side,
        "embeddings": dict(embeddings),
        "hidden_size": 2 * units,
        "hidden_dropout": 0.2,
        "input_feeding": True,
        "init_hidden": "bridge",
        "attention": "bahdanau",
    }
    return {"encoder": encoder, "decoder": decoder}


def configuration(task: Task, name: str, units: int) -> dict[str, Any]:
    """All that its commands read."""
    data: dict[str, Any] = {
        "train": task.file("train"),
        "dev": task.file("valid"),
        "dataset_type": "plain",
    }
    for key, side in (("src", "source"), ("trg", "target")):
        data[key] = {
            "lang": side,
            "level": "word",
            "max_length": task.longest + 1,
            "voc_file": task.file(f"vocabulary.{side}"),
        }
    return {
        "name": name,
        "model_dir": task.own("model"),
        "use_cuda": False,
        "random_seed": task.seed,
        "data": data,
        "model": layers(name, units),
        "training": {
            "optimizer": "adam",
            "normalization": "tokens",
            "loss": "crossentropy",
            "scheduling": "plateau",
            "decrease_factor": 0.7,
            "learning_rate_min": 1e-8,
            "early_stopping_metric": "ppl",
            "epochs": 10**6,
            "updates": 10**9,
            "logging_freq": 100,
            "keep_best_ckpts": 1,
            "print_valid_sents": [0],
            **RECIPES[name],
            **({"learning_rate": task.learning_rate} if task.learning_rate else {}),
        },
        "testing": {
            "beam_size": task.beam_width,
            "beam_alpha": 1.0,
            "batch_size": task.batch_size,
            "batch_type": "sentence",
            "max_output_length": task.longest,
            "generate_unk": False,
            "eval_metrics": [],
        },
    }


def mend() -> None:
    """Let it run with a newer PyTorch, whose scheduler has no `verbose`."""
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    if "verbose" not in inspect.signature(plateau).parameters:
        builders.ReduceLROnPlateau = lambda verbose=None, **options: plateau(**options)


def count(task: Task, name: str, units: int) -> int:
    """Weights of the model of a width."""
    vocabularies = [
        Vocabulary(read_lines(task.file(f"vocabulary.{side}")), SYMBOLS)
        for side in ("source", "target")
    ]
    model = build_model(layers(name, units), *vocabularies)
    return sum(weight.numel() for weight in model.parameters())


def run(task: Task, name: str) -> dict[str, float | None]:
    """Train and translate."""
    mend()
    units = nearest_width(lambda width: count(task, name, width), task.weights)
    folder = Path(task.own("model"))
    folder.mkdir()
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(configuration(task, name, units)))

    def train_in_time() -> None:
        signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C would end it
        signal.setitimer(signal.ITIMER_REAL, task.seconds)
        train(rank=0, world_size=None, cfg=load_config(str(file)), skip_test=True)
        signal.setitimer(signal.ITIMER_REAL, 0)

    seconds = timed(train_in_time)
    last = torch.load(folder / "latest.ckpt", weights_only=False)["stats_state"]
    kept = folder / "best.ckpt"
    config = load_config(str(file))
    config["data"]["dev"] = task.file("dev")
    config["testing"]["load_model"] = str(kept if kept.exists() else folder / "latest.ckpt")
    translation_s = timed(lambda: test(config, output_path=task.own("found")))
    os.rename(task.own("found.dev"), task.own("hypotheses"))
    return {
        "weights": count(task, name, units),
        "seconds": seconds,
        "steps": last["steps"],
        "epochs": last["epochs"],
        "translation_s": translation_s,
    }


if __name__ == "__main__":
    logging.getLogger().setLevel(logging.INFO)
    serve(run)
