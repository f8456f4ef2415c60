"""What calls and subclasses may count on: short ways, their own methods, no other threads."""

import sys
import threading
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

import keras_attention as ka
from keras_attention import scores
from tests.keras_attention.helpers import array, assert_close, normal, randomize

B, T, S, DIM, UNITS = 2, 5, 7, 3, 11
LIBRARY = str(Path(ka.__file__).parent)
tensorflow = pytest.mark.tensorflow


def calls_in_the_library(function, *args, **options):
    """The code and the depth, from 1 on, of each call in the library that a call makes."""
    depth, found = 0, []

    def watch(frame, event, _):
        nonlocal depth
        if frame.f_code.co_filename.startswith(LIBRARY) and event in ("call", "return"):
            depth += 1 if event == "call" else -1
            found.extend([(frame.f_code, depth)] if event == "call" else [])

    sys.setprofile(watch)
    try:
        function(*args, **options)
    finally:
        sys.setprofile(None)
    return found


@tensorflow
def test_the_way_of_a_call_to_its_formula_is_short(rng):
    query, memory = (ops.convert_to_tensor(normal(rng, B, n, DIM)) for n in (3, S))
    mask = ops.convert_to_tensor(np.arange(S) < np.array([[S], [3]]))
    attention = ka.AdditiveAttention(UNITS)
    rnn = ka.AttentionRNN(keras.layers.GRUCell(UNITS), ka.AdditiveAttention(UNITS))
    for layer, name, most in (
        (attention, "value_mask", (30, 5)),
        (rnn, "memory_mask", (150, 10)),
    ):
        layer(query, memory, **{name: mask})
        codes = [code for code, _ in calls_in_the_library(layer, query, memory, **{name: mask})]
        assert len(codes) <= most[0]
        assert len({code.co_filename for code in codes}) <= most[1]
    depths = dict(calls_in_the_library(attention.call, query, memory)[::-1])
    assert depths[attention.call.__func__.__code__] == 1
    assert depths[scores.additive.__code__] <= 5


class SlowCell(keras.layers.LSTMCell):
    """A cell whose step is not Keras's."""

    def call(self, inputs, states, training=False):
        output, new = super().call(inputs, states, training)
        return 0.5 * output, new


class LateStart(keras.layers.GRUCell):
    """A cell that overrides what its step does not use: it keeps the fast loop."""

    def get_initial_state(self, batch_size=None):
        return [x + 0.25 for x in super().get_initial_state(batch_size)]


def doubled(base, name, *args):
    """A subclass of `base` whose one method does to its last argument what `x -> 2 x` does."""

    def method(self, *given, **rest):
        *others, last = given
        return getattr(base, name)(self, *others, 2 * last, **rest)

    return type(f"Doubled{base.__name__}", (base,), {name: method})(*args)


def fast_outputs(cell, attention, **options):
    """What the fast loop gives, which is what the plain one does."""
    rng = np.random.default_rng(1)
    layer = ka.AttentionRNN(cell, attention, **options)
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, DIM)
    layer(inputs, memory)
    randomize(layer, rng)
    fast = array(layer(inputs, memory))
    with ka.fast_paths(False):
        assert_close(fast, array(layer(inputs, memory)))
    return fast


@tensorflow
@pytest.mark.parametrize(("cell", "base"), [(SlowCell, "LSTMCell"), (LateStart, "GRUCell")])
@pytest.mark.parametrize(
    ("order", "feeding"), [("bahdanau", False), ("luong", False), ("luong", True)]
)
def test_a_subclass_of_a_cell_has_its_own_step(cell, base, order, feeding):
    options = {"order": order, "input_feeding": feeding}
    cells = cell(UNITS), getattr(keras.layers, base)(UNITS)
    own, plain = (fast_outputs(each, ka.AdditiveAttention(5), **options) for each in cells)
    assert np.abs(own - plain).max() > 1e-3


@tensorflow
@pytest.mark.parametrize("name", ["queries", "compute_scores"])
@pytest.mark.parametrize(
    ("base", "argument"), [(ka.AdditiveAttention, UNITS), (ka.MultiplicativeAttention, "general")]
)
def test_a_subclass_that_overrides_a_method_has_it_in_every_loop(name, base, argument):
    layers = base(argument), doubled(base, name, argument)
    plain, own = (
        fast_outputs(keras.layers.GRUCell(UNITS), each, input_feeding=True) for each in layers
    )
    assert np.abs(own - plain).max() > 1e-3


class Twice(ka.AdditiveAttention):
    """Looks twice as sharply, after the scores."""

    def weigh(self, scores, *rest):
        return super().weigh(2 * scores, *rest)


class Elsewhere(ka.AdditiveAttention):
    """Averages in a way of its own; its arguments are those of its base, in their order."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

    def attend(self, *given):
        context, weights, state = super().attend(*given)
        return 2 * context, weights, state


@tensorflow
@pytest.mark.parametrize("kind", [Twice, Elsewhere])
def test_a_score_is_not_borrowed_of_a_layer_that_does_more(kind):
    for borrow in (
        lambda layer: ka.LocalAttention(layer),
        lambda layer: ka.MonotonicChunkwiseAttention(ka.AdditiveAttention(UNITS), layer),
    ):
        with pytest.raises(ValueError, match=r"nothing but a score.*Received: "):
            borrow(kind(UNITS, True))


@tensorflow
def test_the_exported_step_asks_the_layer(rng):
    """Each override takes away the constant that stands for what it overrides, and no more."""
    from training.decode.constant._step import ConstantStep, has_constant_step

    def cell(attention):
        made = ka.AttentionRNN(keras.layers.LSTMCell(UNITS), attention, units=5)
        made(normal(rng, B, T, DIM), normal(rng, B, S, UNITS))
        randomize(made, rng)
        return made

    assert not has_constant_step(cell(Elsewhere(UNITS)))
    embeddings, tokens = keras.Variable(normal(rng, 13, DIM)), np.array([3, 11], "int32")
    rows, memory = array(embeddings.value)[tokens], normal(rng, B, S, UNITS)
    mask = np.arange(S) < np.array([[S], [3]])
    for attention in (
        ka.AdditiveAttention(UNITS),
        Twice(UNITS),
        doubled(ka.AdditiveAttention, "queries", UNITS),
        doubled(ka.MultiplicativeAttention, "queries", "general"),
    ):
        layer = cell(attention)
        assert has_constant_step(layer)
        step = ConstantStep(layer, embeddings, 1, "float32", "float32")
        kernel = getattr(attention, "query_kernel", None)
        taken = any(kernel is x for x in step.taken)
        assert taken == (type(attention) in (ka.AdditiveAttention, Twice))
        prepared = layer.prepare(memory, mask=mask)
        expected = layer.step(rows, prepared, layer.initial_state(prepared))
        found = step(tokens, step.prepare(memory, mask), layer.initial_state(prepared))
        assert_close([found[0], found[1]], [array(expected[0]), array(expected[1])], 1e-4)


class Interrupted:
    """An activation during which, once, another thread does something."""

    def __init__(self):
        self.todo, self.result = None, None

    def __call__(self, x):
        todo, self.todo = self.todo, None
        if todo is not None:
            thread = threading.Thread(target=lambda: setattr(self, "result", array(todo())))
            thread.start()
            thread.join(60)
        return ops.tanh(x)


def gru(activation):
    return keras.layers.GRUCell(UNITS, activation, dropout=0.5, recurrent_dropout=0.5, seed=3)


def stack(activation):
    return keras.layers.StackedRNNCells([gru("tanh"), gru(activation)])


LAYERS = {
    "bahdanau": lambda act: ka.AttentionRNN(gru(act), ka.AdditiveAttention(5)),
    "luong": lambda act: ka.AttentionRNN(stack(act), ka.AdditiveAttention(5), "luong"),
    "hoisted": lambda act: ka.HoistedRNN(gru(act), return_sequences=True),
}


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="it traces while no other thread can")
@pytest.mark.parametrize("name", LAYERS)
def test_training_and_inference_beside_one_another_have_their_own_dropout(rng, name):
    """A call changes nothing of a layer that another thread may be calling."""
    activation = Interrupted()
    layer, sequence = LAYERS[name](activation), normal(rng, B, T, DIM)
    inputs = (sequence,) if name == "hoisted" else (sequence, normal(rng, B, S, DIM))
    plain = array(layer(*inputs))
    for training in (False, True):
        activation.todo = lambda other=not training: layer(*inputs, training=other)
        results = array(layer(*inputs, training=training)), activation.result
        trained, inferred = results if training else results[::-1]
        np.testing.assert_allclose(inferred, plain, atol=1e-6)
        assert np.abs(trained - plain).max() > 1e-2
