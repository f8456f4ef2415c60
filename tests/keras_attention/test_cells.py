"""Whatever Keras takes for a recurrent cell, the attention RNN runs as the formula says."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import (
    AdditiveAttention,
    AttentionPooling,
    AttentionRNN,
    LocalAttention,
    MultiplicativeAttention,
    beam_search,
)
from tests.keras_attention import reference
from tests.keras_attention.helpers import array, assert_close, normal, randomize, weights_of

B, T, S, DIM, DV, UNITS, OUT = 2, 5, 3, 7, 11, 13, 17


def dropping(order="bahdanau", **kwargs):
    cell = keras.layers.SimpleRNNCell(UNITS, dropout=0.5, recurrent_dropout=0.5, seed=3)
    return AttentionRNN(cell, MultiplicativeAttention("general"), order, **kwargs)


@pytest.mark.parametrize("order", ["bahdanau", "luong"])
def test_inference_draws_no_dropout_masks_and_leaves_none(rng, order):
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, DV)
    fresh, used = dropping(order), dropping(order)
    for layer in (fresh, used):
        layer.build(inputs.shape, memory.shape)
        generator = np.random.default_rng(5)
        randomize(layer, generator)
    used(inputs[:1], memory[:1])
    prepared = used.prepare(ops.convert_to_tensor(memory[:1]))
    used.step(ops.convert_to_tensor(inputs[:1, 0]), prepared, used.initial_state(prepared))
    for _ in range(2):
        expected = array(fresh(inputs, memory, training=True))
        assert_close(used(inputs, memory, training=True), expected)
    assert (expected != array(used(inputs, memory, training=True))).any()
    assert used.cell.dropout == used.cell.recurrent_dropout == 0.5


def test_a_cell_with_dropout_is_searched(rng):
    layer, output = dropping(), keras.layers.Dense(5)
    memory = normal(rng, B, S, DV)
    output(layer(normal(rng, B, 1, 5), memory))
    prepared = layer.prepare(ops.convert_to_tensor(memory))

    def step(tokens, state):
        vector, weights, state = layer.step(ops.one_hot(tokens, 5), prepared, state)
        return ops.log_softmax(output(vector)), weights, state

    state = layer.initial_state(prepared)
    found = beam_search(step, state, batch_size=B, start_id=1, end_id=2, max_length=4)
    assert np.isfinite(array(found.scores)).all()


class Narrow(keras.layers.Layer):
    """A user's own cell: two states, of which the output is a part; nothing that is optional."""

    state_size = (UNITS, 3)
    output_size = 5

    def build(self, shape):
        self.kernel = self.add_weight((shape[-1] + UNITS, UNITS), name="kernel")

    def call(self, inputs, states):
        h, count = states
        h = ops.tanh(ops.matmul(ops.concatenate([inputs, h], -1), self.kernel))
        return h[:, :5] + ops.sum(count, -1, keepdims=True), [h, count + 1]


@pytest.mark.parametrize("feeding", [False, True])
@pytest.mark.parametrize("order", ["bahdanau", "luong"])
def test_a_cell_with_wide_states_and_nothing_optional_follows_the_formula(rng, order, feeding):
    layer = AttentionRNN(
        Narrow(), MultiplicativeAttention("general"), order, units=OUT, input_feeding=feeding
    )
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, DV)
    layer.build(inputs.shape, memory.shape)
    randomize(layer, rng)
    kernel, general = weights_of(layer.cell)["kernel"], weights_of(layer.attention)["kernel"]
    out = array(layer.output_kernel.value).astype("float64")

    def look(query):
        found = reference.attend(
            lambda q, k: reference.general(q, k, general), query[:, None], memory
        )
        return found[0][:, 0]

    h, count, last, expected = np.zeros((B, UNITS)), np.zeros((B, 3)), np.zeros((B, OUT)), []
    for t in range(T):
        x = np.concatenate([inputs[:, t], last], -1) if feeding else inputs[:, t]
        if order == "bahdanau":
            context = look(h)
            x = np.concatenate([x, context], -1)
        h = np.tanh(np.concatenate([x, h], -1) @ kernel)
        output = h[:, :5] + count.sum(-1, keepdims=True)
        count = count + 1
        if order == "luong":
            context = look(output)
        last = np.tanh(np.concatenate([context, output], -1) @ out)
        expected.append(last)
    assert_close(layer(inputs, memory), np.stack(expected, 1))


def test_the_call_decides_whether_weights_come_back(rng):
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, DV)
    for default in (False, True):
        layer = AttentionRNN(
            keras.layers.GRUCell(UNITS), AdditiveAttention(5), return_attention_scores=default
        )
        outputs, weights = layer(inputs, memory, return_attention_scores=True)
        assert tuple(weights.shape) == (B, T, S)
        assert_close(layer(inputs, memory, return_attention_scores=False), array(outputs))
        assert isinstance(layer(inputs, memory), tuple) == default
        symbolic = layer(
            keras.Input((T, DIM)), keras.Input((S, DV)), return_attention_scores=not default
        )
        assert isinstance(symbolic, tuple) != default


@pytest.mark.parametrize("activation", [None, "relu", "tanh"])
def test_the_attentional_vector_has_the_activation_asked_for(rng, activation):
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, DV)
    attention, cell = AdditiveAttention(5), keras.layers.GRUCell(UNITS)
    plain = AttentionRNN(cell, attention)
    layer = AttentionRNN(cell, attention, units=OUT, activation=activation)
    pair = array(plain(inputs, memory))
    layer.build(inputs.shape, memory.shape)
    expected = pair @ array(layer.output_kernel.value)
    expected = {None: expected, "relu": np.maximum(expected, 0), "tanh": np.tanh(expected)}
    assert_close(layer(inputs, memory), expected[activation])
    again = AttentionRNN.from_config(layer.get_config())
    assert again.activation is layer.activation


RULED = {
    "additive": (lambda **k: AdditiveAttention(5, **k), 3),
    "general": (lambda **k: MultiplicativeAttention("general", **k), 1),
    "local": (lambda **k: LocalAttention(MultiplicativeAttention(), predictive=True, **k), 2),
    "pooling": (lambda **k: AttentionPooling(5, **k), 2),
    "rnn": (
        lambda **k: AttentionRNN(
            keras.layers.GRUCell(UNITS), AdditiveAttention(5), units=OUT, gate=True, **k
        ),
        2,
    ),
}


@pytest.mark.parametrize("name", RULED)
def test_kernels_are_regularized_and_constrained(rng, name):
    make, count = RULED[name]
    options = {
        "kernel_initializer": "random_normal",
        "kernel_regularizer": keras.regularizers.L2(0.25),
        "kernel_constraint": "non_neg",
    }
    layer = type(make()).from_config(make(**options).get_config())
    inputs = [normal(rng, B, T, DV), normal(rng, B, S, DV)][: 1 if name == "pooling" else 2]
    layer(*inputs)
    kernels = [w for w in layer.weights if w.constraint is not None]
    assert len(kernels) == count
    expected = sum(0.25 * (array(w.value) ** 2).sum() for w in kernels)
    assert_close(sum(array(x) for x in layer.losses), expected)
    for w in kernels:
        assert_close(w.constraint(w.value), np.maximum(array(w.value), 0))
