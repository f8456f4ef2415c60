import contextlib
import os
from types import SimpleNamespace

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import pytest

from training.config.schema import load_preset, override
from training.data.store import END_ID
from training.fit.train import DevSet, train
from training.runs.run import load_run

TINY = [
    *("train_limit=600", "validation_limit=20", "source_vocab_size=300", "target_vocab_size=300"),
    *("encoder_units=11", "decoder_units=13", "embedding_size=7", "readout_units=7"),
    *("attention_units=5", "batch_size=50", "epochs=2"),
]


def tiny_config(*settings):
    return override(load_preset("phrasebook-en-fr"), [*TINY, *settings])


@pytest.fixture(scope="session", autouse=True)
def no_pictures():
    """Training draws neither heat-maps nor curves, which is a third of a short one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DevSet, "draw", lambda dev: None)
        patch.setattr("training.fit.recorder.draw_curves", lambda files, config: None)
        yield


@contextlib.contextmanager
def without_steps(loss=1.0):
    """Within this a training has all but its steps and scores, which take longest."""
    score = {"val_perplexity": 2.0, "bleu": 1.0, "chrf": 1.0}
    with pytest.MonkeyPatch.context() as patch:
        fitted = SimpleNamespace(history={"loss": [loss]})
        patch.setattr(keras.Model, "fit", lambda *_, **__: fitted)
        patch.setattr(DevSet, "score", lambda dev: score)
        yield


def untrained(config, path, **options):
    """Return a run with its first weights."""
    with without_steps():
        train(override(config, ["average_epochs=0"]), path, **options)
    return load_run(path)


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory):
    """An untrained run from texts to texts."""
    return untrained(tiny_config(), tmp_path_factory.mktemp("runs") / "tiny")


@pytest.fixture(scope="session")
def terse_run(tmp_path_factory):
    """An untrained one, bent to end its sentences early, and to leave source words out."""
    run = untrained(tiny_config("tie_embeddings=false"), tmp_path_factory.mktemp("runs") / "terse")
    bias = run.model.get_layer("output").bias
    bias.assign(keras.ops.convert_to_tensor(bias) + 2.5 * keras.ops.one_hot(END_ID, bias.shape[0]))
    return run
