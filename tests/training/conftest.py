import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import pytest

from training.config.load import load_preset, override
from training.data.ids import END_ID
from training.fit.train import train
from training.runs.run import load_run

TINY = [
    "train_limit=600",
    "validation_limit=20",
    "source_vocab_size=300",
    "target_vocab_size=300",
    "encoder_units=11",
    "decoder_units=13",
    "embedding_size=7",
    "readout_units=7",
    "attention_units=5",
    "batch_size=50",
    "epochs=2",
]


def tiny_config(*settings):
    return override(load_preset("phrasebook-en-fr"), [*TINY, *settings])


@pytest.fixture
def no_pictures(monkeypatch):
    """Training draws neither heat-maps nor curves, which is a third of a short one."""
    monkeypatch.setattr("training.fit.train.HeatMaps", lambda run, dev: keras.callbacks.Callback())
    monkeypatch.setattr(
        "training.runs.card.draw_curves", lambda history, config, path: path.touch()
    )


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """A run that was trained as users train, far too short and far too small to be any good."""
    path = tmp_path_factory.mktemp("runs") / "tiny"
    train(tiny_config(), path)
    return load_run(path)


@pytest.fixture(scope="session")
def terse_run(tmp_path_factory):
    """Such a run, bent to end its sentences early, and to leave source words out."""
    path = tmp_path_factory.mktemp("runs") / "terse"
    train(tiny_config("tie_embeddings=false", "epochs=1"), path)
    run = load_run(path)
    bias = run.model.get_layer("output").bias
    bias.assign(keras.ops.convert_to_tensor(bias) + 2.5 * keras.ops.one_hot(END_ID, bias.shape[0]))
    return run
