"""Hoisted loops against the plain ones, and their derivatives of every kind against differences."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import (
    AdditiveAttention,
    AttentionRNN,
    CoverageAttention,
    HoistedRNN,
    MonotonicAttention,
    MultiplicativeAttention,
    fast_paths,
)
from keras_attention.fast import loop
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

CELLS = {
    "SimpleRNN": keras.layers.SimpleRNNCell,
    "GRU": keras.layers.GRUCell,
    "LSTM": keras.layers.LSTMCell,
}
ATTENTIONS = {
    "additive": lambda **k: AdditiveAttention(13, **k),
    "general": lambda **k: MultiplicativeAttention("general", **k),
    "scaled dot": lambda **k: MultiplicativeAttention("scaled_dot", use_scale=True, **k),
    "coverage": lambda **k: CoverageAttention(13, **k),
    "heads": lambda **k: AdditiveAttention(14, num_heads=2, **k),
    "dropout": lambda **k: AdditiveAttention(13, dropout=0.5, seed=3, **k),
    "monotonic": lambda **k: MonotonicAttention(AdditiveAttention(17, **k), **k),
}
WAYS = {"bahdanau": ("bahdanau", False), "fed": ("bahdanau", True), "luong": ("luong", True)}
READOUTS = (None, "vector", "deep")
# Each attention and way; cells and what else there is take turns.
CASES = [
    (list(CELLS)[n % 3], *case, READOUTS[(n + n // 3) % 3], n // 2 % 2, n // 3 % 2, n // 5 % 2)
    for n, case in enumerate(itertools.product(ATTENTIONS, WAYS))
]


def built(rng, cell, attention, way, readout=None, gate=False, dtype="float32"):
    order, feeding = WAYS[way]
    layer = AttentionRNN(
        CELLS[cell](UNITS, dtype=dtype),
        ATTENTIONS[attention](dtype=dtype),
        order=order,
        input_feeding=feeding,
        units=17 if readout else None,
        readout=readout or "vector",
        gate=bool(gate),
        return_state=True,
        return_attention_scores=True,
        dtype=dtype,
    )
    layer.build((None, T, DIM), (None, S, UNITS))
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.5))
    return layer


def results(layer, inputs, memory, initial, upstreams=None, **options):
    """All that the layer returns, and the gradients of its weighted sum."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch([inputs, memory, initial])
        found = keras.tree.flatten(layer(inputs, memory, initial_state=initial, **options))
        if upstreams is None:
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
    import tensorflow as tf

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
        with fast_paths(fast):
            found.append(results(layer, inputs, memory, initial, **options))
        assert len(taken) == fast
    assert_close(keras.tree.flatten(found[1]), keras.tree.flatten(array(found[0])), 2e-5)


class Problem:
    """A scalar function of a point `(n,)` in float64: a weighted sum of what a layer returns."""

    def __init__(self, rng, layer, inputs, memory=None):
        import tensorflow as tf

        self.layer, self.variables = layer, layer.trainable_variables
        self.inputs = tf.constant(inputs, "float64")
        self.memory = None if memory is None else tf.constant(memory, "float64")
        self.point = np.concatenate([array(v.value).ravel() for v in self.variables])
        self.direction = rng.normal(size=self.point.shape)
        self.upstream = None

    def total(self, point, inputs):
        import tensorflow as tf

        sizes = [int(np.prod(v.shape)) for v in self.variables]
        parts = [
            tf.reshape(x, v.shape)
            for x, v in zip(tf.split(point, sizes), self.variables, strict=True)
        ]
        mapping = list(zip(self.variables, parts, strict=True))
        with keras.StatelessScope(state_mapping=mapping):
            found = self.layer(inputs) if self.memory is None else self.layer(inputs, self.memory)
        found = keras.tree.flatten(found)
        return sum(
            tf.reduce_sum(tf.sin(1.0 + n + tf.cast(tf.range(tf.size(x)), x.dtype))
                          * tf.reshape(x, [-1]) ** 2)
            for n, x in enumerate(found)
        )  # fmt: skip

    def penalty(self, point):
        """The squared norm of the gradient in the inputs, as gradient penalties have it."""
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(self.inputs)
            total = self.total(point, self.inputs)
        return tf.reduce_sum(tape.gradient(total, self.inputs) ** 2)

    def difference(self, function, step=2e-6):
        """The derivative of a function along the direction, from the plain formulas' values."""
        import tensorflow as tf

        with fast_paths(False):
            low, high = (
                function(tf.constant(self.point + sign * step * self.direction)) for sign in (-1, 1)
            )
        return float(high - low) / (2 * step)


def problem(rng, name):
    if name == "HoistedRNN":
        layer = HoistedRNN(
            keras.layers.GRUCell(UNITS, dtype="float64"), return_sequences=True, dtype="float64"
        )
        layer.build((None, T, DIM))
        for weight in layer.trainable_weights:
            weight.assign(rng.normal(size=weight.shape, scale=0.5))
        return Problem(rng, layer, normal(rng, B, T, DIM))
    layer = built(rng, *name.split(", "), dtype="float64")
    return Problem(rng, layer, normal(rng, B, T, DIM), normal(rng, B, S, UNITS))


PROBLEMS = [
    "HoistedRNN",
    "LSTM, additive, bahdanau",
    "GRU, general, bahdanau",
    "SimpleRNN, general, luong, deep",
    "GRU, heads, fed",
]


# A graph takes 20 seconds for the last, whose products those before it have.
@pytest.mark.parametrize(
    ("name", "graph"), [*((x, False) for x in PROBLEMS), *((x, True) for x in PROBLEMS[:-1])]
)
def test_gradients_of_gradients_are_those_of_differences(rng, name, graph):
    import tensorflow as tf

    given = problem(rng, name)

    def slope(point):
        with tf.GradientTape() as tape:
            tape.watch(point)
            penalty = given.penalty(point)
        return tape.gradient(penalty, point)

    slope = tf.function(slope, autograph=False) if graph else slope
    found = float(np.dot(array(slope(tf.constant(given.point))), given.direction))
    np.testing.assert_allclose(found, given.difference(given.penalty), rtol=1e-6)


@pytest.mark.parametrize("name", ["HoistedRNN", *PROBLEMS[2:4]])
def test_forward_mode_is_refused_in_one_line_or_right(rng, name):
    import tensorflow as tf

    given = problem(rng, name)
    point = tf.constant(given.point)
    expected = given.difference(lambda point: given.total(point, given.inputs))

    def derivative():
        with tf.autodiff.ForwardAccumulator(point, tf.constant(given.direction)) as accumulator:
            return float(accumulator.jvp(given.total(point, given.inputs)))

    told = ""
    try:
        found = derivative()
    except NotImplementedError as error:
        told = str(error)
    if told:
        assert "fast_paths(False)" in told
        with fast_paths(False):
            found = derivative()
    np.testing.assert_allclose(found, expected, rtol=1e-5)


# Each cell with masks of either kind.
@pytest.mark.parametrize("options", [*itertools.product([False, True], repeat=3)])
def test_a_hoisted_rnn_is_that_of_keras_whatever_is_masked(rng, options):
    names = ("zero_output_for_mask", "return_sequences", "go_backwards")
    options = {**dict(zip(names, options, strict=True)), "return_state": True}
    cell = list(CELLS)[sum(options.values()) % 3]
    theirs = keras.layers.RNN(CELLS[cell](UNITS), **options)
    ours = HoistedRNN(CELLS[cell](UNITS), name=theirs.name, **options)
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
    ours = HoistedRNN(CELLS[cell](units, dtype=policy), return_state=True, dtype=policy)
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
