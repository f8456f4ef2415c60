import contextlib
import functools
import os
from types import SimpleNamespace

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import pytest

from tests.conftest import made_once
from training.command.errors import UserError
from training.config.schema import load_preset, override
from training.data.tokens.store import END_ID, PAD_ID, START_ID, UNK_ID
from training.fit._train import DevSet, train
from training.runs.checkpoints import save_best
from training.runs.run import load_run

TINY = [
    *(
        "train_limit=600",
        "max_dev_translations=20",
        "source_vocab_size=300",
        "target_vocab_size=300",
    ),
    *("encoder_units=11", "decoder_units=13", "embedding_size=7", "readout_units=7"),
    *("attention_units=5", "batch_size=50", "epochs=2"),
]


def tiny_config(*settings):
    return override(load_preset("phrasebook-en-fr"), [*TINY, *settings])


@pytest.fixture(scope="session", autouse=True)
def errors_in_one_line():
    """Errors of users have no line end."""

    def init(error, message):
        assert "\n" not in message
        ValueError.__init__(error, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UserError, "__init__", init)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_pictures():
    """Training draws neither heat-maps nor curves, which is a third of a short one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DevSet, "draw", lambda dev: None)
        patch.setattr("training.fit._recorder.draw_curves", lambda files, config: None)
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


TINY_IMAGES = [
    *("train_limit=40", "epochs=1", "convolutions=3:2x2 5:2x2", "decoder_units=7"),
    *("embedding_size=3", "attention_units=5", "readout_units=7", "batch_size=20"),
    "max_dev_translations=5",
]


def bend(made, scale, **biases):
    """Draw weights so large that answers differ, and bias what is said: `end`, `unknown`."""
    rng = np.random.default_rng(3)
    for weight in made.model.trainable_weights:
        weight.assign(rng.normal(0, scale, weight.shape))
    decoder = made.model.get_layer("decoder")
    output = getattr(decoder, "output_layer", None) or made.model.get_layer("output")
    bias = np.zeros(output.bias.shape)
    bias[[PAD_ID, UNK_ID, START_ID, END_ID]] = -30, biases.get("unknown", -30), -30, biases["end"]
    output.bias.assign(bias)
    save_best(made.files, made.model)
    return load_run(made.path)


def drawn_reader(settings, path):
    """Write a run that is sure of what it reads."""
    return bend(untrained(override(load_preset("digits"), settings), path), 0.5, end=0)


@pytest.fixture(scope="session")
def image_run(tmp_path_factory):
    """A run that reads digits."""
    make = functools.partial(drawn_reader, TINY_IMAGES)
    return load_run(made_once(tmp_path_factory, "digits-run", make))


@pytest.fixture(scope="session")
def line_run(tmp_path_factory):
    """A run that reads digits in line, by hard monotonic attention."""
    settings = ["attention=hard_monotonic", "order=luong", "gate=false", "distribution=softmax"]
    settings += [*TINY_IMAGES, "convolutions=3:2x2 5:16x2"]
    make = functools.partial(drawn_reader, settings)
    return load_run(made_once(tmp_path_factory, "line-run", make))


@pytest.fixture(scope="session")
def event_run(tmp_path_factory):
    """An untrained run about visits of patients."""
    return load_run(made_once(tmp_path_factory, "visits-run", _make_event_run) / "run")


def _make_event_run(folder):
    folder.mkdir()
    rng = np.random.default_rng(0)
    lines = ["patient,day,bili,sex,died"]
    for person in range(60):
        sick = person % 2
        for day in (0, 7, 30)[: 1 + person % 3]:
            bili = "" if rng.random() < 0.2 else f"{np.exp(rng.normal() + 2 * sick):.3f}"
            lines.append(f"p{person},{day},{bili},{'mf'[rng.integers(2)]},{sick}")
    (folder / "visits.csv").write_text("\n".join(lines) + "\n")
    about = 'id = "patient"\ntime = "day"\noutcome = "died"\nlog = ["bili"]\n'
    (folder / "visits.toml").write_text(about)
    settings = [f"data=events:{folder / 'visits.csv'}", "epochs=1", "encoder_units=5"]
    settings += ["attention_units=3", "batch_size=16"]
    untrained(override(load_preset("pbcseq"), settings), folder / "run")
