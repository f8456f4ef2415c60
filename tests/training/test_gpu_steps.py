"""A training step as XLA compiles it for a GPU loses what it loses otherwise; XLA runs it here."""

import keras
import numpy as np
import pytest

from training.config.schema import Config
from training.data.ids import END_ID
from training.fit.optimizer import compile_model, configure_keras
from training.model.build import build_model

pytestmark = pytest.mark.slow  # XLA compiles

BATCH, VOCABULARY = 5, 61
CONFIGS = {
    "fed gru": {
        "order": "luong",
        "input_feeding": True,
        "encoder": "gru",
        "decoder": "gru",
        "encoder_units": 7,
        "decoder_units": 11,
        "embedding_size": 13,
        "attention_units": 17,
        "readout_units": 13,
        "tie_embeddings": True,
    },
    "stacked lstm": {
        "order": "bahdanau",
        "encoder": "lstm",
        "decoder": "lstm",
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_units": 7,
        "decoder_units": 11,
        "embedding_size": 13,
        "attention_units": 17,
        "readout_units": 19,
    },
    "deep, gated, of one way": {
        "order": "luong",
        "input_feeding": True,
        "gate": True,
        "readout": "deep",
        "bidirectional": False,
        "encoder": "simple_rnn",
        "decoder": "lstm",
        "encoder_units": 7,
        "decoder_units": 11,
        "embedding_size": 13,
        "attention": "location_sensitive",
        "attention_units": 17,
        "readout_units": 19,
    },
}


def train(config, jit_compile, steps, lengths):
    keras.utils.clear_session()
    config = Config(batch_size=BATCH, epochs=1, jit_compile=jit_compile, **config)
    configure_keras(config)
    model = build_model(config, VOCABULARY, VOCABULARY)
    compile_model(model, config, steps)
    rng, losses = np.random.default_rng(7), []
    for step in range(steps):
        source, target = (
            rng.integers(END_ID + 1, VOCABULARY, (BATCH, length)).astype("int32")
            for length in lengths[step % len(lengths)]
        )
        source[1, -1:] = target[2, -1:] = 0  # padding
        inputs = {x.name: target if i else source for i, x in enumerate(model.inputs)}
        losses.append(float(model.train_on_batch(inputs, target)))
    return np.array(losses)


@pytest.mark.parametrize("name", CONFIGS)
def test_losses_are_those_of_the_graph(monkeypatch, name):
    config = {**CONFIGS[name], "dropout": 0.0, "learning_rate": 0.01}
    lengths = [(3, 7), (8, 4)]  # below and at a multiple of the steps of an iteration
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "cpu")
    graph = train(config, False, 7, lengths)
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "gpu")
    np.testing.assert_allclose(train(config, True, 7, lengths), graph, rtol=1e-4)
    assert graph[-2] < graph[0]


def test_dropout_draws_what_it_draws_otherwise(monkeypatch):
    config = {**CONFIGS["fed gru"], "dropout": 0.3}
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "cpu")
    plain = train(config, True, 5, [(5, 6)])
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "gpu")
    np.testing.assert_allclose(train(config, True, 5, [(5, 6)]), plain, rtol=1e-4)
