"""A target in two calls, with the state in between, is the target in one call."""

import keras
import numpy as np
import pytest

from keras_attention import (
    AdditiveAttention,
    AttentionRNN,
    CoverageAttention,
    MonotonicAttention,
    MultiplicativeAttention,
    State,
    fast_paths,
    mechanisms,
)
from tests.keras_attention.helpers import array, assert_close, few, normal, randomize

B, T, S, DIM, DV, UNITS, OUT = 2, 7, 11, 3, 6, 5, 4
CUT = 3
# True in each row of each half, False in both, so that a state stays somewhere.
MASK = np.array([[1, 1, 1, 1, 1, 0, 0], [1, 0, 1, 1, 0, 1, 0]], bool)
OPTIONS = {"local_m": {"half_width": 1}, "local_p": {"half_width": 2}}
SAVED = ("coverage", "luong feeding")
WITH_STATE = ("local_m", "location_sensitive", "coverage", "monotonic", "chunkwise")
WAYS = {
    "bahdanau": {},
    "bahdanau feeding": {"input_feeding": True, "units": OUT},
    "luong": {"order": "luong", "units": OUT},
    "luong feeding": {"order": "luong", "input_feeding": True},
}


def decoder(rng, attention, cell=None, **options):
    layer = AttentionRNN(
        cell or keras.layers.GRUCell(DV),
        attention,
        return_state=True,
        return_attention_scores=True,
        **options,
    )
    layer.build((None, None, DIM), (None, None, DV))
    randomize(layer, rng)
    return layer


def data(rng):
    memory_mask = np.arange(S) < np.array([[S], [S - 4]])
    return normal(rng, B, T, DIM), normal(rng, B, S, DV), memory_mask


def assert_halves_are_the_whole(layer, inputs, memory, memory_mask, mask):
    def run(part, **options):
        masks = {} if mask is None else {"inputs_mask": mask[:, part]}
        return layer(inputs[:, part], memory, memory_mask=memory_mask, **masks, **options)

    outputs, last, weights = run(slice(None))
    first, state, first_weights = run(slice(CUT))
    second, end, second_weights = run(slice(CUT, None), initial_state=state)
    assert isinstance(state, State)
    assert_close(np.concatenate([array(first), array(second)], 1), array(outputs))
    both = np.concatenate([array(first_weights), array(second_weights)], -2)
    assert_close(both, array(weights))
    assert_close(keras.tree.flatten(end), [array(x) for x in keras.tree.flatten(last)])


@pytest.mark.parametrize(
    ("name", "way"),
    [
        *((n, "bahdanau feeding") for n in few(mechanisms.BY_NAME) if n not in WITH_STATE),
        *((name, way) for name in few(WITH_STATE, "monotonic") for way in WAYS),
    ],
)
def test_two_halves_of_a_target_are_the_whole(rng, name, way):
    layer = decoder(rng, mechanisms.make(name, UNITS, **OPTIONS.get(name, {})), **WAYS[way])
    with fast_paths(name != "coverage"):
        assert_halves_are_the_whole(layer, *data(rng), MASK)


OTHERS = {
    "heads": lambda: (MultiplicativeAttention("general", num_heads=3), keras.layers.GRUCell(DV)),
    "coverage": lambda: (CoverageAttention(UNITS), keras.layers.LSTMCell(DV)),
    "stack": lambda: (
        CoverageAttention(UNITS),
        keras.layers.StackedRNNCells([keras.layers.GRUCell(5), keras.layers.LSTMCell(DV)]),
    ),
    "hard": lambda: (
        MonotonicAttention(AdditiveAttention(UNITS), mode="hard"),
        keras.layers.SimpleRNNCell(DV),
    ),
}


@pytest.mark.parametrize("way", ["luong", "bahdanau feeding"])
@pytest.mark.parametrize("name", few(OTHERS, "stack"))
def test_two_halves_are_the_whole_with_other_cells_and_several_heads(rng, name, way):
    attention, cell = OTHERS[name]()
    assert_halves_are_the_whole(decoder(rng, attention, cell, **WAYS[way]), *data(rng), None)


@pytest.mark.parametrize(
    ("name", "way"),
    few([("local_m", "luong"), ("monotonic", "bahdanau"), SAVED], SAVED),
)
def test_two_halves_in_a_saved_model_are_the_whole(rng, tmp_path, name, way):
    layer = decoder(rng, mechanisms.make(name, UNITS, **OPTIONS.get(name, {})), **WAYS[way])
    inputs, memory, _ = data(rng)
    first, second = keras.Input((None, DIM)), keras.Input((None, DIM))
    seen = keras.Input((None, DV))
    before, state, _ = layer(first, seen)
    after, last, _ = layer(second, seen, initial_state=state)
    model = keras.Model([first, second, seen], [before, after, last])
    model.save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    before, after, *last = keras.tree.flatten(
        model.predict([inputs[:, :CUT], inputs[:, CUT:], memory], verbose=0)
    )
    outputs, end, _ = layer(inputs, memory)
    assert_close(np.concatenate([before, after], 1), array(outputs))
    assert_close(last, [array(x) for x in keras.tree.flatten(end)])


def test_a_state_goes_in_and_out_of_a_model_of_one_step(rng):
    """The inference model of the tutorials: the state comes in by inputs of its own."""
    layer = decoder(rng, CoverageAttention(UNITS), input_feeding=True, units=OUT)
    inputs, memory, _ = data(rng)
    token, seen = keras.Input((1, DIM)), keras.Input((None, DV))
    state = State([keras.Input((DV,))], keras.Input((None,)), keras.Input((OUT,)))
    output, last, _ = layer(token, seen, initial_state=state)
    model = keras.Model([token, seen, *keras.tree.flatten(state)], [output, last])
    now = [np.zeros((B, size), "float32") for size in (DV, S, OUT)]
    steps = []
    for t in range(T):
        step, *now = keras.tree.flatten(
            model.predict([inputs[:, t : t + 1], memory, *now], verbose=0)
        )
        steps.append(step)
    assert_close(np.concatenate(steps, 1), array(layer(inputs, memory)[0]))


def test_the_cells_states_alone_start_the_rest_anew(rng):
    layer = decoder(rng, CoverageAttention(UNITS), input_feeding=True)
    inputs, memory, _ = data(rng)
    cell = normal(rng, B, DV)
    prepared = layer.prepare(memory)
    state = layer.initial_state(prepared)._replace(cell=[keras.ops.convert_to_tensor(cell)])
    whole = array(layer(inputs, memory, initial_state=state)[0])
    assert_close(layer(inputs, memory, initial_state=[cell])[0], whole)
    assert_close(layer.initial_state(prepared, [cell]).cell[0], cell)
