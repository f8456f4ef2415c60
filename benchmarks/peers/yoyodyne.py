"""yoyodyne's commands, which pronunciation_peers.py starts in its environment.

`maxwell-train` (the costs of edits, for the transducer), `fit` and `predict`. Models and the
trainer are those of its example configurations, `configs/*.yaml` of its repository, with the batch
sizes that are named there, or its default; ", Adam" is a model with the optimizer that it has
where none is named, which its examples recommend, too. The checkpoint with the highest accuracy on
dev is kept, as there; early stopping and the most epochs are left out for a limit of processor
time.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers.environments import peer_environment

LONGEST = 64  # symbols of a word, on either side; yoyodyne refuses longer ones
Settings = dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """How a model is trained.

    Attributes:
        model: its class and the arguments of that.
        batch_size: words a step.
        beams: whether it has a beam search.
        edits: whether it learns from costs of edits.
    """

    model: Settings
    batch_size: int
    beams: bool = False
    edits: bool = False


def _lstm(name: str, embeddings: int, units: int, dropout: float, **others: object) -> Settings:
    sizes = {"dropout": dropout, "embedding_size": embeddings, "hidden_size": units}
    encoder = {"class_path": "yoyodyne.models.modules.LSTMEncoder", "init_args": sizes}
    decoder = {
        "decoder_dropout": dropout,
        "decoder_hidden_size": units,
        "embedding_size": embeddings,
    }
    arguments = {"source_encoder": encoder, **decoder, **others}
    return {"class_path": f"yoyodyne.models.{name}", "init_args": arguments}


def _optimizer(name: str, rate: float) -> Settings:
    return {"class_path": f"torch.optim.{name}", "init_args": {"lr": rate}}


_ADADELTA, _ADAM = _optimizer("Adadelta", 1.0), _optimizer("Adam", 1e-3)
_TRANSFORMER = {
    "class_path": "yoyodyne.models.TransformerModel",
    "init_args": {
        "source_encoder": {
            "class_path": "yoyodyne.models.modules.TransformerEncoder",
            "init_args": {"dropout": 0.3, "embedding_size": 256, "hidden_size": 1024, "layers": 4},
        },
        "decoder_dropout": 0.3,
        "decoder_hidden_size": 100,
        "decoder_layers": 4,
        "embedding_size": 256,
        "label_smoothing": 0.1,
        "optimizer": _ADAM,
        "scheduler": {
            "class_path": "yoyodyne.schedulers.WarmupInverseSquareRoot",
            "init_args": {"warmup_epochs": 10},
        },
    },
}
_SOFT = ("SoftAttentionLSTMModel", 300, 100, 0.3)
_HARD = ("HardAttentionLSTMModel", 200, 400, 0.3)
_TRANSDUCER = ("TransducerLSTMModel", 300, 100, 0.1)
RECIPES = {
    "soft attention LSTM": Recipe(_lstm(*_SOFT, optimizer=_ADADELTA), 20, beams=True),
    "soft attention LSTM, Adam": Recipe(_lstm(*_SOFT, optimizer=_ADAM), 32, beams=True),
    "hard monotonic LSTM": Recipe(
        _lstm(*_HARD, attention_context=1, enforce_monotonic=True, optimizer=_ADAM), 32
    ),
    "transducer LSTM": Recipe(_lstm(*_TRANSDUCER, optimizer=_ADADELTA), 16, edits=True),
    "transducer LSTM, Adam": Recipe(_lstm(*_TRANSDUCER, optimizer=_ADAM), 32, edits=True),
    "Transformer": Recipe(_TRANSFORMER, 100, beams=True),
}


def configuration(recipe: Recipe, data: Path, folder: Path, seconds: float, seed: int) -> Settings:
    """Return all that its commands read.

    Args:
        recipe: of the model.
        data: folder with `train.tsv` and `dev.tsv`: a word, a tab, its phones between spaces.
        folder: where all is kept.
        seconds: of processor time, until training ends.
        seed: of all that is drawn at random.
    """
    model = {**recipe.model, "init_args": dict(recipe.model["init_args"])}
    if recipe.edits:
        model["init_args"]["sed_path"] = str(folder / "edits.pkl")
    clock = {"class_path": "peers.yoyodyne_clock.Clock", "init_args": {"seconds": seconds}}
    logger = "lightning.pytorch.loggers.CSVLogger"
    return {
        "seed_everything": seed,
        "model": model,
        "data": {
            "model_dir": str(folder),
            "train": str(data / "train.tsv"),
            "val": str(data / "dev.tsv"),
            "predict": str(data / "dev.tsv"),
            "target_sep": " ",
            "batch_size": recipe.batch_size,
            "max_source_length": LONGEST,
            "max_target_length": LONGEST,
        },
        "trainer": {
            "accelerator": "cpu",
            "callbacks": [clock],
            "enable_progress_bar": False,
            "gradient_clip_val": 3,
            "logger": {"class_path": logger, "init_args": {"save_dir": str(folder)}},
            "max_epochs": -1,
        },
        "checkpoint": {
            "dirpath": str(folder),
            "filename": "{epoch}",
            "mode": "max",
            "monitor": "val_accuracy",
        },
        "prediction": {"path": str(folder / "predictions.tsv")},
    }


class Peer:
    """One of yoyodyne's models.

    Args:
        python: that of its environment.
        name: of the model, in RECIPES.
        data: see `configuration`.
        folder: where all is kept, `log.txt` too.
    """

    def __init__(self, python: str, name: str, data: Path, folder: Path) -> None:
        self.recipe = RECIPES[name]
        self.commands, self.data, self.folder = Path(python).parent, data, folder
        self.config = folder / "config.yaml"

    def prepare(self) -> None:
        """Learn the costs of edits, where the model takes any."""
        if self.recipe.edits:
            files = ["--train", str(self.data / "train.tsv"), "--target_sep", " "]
            self._run("maxwell-train", *files, "--output", str(self.folder / "edits.pkl"))

    def train(self, seconds: float, seed: int) -> None:
        """Train for so much processor time, that of starting included."""
        settings = configuration(self.recipe, self.data, self.folder, seconds, seed)
        self.config.write_text(json.dumps(settings, indent=1))  # JSON is YAML, too
        self._run("yoyodyne", "fit", "--config", str(self.config))

    def predict(self, beam_width: int) -> list[str]:
        """Return the phones of each word of dev, said by the best checkpoint."""
        found = ["--config", str(self.config), "--ckpt_path", str(best_checkpoint(self.folder))]
        beams = ["--model.init_args.beam_width", str(beam_width)] if self.recipe.beams else []
        self._run("yoyodyne", "predict", *found, *beams)
        return read_predictions(self.folder / "predictions.tsv")

    def epochs(self) -> int:
        """Return how many epochs training began."""
        (metrics,) = sorted(self.folder.glob("lightning_logs/version_0/metrics.csv"))
        with metrics.open(newline="") as file:
            return 1 + max(int(row["epoch"]) for row in csv.DictReader(file))

    def _run(self, command: str, *arguments: str) -> None:
        with (self.folder / "log.txt").open("a") as log:
            done = subprocess.run(
                [str(self.commands / command), *arguments],
                env=peer_environment(),
                stdout=log,
                stderr=log,
            )
        if done.returncode:
            raise RuntimeError(f"{command} ended with status {done.returncode}")


def best_checkpoint(folder: Path) -> Path:
    """Return the checkpoint that was kept.

    Raises:
        RuntimeError: if there is none: no epoch ended.
    """
    found = [path for path in folder.glob("*.ckpt") if re.fullmatch(r"epoch=\d+", path.stem)]
    if not found:
        raise RuntimeError("the time was not enough for one epoch")
    return max(found, key=lambda path: path.stat().st_mtime)


def read_predictions(path: Path) -> list[str]:
    """Return the phones of each word: a line, or the first of a beam's columns."""
    with path.open(encoding="utf-8", newline="") as file:
        return [row[0] if row else "" for row in csv.reader(file, delimiter="\t")]


def write_pairs(path: Path, words: Iterable[str], phones: Iterable[str]) -> None:
    """Write words and their phones as it reads them."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows(
            zip(words, phones, strict=True)
        )
