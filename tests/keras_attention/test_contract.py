"""The contract of mechanisms: how far the formula is, and what a subclass may override."""

import sys
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_attention
from keras_attention import (
    AdditiveAttention,
    AttentionRNN,
    LocalAttention,
    MonotonicChunkwiseAttention,
    MultiplicativeAttention,
    fast_paths,
    scores,
)
from tests.keras_attention.helpers import array, assert_close, normal, randomize

B, T, S, DIM, UNITS = 2, 5, 7, 3, 11
LIBRARY = str(Path(keras_attention.__file__).parent)


def calls_in_the_library(function, *args, **options):
    """The code and the depth, from 1 on, of each call in the library that a call makes."""
    depth, found = 0, []

    def watch(frame, event, _):
        nonlocal depth
        code = frame.f_code
        if not code.co_filename.startswith(LIBRARY) or event not in ("call", "return"):
            return
        depth += 1 if event == "call" else -1
        if event == "call":
            found.append((code, depth))

    sys.setprofile(watch)
    try:
        function(*args, **options)
    finally:
        sys.setprofile(None)
    return found


def test_the_way_of_a_call_to_its_formula_is_short(rng):
    query, memory = (keras.ops.convert_to_tensor(normal(rng, B, n, DIM)) for n in (3, S))
    mask = keras.ops.convert_to_tensor(np.arange(S) < np.array([[S], [3]]))
    attention = AdditiveAttention(UNITS)
    rnn = AttentionRNN(keras.layers.GRUCell(UNITS), AdditiveAttention(UNITS))
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


def doubled(base, name, *args):
    """A subclass of `base` whose one method does to its last argument what `x -> 2 x` does."""

    def method(self, *given, **rest):
        *others, last = given
        return getattr(base, name)(self, *others, 2 * last, **rest)

    return type(f"Doubled{base.__name__}", (base,), {name: method})(*args)


class SlowCell(keras.layers.LSTMCell):
    """A cell whose step is not Keras's."""

    def call(self, inputs, states, training=False):
        output, new = super().call(inputs, states, training)
        return 0.5 * output, new


class LateStart(keras.layers.GRUCell):
    """A cell that overrides what its step does not use: it keeps the fast loop."""

    def get_initial_state(self, batch_size=None):
        return [x + 0.25 for x in super().get_initial_state(batch_size)]


@pytest.mark.parametrize("cell", [SlowCell, LateStart])
@pytest.mark.parametrize(
    ("order", "feeding"), [("bahdanau", False), ("luong", False), ("luong", True)]
)
def test_a_subclass_of_a_cell_has_its_own_step(rng, cell, order, feeding):
    layer = AttentionRNN(cell(UNITS), AdditiveAttention(5), order, input_feeding=feeding)
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, DIM)
    layer(inputs, memory)
    randomize(layer, rng)
    fast = array(layer(inputs, memory))
    with fast_paths(False):
        assert_close(fast, array(layer(inputs, memory)))


OVERRIDES = {
    "additive queries": (AdditiveAttention, "queries", UNITS),
    "additive score": (AdditiveAttention, "compute_scores", UNITS),
    "general queries": (MultiplicativeAttention, "queries", "general"),
    "general score": (MultiplicativeAttention, "compute_scores", "general"),
}


@pytest.mark.parametrize("case", OVERRIDES)
def test_a_subclass_that_overrides_a_method_has_it_in_every_loop(rng, case):
    base, name, *args = OVERRIDES[case]
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, DIM)
    found = []
    for attention in (base(*args), doubled(base, name, *args)):
        layer = AttentionRNN(keras.layers.GRUCell(UNITS), attention, input_feeding=True)
        layer(inputs, memory)
        rows = np.random.default_rng(1)
        randomize(layer, rows)
        fast = array(layer(inputs, memory))
        with fast_paths(False):
            assert_close(fast, array(layer(inputs, memory)))
        found.append(fast)
    assert np.abs(found[0] - found[1]).max() > 1e-3


class Twice(AdditiveAttention):
    """Looks twice as sharply, after the scores."""

    def weigh(self, scores, *rest):
        return super().weigh(2 * scores, *rest)


class Elsewhere(AdditiveAttention):
    """Averages in a way of its own; its arguments are those of its base, in their order."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

    def attend(self, *given):
        context, weights, state = super().attend(*given)
        return 2 * context, weights, state


@pytest.mark.parametrize("kind", [Twice, Elsewhere])
def test_a_score_is_not_borrowed_of_a_layer_that_does_more(kind):
    for borrow in (
        lambda layer: LocalAttention(layer),
        lambda layer: MonotonicChunkwiseAttention(AdditiveAttention(UNITS), layer),
    ):
        with pytest.raises(ValueError, match=r"nothing but a score.*Received: "):
            borrow(kind(UNITS, True))


def test_the_exported_step_asks_the_layer(rng):
    """Each override takes away the constant that stands for what it overrides, and no more."""
    from training.decode.constant._step import ConstantStep, has_constant_step

    def cell(attention):
        made = AttentionRNN(keras.layers.LSTMCell(UNITS), attention, units=5)
        made(normal(rng, B, T, DIM), normal(rng, B, S, UNITS))
        randomize(made, rng)
        return made

    assert not has_constant_step(cell(Elsewhere(UNITS)))
    embeddings = keras.Variable(normal(rng, 13, DIM))
    tokens = np.array([3, 11], "int32")
    rows = array(embeddings.value)[tokens]
    memory, mask = normal(rng, B, S, UNITS), np.arange(S) < np.array([[S], [3]])
    for attention in (
        AdditiveAttention(UNITS),
        Twice(UNITS),
        doubled(AdditiveAttention, "queries", UNITS),
        doubled(MultiplicativeAttention, "queries", "general"),
    ):
        layer = cell(attention)
        assert has_constant_step(layer)
        step = ConstantStep(layer, embeddings, 1, "float32", "float32")
        kernels = {id(x) for x in (getattr(attention, "query_kernel", None),)}
        taken = bool(kernels & {id(x) for x in step.taken})
        assert taken == (type(attention) in (AdditiveAttention, Twice))
        prepared = layer.prepare(memory, mask=mask)
        expected = layer.step(rows, prepared, layer.initial_state(prepared))
        fixed = step.prepare(memory, mask)
        found = step(tokens, fixed, layer.initial_state(prepared))
        assert_close([found[0], found[1]], [array(expected[0]), array(expected[1])], 1e-4)
