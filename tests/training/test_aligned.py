"""Hard monotonic attention against the sum over every alignment, from the formulas in NumPy."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tests.keras_attention.helpers import array, assert_close, normal
from training.model.aligned import FARTHEST, AlignedDecoder, _moved

BATCH, PLACES, TOKENS, WIDTH, VOCABULARY, UNITS = 3, 5, 4, 7, 11, 5
LENGTHS = 5, 3, 1


@pytest.fixture
def decoder(rng):
    cell = keras.layers.GRUCell(UNITS)
    layer = AlignedDecoder(cell, VOCABULARY, embedding_size=3, units=13, attention_units=17)
    layer(np.zeros((BATCH, TOKENS), "int32"), np.zeros((BATCH, PLACES, WIDTH), "float32"))
    for weight in layer.weights:
        weight.assign(normal(rng, *weight.shape))
    return layer


@pytest.fixture
def given(rng):
    return {
        "tokens": rng.integers(0, VOCABULARY, (BATCH, TOKENS)).astype("int32"),
        "memory": normal(rng, BATCH, PLACES, WIDTH),
        "memory_mask": np.arange(PLACES) < np.array(LENGTHS)[:, None],
        "initial_state": [normal(rng, BATCH, UNITS)],
    }


def softmax(x):
    x = np.exp(x - x.max())
    return x / x.sum()


def likelihood(decoder, memory, states, tokens):
    """Sum the probability of tokens `(T,)` over all ways through a memory `(S, dim)`."""
    layers = decoder.query, decoder.of_state, decoder.score
    query, of_state, score = (array(layer.kernel) for layer in layers)
    layers = decoder.key, decoder.of_memory, decoder.output_layer
    key, of_memory, output = ([array(weight) for weight in layer.weights] for layer in layers)
    ways = array(decoder.ways)

    def move(state, start, end):
        hidden = np.tanh(state @ query + memory[start:] @ key[0] + key[1])
        steps = np.minimum(np.arange(len(hidden)), FARTHEST)
        return softmax(hidden @ score[:, 0] + ways[steps])[end - start]

    def say(state, place, token):
        vector = np.tanh(state @ of_state + memory[place] @ of_memory[0] + of_memory[1])
        return softmax(vector @ output[0] + output[1])[token]

    total = 0.0
    for way in itertools.combinations_with_replacement(range(len(memory)), len(tokens)):
        probability, start = 1.0, 0
        for state, place, token in zip(states, way, tokens, strict=True):
            probability *= move(state, start, place) * say(state, place, token)
            start = place
        total += probability
    return total


def test_the_likelihood_is_the_sum_over_all_alignments(rng, decoder, given):
    said = rng.integers(0, VOCABULARY, (BATCH, TOKENS)).astype("int32")
    read = np.concatenate([np.full((BATCH, 1), 2, "int32"), said[:, :-1]], 1)
    log_probs = array(decoder(**{**given, "tokens": read}))
    assert_close(np.exp(log_probs).sum(-1), np.ones((BATCH, TOKENS)))
    found = np.take_along_axis(log_probs, said[..., None], -1)[..., 0].sum(1)
    rnn = keras.layers.RNN(decoder.cell, return_sequences=True)
    states = array(rnn(decoder.embedding(read), initial_state=given["initial_state"]))
    for row, length in enumerate(LENGTHS):
        memory = given["memory"][row, :length]
        expected = likelihood(decoder, memory, states[row], said[row])
        np.testing.assert_allclose(found[row], np.log(expected), rtol=1e-4)


def test_steps_are_the_sequence_and_rows_may_share_a_memory(decoder, given):
    expected = array(decoder(**given))
    prepared = decoder.prepare(given["memory"], given["memory_mask"])
    state = decoder.initial_state(prepared, given["initial_state"])
    state = keras.tree.map_structure(lambda x: ops.repeat(x, 2, 0), state)
    for t in range(TOKENS):
        tokens = np.repeat(given["tokens"][:, t], 2)
        log_probs, places, state = decoder.step(tokens, prepared, state)
        assert_close(log_probs, np.repeat(expected[:, t], 2, 0))
        assert_close(array(places).sum(-1), np.ones(2 * BATCH))
        assert not array(places)[~np.repeat(given["memory_mask"], 2, 0)].any()


@pytest.mark.parametrize(("source", "near"), [("text", False), ("image", True)])
def test_alignments_of_many_columns_begin_near(rng, source, near):
    """An image's characters have two or three columns each; a text's letters are few."""
    layer = AlignedDecoder(keras.layers.GRUCell(UNITS), VOCABULARY, 3, 13, 17, source=source)
    prepared = layer.prepare(normal(rng, 1, 80, WIDTH) * 0.1)
    state = layer.initial_state(prepared, [np.zeros((1, UNITS), "float32")])
    for _ in range(5):
        _, places, state = layer.step(np.array([3]), prepared, state)
    assert (array(places)[0] @ np.arange(80) < 20) == near


def test_dropout_leaves_out_the_same_units_at_all_positions(rng):
    layer = AlignedDecoder(keras.layers.GRUCell(UNITS), VOCABULARY, 3, 13, 17, dropout=0.5)
    place = normal(rng, BATCH, 1, WIDTH)
    prepared = layer.prepare(np.repeat(place, PLACES, axis=1))
    states = normal(rng, BATCH, TOKENS, UNITS)
    dropped = array(layer._said(states, prepared, training=True))
    assert_close(dropped, np.repeat(dropped[:, :, :1], PLACES, axis=2))
    kept = array(layer._said(states, prepared, training=False))
    assert np.abs(dropped - kept).max() > 0.01


def test_gradients_are_finite_where_all_positions_ahead_are_unlikely():
    """Scores differ by up to twice the sum of the weights of `score`: 45 after 20 epochs."""
    rng = np.random.default_rng(5)
    chances = np.exp(-np.linspace(0, 1, 7) * 76).astype("float32")[None]
    ways = np.triu(np.ones((7, 7), "float32"))
    places = tf.constant(rng.dirichlet(np.ones(7), 1), "float32")
    chances = tf.constant(chances)
    with tf.GradientTape() as tape:
        tape.watch([places, chances])
        totals = tf.linalg.matvec(ways, chances[0])[None]
        moved = _moved(places, chances, totals, tf.constant(ways))
        loss = tf.reduce_sum(moved * tf.constant(rng.normal(size=(1, 7)), "float32"))
    assert_close(tf.reduce_sum(moved), 1.0)
    assert all(np.isfinite(gradient).all() for gradient in tape.gradient(loss, [places, chances]))
