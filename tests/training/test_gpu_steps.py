"""Training steps and searches as XLA compiles them for a GPU, beside the graph's; XLA runs here."""

from dataclasses import replace

import keras
import numpy as np
import pytest

from training.config.schema import Config, load_preset
from training.data.tokens.store import END_ID
from training.decode.settings import SearchSettings
from training.decode.texts import make_nbest
from training.fit._optimizer import compile_model, configure_keras
from training.model.seq2seq import build_model

pytestmark = pytest.mark.slow  # XLA compiles

BATCH, VOCABULARY = 5, 61
PRESETS = ("tatoeba-en-fr", "cmudict", "digits")
SMALL = {"decoder_units": 11, "embedding_size": 13, "attention_units": 17, "readout_units": 13}
OTHERS = {
    **{"encoder": "simple_rnn", "encoder_layers": 2, "encoder_units": 7, "bidirectional": False},
    **{"decoder": "lstm", "decoder_layers": 2, "order": "luong", "input_feeding": True},
    **{"attention": "location_sensitive", "gate": True, "readout": "maxout"},
}
CONFIGS = {  # of each preset its architecture; learning rates as they are
    "tatoeba-en-fr": {**SMALL, "encoder_units": 7},
    "cmudict": {**SMALL, "encoder_units": 7},
    "digits": {**SMALL, "convolutions": "3:2x2 5:2x2 7k1:1x1", "max_target_length": 7},
    "stacked, deep, gated, of one way": {**SMALL, **OTHERS},
}


def train(name, jit_compile, steps, dropout=0.0):
    """Return the losses of a small model of a preset, for sentences of one pair of lengths.

    XLA compiles for each pair, which takes most of the time: one preset has multiples of the steps
    of an iteration, the others lengths below and between them.
    """
    lengths = (8, 4) if name == "tatoeba-en-fr" else (3, 7)
    keras.utils.clear_session()
    config = load_preset(name) if name in PRESETS else Config()
    settings = {**CONFIGS[name], "batch_size": BATCH, "dropout": dropout, "warmup_steps": 3}
    config = replace(config, **settings, jit_compile=jit_compile)
    configure_keras(config)
    model = build_model(config, VOCABULARY, VOCABULARY)
    compile_model(model, config, steps)
    rng, losses = np.random.default_rng(7), []
    for _ in range(steps):
        drawn = (rng.integers(END_ID + 1, VOCABULARY, (BATCH, length)) for length in lengths)
        source, target = (ids.astype("int32") for ids in drawn)
        source[1, -1:] = target[2, -1:] = 0  # padding
        if config.source == "image":
            source = rng.integers(0, 256, (BATCH, 32, 72, 1)).astype("uint8")
        inputs = {x.name: target if x.name == "target" else source for x in model.inputs}
        losses.append(float(model.train_on_batch(inputs, target)))
    return np.array(losses)


@pytest.mark.parametrize("name", CONFIGS)
def test_losses_and_dropout_are_those_of_the_plain_loop(monkeypatch, name):
    steps = 20 if name in PRESETS else 7
    dropout = 0.2 if name == "cmudict" else 0.0  # XLA draws other numbers than the graph
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "cpu")
    plain = train(name, dropout > 0, steps, dropout)
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "gpu")
    np.testing.assert_allclose(train(name, True, steps, dropout), plain, rtol=1e-4)
    if name in PRESETS:
        assert plain[-2] < plain[0]


def on_both_devices(monkeypatch, function):
    results = []
    for device in ("cpu", "gpu"):
        monkeypatch.setenv("KERAS_ATTENTION_DEVICE", device)
        results.append(function())
    return results


def check_translations(plain, compiled):
    for expected, translations in zip(plain, compiled, strict=True):
        assert [x.text for x in translations] == [x.text for x in expected]
        scores = [x.score for x in expected]
        assert [x.score for x in translations] == pytest.approx(scores, rel=1e-4)


TEXTS = ["a green apple", "", "is", "we see", *["she eats " * 5 + "a pear"] * 7, "I see him " * 20]


MOST = {"beam_width": 5, "num_results": 3, "coverage_penalty": 0.3, "max_source_length": 40}


@pytest.mark.parametrize("settings", [{"beam_width": 1}, {**MOST, "replaces_unknown": True}])
def test_translations_are_those_of_the_graph(monkeypatch, terse_run, settings):
    search = SearchSettings(**settings)
    both = on_both_devices(monkeypatch, lambda: make_nbest([terse_run], search)(TEXTS))
    check_translations(*both)
