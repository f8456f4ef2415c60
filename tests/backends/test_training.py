"""A model trained on JAX or PyTorch, without TensorFlow, is used by TensorFlow."""

import json
import os
import subprocess
import sys

import keras
import pytest

from tests.training.conftest import TINY, tiny_config
from training.fit._optimizer import compile_model
from training.model.seq2seq import build_model

# As on a machine without TensorFlow: to import it fails.
TRAIN = """
import sys
sys.modules |= {"tensorflow": None, "tensorflow_text": None}
from training.train import main
main(["--resume", "--output", *sys.argv[1:]])
"""
# The run read by TensorFlow: exported, and the perplexity of its weights on the prepared dev set.
SCORE_AND_EXPORT = """
import sys
from serving.export.__main__ import main
from training.fit._optimizer import Perplexity
from training.runs.files import RunFiles
from training.runs.run import load_run
from training.data.batches._batches import make_batches
from training.data.batches._plan import Batching
from training.data.read.texts import Texts
from training.data.tokens._prepared import Prepared
run = load_run(sys.argv[1])
settings = Texts.of(run.config), Batching.of(run.config)
tokens = Prepared(RunFiles(sys.argv[1]).tokens, settings[0].data)
batches = make_batches(tokens, *settings)[1]
perplexity = Perplexity()
for inputs, labels in batches.epoch():
    perplexity.update_state(labels, run.model(inputs, training=False))
main(["--run", sys.argv[1], "--output", sys.argv[2]])
print(float(perplexity.result()))
"""


def python(backend, *arguments):
    """The last line that another Python prints."""
    found = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "KERAS_BACKEND": backend},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return found.stdout.splitlines()[-1]


def test_what_another_backend_trains_tensorflow_scores_alike_and_exports(tmp_path):
    run = tmp_path / "run"
    wanted = [*TINY, "batch_shapes=1"]
    settings = [word for setting in wanted for word in ("--set", setting)]
    prepare = ("-m", "training.prepare", "--preset", "phrasebook-en-fr", "--output", str(run))
    python("tensorflow", *prepare, *settings)
    python(keras.backend.backend(), "-c", TRAIN, str(run))
    history = json.loads((run / "history.json").read_text())
    assert [record["epoch"] for record in history] == [1, 2]
    assert history[-1]["val_perplexity"] < history[0]["val_perplexity"]
    model = tmp_path / "models" / "tiny"
    scored = float(python("tensorflow", "-c", SCORE_AND_EXPORT, str(run), str(model)))
    best = min(record["val_perplexity"] for record in history)
    assert scored == pytest.approx(best, rel=1e-4)
    assert list(model.glob("*/saved_model.pb"))


def test_a_pronouncer_is_trained_with_two_predictions_a_word(rng):
    aligned = ("attention=hard_monotonic", "order=luong", "decoder=lstm", "tie_embeddings=false")
    rates = ("dropout=0.5", "learning_rate=0.02", "warmup_steps=1")
    config = tiny_config(*aligned, *rates, "label_smoothing=0", "r_drop=1")
    model = build_model(config, 11, 13)
    compile_model(model, config, 31)
    ids = rng.integers(4, 11, (3, 7, 5)).astype("int32")
    batch = {"source": ids[0], "target": ids[1]}, ids[2]

    def loss():
        batches = (batch for _ in range(1))
        fitted = model.fit(batches, steps_per_epoch=1, shuffle=False, verbose=0)
        return fitted.history["loss"][0]

    losses = [loss() for _ in range(31)]
    assert losses[-1] < 0.9 * losses[0]
