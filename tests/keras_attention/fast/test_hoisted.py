"""Hoisted loops against the plain ones, and their derivatives of every kind against differences."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import keras_attention as ka
from keras_attention.fast import _loop as loop
from tests.keras_attention.helpers import (
    array,
    assert_close,
    mask,
    normal,
    randomize,
    weight_gradients,
    weighted_sum,
)

pytestmark = pytest.mark.tensorflow
B, T, S, DIM, UNITS = 2, 5, 3, 7, 10

CELLS = {name: getattr(keras.layers, f"{name}Cell") for name in ("SimpleRNN", "GRU", "LSTM")}
ATTENTIONS = {
    "additive": lambda **k: ka.AdditiveAttention(13, **k),
    "general": lambda **k: ka.MultiplicativeAttention("general", **k),
    "scaled dot": lambda **k: ka.MultiplicativeAttention("scaled_dot", use_scale=True, **k),
    "coverage": lambda **k: ka.CoverageAttention(13, **k),
    "heads": lambda **k: ka.AdditiveAttention(14, num_heads=2, **k),
    "dropout": lambda **k: ka.AdditiveAttention(13, dropout=0.5, seed=3, **k),
    "monotonic": lambda **k: ka.MonotonicAttention(ka.AdditiveAttention(17, **k), **k),
}
WAYS = {"bahdanau": ("bahdanau", False), "fed": ("bahdanau", True), "luong": ("luong", True)}
READOUTS = (None, "attentional", "maxout")
# Each attention and way; cells and what else there is take turns.
CASES = [
    (list(CELLS)[n % 3], *case, READOUTS[(n + n // 3) % 3], n // 2 % 2, n // 3 % 2, n // 5 % 2)
    for n, case in enumerate(itertools.product(ATTENTIONS, WAYS))
]


def built(rng, cell, attention, way, readout=None, gate=False, dtype="float32"):
    order, feeding = WAYS[way]
    layer = ka.AttentionRNN(
        CELLS[cell](UNITS, dtype=dtype),
        ATTENTIONS[attention](dtype=dtype),
        order=order,
        input_feeding=feeding,
        units=17 if readout else None,
        readout=readout or "attentional",
        gate=bool(gate),
        return_state=True,
        return_attention_scores=True,
        dtype=dtype,
    )
    layer.build((None, T, DIM), (None, S, UNITS))
    return drawn(rng, layer)


def drawn(rng, layer):
    """The layer with random weights, of its own precision."""
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.5))
    return layer


def results(layer, inputs, memory, initial, **options):
    """All that the layer returns, and the gradients of its weighted sum."""
    with tf.GradientTape() as tape:
        tape.watch([inputs, memory, initial])
        found = keras.tree.flatten(layer(inputs, memory, initial_state=initial, **options))
        upstreams = [np.sin(1 + np.arange(tf.size(x))).reshape(x.shape) for x in found]
        total = sum(tf.reduce_sum(x * u) for x, u in zip(found, upstreams, strict=True))
    watched = [inputs, memory, initial, [w.value for w in layer.trainable_weights]]
    return list(found), tape.gradient(total, watched, unconnected_gradients="zero")


@pytest.mark.parametrize(
    ("cell", "attention", "way", "readout", "gate", "masked", "training"), CASES
)
def test_a_hoisted_loop_is_the_plain_one(
    rng, monkeypatch, cell, attention, way, readout, gate, masked, training
):
    layer = built(rng, cell, attention, way, readout, gate)
    inputs, memory = tf.constant(normal(rng, B, T, DIM)), tf.constant(normal(rng, B, S, UNITS))
    initial = [tf.constant(normal(rng, B, UNITS)) for _ in range(1 + (cell == "LSTM"))]
    options = {"training": bool(training), "memory_mask": mask(rng, B, S)}
    if masked:
        options["inputs_mask"] = mask(rng, B, T)
    seeds = [w for w in layer.non_trainable_variables if "seed" in w.path]
    taken, run = [], loop.run_attending
    monkeypatch.setattr(
        loop, "run_attending", lambda *args, **kwargs: taken.append(1) or run(*args, **kwargs)
    )
    found = []
    for fast in (False, True):
        for seed in seeds:
            seed.assign(np.array([1, 2], "uint32"))
        with ka.fast_paths(fast):
            found.append(results(layer, inputs, memory, initial, **options))
        assert len(taken) == fast
    assert_close(keras.tree.flatten(found[1]), keras.tree.flatten(array(found[0])), 2e-5)


# Whether each is differentiated in a graph, and forward, too: its loops take up to 20 seconds.
LONG = "SimpleRNN, general, luong, maxout"
PROBLEMS = {
    **{"HoistedRNN": True, LONG: True, "GRU, heads, fed": False},
    **{"LSTM, additive, bahdanau": False, "GRU, general, bahdanau": False},
}


def line(rng, name):
    """A scalar function in float64 of a number, by which weights and inputs go along a line."""
    given = [normal(rng, B, T, DIM), normal(rng, B, S, UNITS)]
    if name == "HoistedRNN":
        cell = keras.layers.GRUCell(UNITS, dtype="float64")
        layer = ka.HoistedRNN(cell, return_sequences=True, dtype="float64")
        layer.build(given[0].shape)
        layer, given = drawn(rng, layer), given[:1]
    else:
        layer = built(rng, *name.split(", "), dtype="float64")
    variables = layer.trainable_variables
    starts = [*(array(v.value) for v in variables), *(x.astype("float64") for x in given)]
    ways = [rng.normal(size=x.shape) for x in starts]

    def total(along):
        moved = [x + along * way for x, way in zip(starts, ways, strict=True)]
        mapping = list(zip(variables, moved, strict=False))
        with keras.StatelessScope(state_mapping=mapping):
            found = keras.tree.flatten(layer(*moved[len(variables) :]))
        flat = tf.concat([tf.reshape(x, [-1]) for x in found], 0)
        return tf.reduce_sum(tf.sin(1.0 + tf.cast(tf.range(tf.size(flat)), "float64")) * flat**2)

    return total


def differences(total, step, factors):
    """A sum over places around 0, a step apart, of the plain formulas' values by the factors."""
    places = step * (np.arange(len(factors)) - len(factors) // 2)
    with ka.fast_paths(False):
        values = [float(total(tf.constant(x, "float64"))) for x in places]
    return np.dot(factors, values)


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] * (x == LONG)) for x in PROBLEMS]
)
def test_second_and_forward_derivatives_are_those_of_differences(rng, name):
    """Forward mode may be refused in one line."""
    total, start, step = line(rng, name), tf.constant(0.0, "float64"), 3e-5

    def second(along):
        with tf.GradientTape() as outer:
            outer.watch(along)
            with tf.GradientTape() as inner:
                inner.watch(along)
                value = total(along)
            slope = inner.gradient(value, along)
        return outer.gradient(slope, along)

    def forward():
        with tf.autodiff.ForwardAccumulator(start, tf.ones_like(start)) as accumulator:
            return float(accumulator.jvp(total(start)))

    second = tf.function(second, autograph=False) if PROBLEMS[name] else second
    expected = differences(total, step, [-1, 16, -30, 16, -1]) / (12 * step**2)
    np.testing.assert_allclose(second(start), expected, rtol=1e-5)
    if not PROBLEMS[name]:
        return
    try:
        found = forward()
    except NotImplementedError as error:
        assert "fast_paths(False)" in str(error)  # noqa: PT017
        with ka.fast_paths(False):
            found = forward()
    expected = differences(total, 1e-6, [-1, 0, 1]) / 2e-6
    np.testing.assert_allclose(found, expected, rtol=1e-5)


# Each two options meet in every way.
@pytest.mark.parametrize(
    ("cell", "zeros", "sequences", "backwards"),
    [
        ("SimpleRNN", False, False, False),
        ("GRU", False, True, True),
        ("LSTM", True, False, True),
        ("LSTM", True, True, False),
    ],
)
def test_a_hoisted_rnn_is_that_of_keras_whatever_is_masked(rng, cell, zeros, sequences, backwards):
    options = {"zero_output_for_mask": zeros, "return_sequences": sequences}
    options |= {"go_backwards": backwards, "return_state": True}
    theirs = keras.layers.RNN(CELLS[cell](UNITS), **options)
    ours = ka.HoistedRNN(CELLS[cell](UNITS), name=theirs.name, **options)
    inputs = normal(rng, 5, 4, DIM)
    initial = [normal(rng, 5, UNITS) for _ in range(1 + (cell == "LSTM"))]
    for layer in (theirs, ours):
        layer.build(inputs.shape)
    randomize(theirs, rng, 0.3)
    ours.set_weights(theirs.get_weights())
    valid = np.array([[0, 0, 0, 0], [0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1], [1, 1, 1, 1]], bool)
    for each in (valid, None):
        expected = array(list(theirs(inputs, initial_state=initial, mask=each)))
        upstream = [normal(rng, *x.shape) for x in expected]
        assert_close(list(ours(inputs, initial_state=initial, mask=each)), expected)

        def total(layer, mask=each, upstream=upstream):
            found = layer(inputs, initial_state=initial, mask=mask)
            return sum(weighted_sum(x, u) for x, u in zip(found, upstream, strict=True))

        slopes = [weight_gradients(layer, lambda x=layer: total(x)) for layer in (ours, theirs)]
        for found, wanted in zip(*(each.values() for each in slopes), strict=True):
            assert_close(found, wanted, 1e-4)


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_in_half_precision_a_state_keeps_what_adds_up_slowly(cell):
    # A thousandth of the state is added at each step: bfloat16 would round it away.
    steps, units = 97, 3
    policy = "mixed_bfloat16"
    ours = ka.HoistedRNN(CELLS[cell](units, dtype=policy), return_state=True, dtype=policy)
    ours.build((None, steps, DIM))
    kernel, recurrent, bias = (np.zeros(w.shape, "float32") for w in ours.get_weights())
    slope, start = 1 / (1 + np.exp(7)), 0.5
    initial = [np.full((B, units), start)]
    if cell == "LSTM":  # c += sigmoid(-7) tanh(9), and h = c / 2 at the end
        bias[:] = np.repeat([-7, 99, 9, 99], units)
        wanted = start + steps * slope
        initial = [np.zeros((B, units)), *initial]
    else:  # h += sigmoid(-7) (tanh(9) - h)
        bias[0] = np.repeat([7, 0, 9], units)
        wanted = 1 - (1 - start) * (1 - slope) ** steps
    ours.set_weights([kernel, recurrent, bias])
    inputs = ops.zeros((B, steps, DIM), "bfloat16")
    initial = [ops.convert_to_tensor(x, "bfloat16") for x in initial]
    last = array(ops.cast(ours(inputs, initial_state=initial)[-1], "float32"))
    assert_close(last, np.full((B, units), wanted), 1e-2)
    assert abs(wanted - start) > 0.03
