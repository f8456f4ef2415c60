"""OpenNMT-tf, trained for quality_peers.py: python -m peers.quality_opennmt_tf TASK MODEL.

Its `Runner` trains and infers. Recipes are the models' own automatic configuration (`auto_config`
in its catalog) but for what is said below. Of both models the weights at the end are kept, of the
Transformer the mean of the last 8 checkpoints, as its recipe has it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import opennmt
import tensorflow as tf
import tensorflow_addons as tfa
from opennmt.models.catalog import NMTMediumV1
from opennmt.training import Trainer
from parts.quality import Task, nearest_width, read_lines, serve, timed

RECIPE_WARM_UP, WARM_UP = 8000, 400


def recipe(task: Task, name: str, units: int) -> dict[str, dict[str, Any]]:
    """Return the settings that differ from the model's automatic configuration."""
    if name == "RNN":
        rate = task.learning_rate
        return {"params": {"learning_rate": rate} if rate else {}, "train": {}}
    # Gradients are not added up to batches of 25,000 tokens: too few steps would be left.
    # Its warm-up would not end in this time either; the highest rate stays the recipe's.
    params = {
        "learning_rate": 2.0 * (WARM_UP / RECIPE_WARM_UP) ** 0.5,
        "decay_params": {"model_dim": units, "warmup_steps": WARM_UP},
    }
    return {"params": params, "train": {"effective_batch_size": None}}


class Recurrent(NMTMediumV1):
    """`NMTMediumV1` of the catalog, bidirectional LSTM and Luong's attention, one layer deep."""

    def __init__(self, units: int) -> None:
        opennmt.models.SequenceToSequence.__init__(
            self,
            source_inputter=opennmt.inputters.WordEmbedder(embedding_size=units),
            target_inputter=opennmt.inputters.WordEmbedder(embedding_size=units),
            encoder=opennmt.encoders.RNNEncoder(
                num_layers=1,
                num_units=units // 2,
                bidirectional=True,
                dropout=0.3,
                reducer=opennmt.layers.ConcatReducer(),
                cell_class=tf.keras.layers.LSTMCell,
            ),
            decoder=opennmt.decoders.AttentionalRNNDecoder(
                num_layers=1,
                num_units=units,
                bridge_class=opennmt.layers.CopyBridge,
                attention_mechanism_class=tfa.seq2seq.LuongAttention,
                attention_layer_activation=None,
                cell_class=tf.keras.layers.LSTMCell,
                dropout=0.3,
            ),
        )


def make_model(name: str, units: int) -> opennmt.models.SequenceToSequence:
    """The model of a width: a Transformer has 3 layers, or its embeddings would be narrow."""
    if name == "RNN":
        return Recurrent(units)
    return opennmt.models.Transformer(
        num_layers=3, num_units=units, num_heads=4, ffn_inner_dim=4 * units
    )


def stop_after(seconds: float) -> None:
    """Let its trainer stop after so many seconds as it does after its last step."""
    steps = Trainer._steps
    end = time.monotonic() + seconds

    def steps_in_time(*args: Any, **options: Any) -> Iterator[float]:
        for loss in steps(*args, **options):
            yield loss
            if time.monotonic() > end:
                return

    Trainer._steps = steps_in_time


def run(task: Task, name: str) -> dict[str, float | None]:
    """Train and translate."""
    data = {}
    for side in ("source", "target"):
        path = task.own(f"vocabulary.{side}")
        vocabulary = ["<blank>", "<s>", "</s>", *read_lines(task.file(f"vocabulary.{side}"))]
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(vocabulary) + "\n")
        data[f"{side}_vocabulary"] = path

    def count(units: int) -> int:
        model = make_model(name, units)
        model.initialize(data)
        model.create_variables()
        return model.count_params()

    units = nearest_width(count, task.weights)
    changes = recipe(task, name, units)
    config = {
        "model_dir": task.own("model"),
        "data": {
            **data,
            "train_features_file": task.file("train.source"),
            "train_labels_file": task.file("train.target"),
        },
        "params": {
            "beam_width": task.beam_width,
            "length_penalty": 1.0,
            "maximum_decoding_length": task.longest,
            **changes["params"],
        },
        "train": {"max_step": 10**9, "save_checkpoints_steps": 200, **changes["train"]},
        "infer": {"batch_size": task.batch_size},
    }
    runner = opennmt.Runner(lambda: make_model(name, units), config, True, seed=task.seed)
    trained: dict[str, Any] = {}

    def train() -> None:
        stop_after(task.seconds)
        trained["folder"], trained["summary"] = runner.train(return_summary=True)

    def translate() -> None:
        runner.infer(task.file("dev.source"), task.own("hypotheses"))

    return {
        "weights": count(units),
        "seconds": timed(train),
        "steps": trained["summary"]["last_step"],
        "epochs": None,
        "translation_s": timed(translate),
    }


if __name__ == "__main__":
    serve(run)
