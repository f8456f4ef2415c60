"""A target in two calls, or in single steps, with the state in between, is that in one call."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AttentionRNN, CoverageAttention, State, fast_paths
from tests.keras_attention import zoo
from tests.keras_attention.helpers import array, assert_close, few, normal, randomize

B, T, S, DIM, OUT = 2, 5, 7, 3, 4
CUT = 3
# True in each row of each half, False in both, so that a state stays somewhere.
MASK = np.array([[1, 0, 1, 1, 0], [1, 1, 0, 0, 1]], bool)
WITH_STATE = ("local_m", "location_sensitive", "coverage", "monotonic", "chunkwise")


def stack(units):
    return keras.layers.StackedRNNCells([keras.layers.GRUCell(5), keras.layers.LSTMCell(units)])


# A cell each.
WAYS = {
    "bahdanau": (keras.layers.LSTMCell, {}),
    "bahdanau feeding": (stack, {"input_feeding": True, "units": OUT}),
    "luong": (keras.layers.GRUCell, {"order": "luong", "units": OUT}),
    "luong feeding": (keras.layers.SimpleRNNCell, {"order": "luong", "input_feeding": True}),
}


def decoder(rng, name, way):
    """The layer, with a cell as wide as the mechanism's queries, and a memory of its values."""
    (query, value), (make, options) = zoo.widths(name), WAYS[way]
    options = {"return_state": True, "return_attention_scores": True, **options}
    layer = AttentionRNN(make(query), zoo.MECHANISMS[name](), **options)
    layer.build((None, None, DIM), (None, None, value))
    randomize(layer, rng)
    return layer, normal(rng, B, T, DIM), normal(rng, B, S, value)


def stepwise(layer, inputs, memory, memory_mask, valid):
    """The outputs and weights of one `step` after the other; masked steps leave the state."""
    prepared = layer.prepare(ops.convert_to_tensor(memory), mask=memory_mask)
    state, found = layer.initial_state(prepared), []
    for t in range(T):

        def rows(x, t=t):
            return valid[:, t].reshape(-1, *[1] * (len(x.shape) - 1))

        *step, new = layer.step(ops.convert_to_tensor(inputs[:, t]), prepared, state)
        state = keras.tree.map_structure(lambda x, y: ops.where(rows(x), x, y), new, state)
        found.append([array(x) * rows(x) for x in step])
    outputs, weights = zip(*found, strict=True)
    return np.stack(outputs, 1), np.stack(weights, -2)


# Ways take turns; a mechanism with a state has two.
CASES = [(name, list(WAYS)[n % 4]) for n, name in enumerate(zoo.MECHANISMS)]
CASES += [(name, list(WAYS)[(n + 1) % 4]) for n, name in enumerate(WITH_STATE)]
OF_OTHERS = [("monotonic", "bahdanau"), ("location_sensitive", "luong")]
OF_OTHERS += [("local_p", "luong feeding"), ("chunkwise", "bahdanau feeding")]


@pytest.mark.parametrize(("name", "way"), few(CASES, *OF_OTHERS))
def test_parts_of_a_target_are_the_whole(rng, name, way):
    layer, inputs, memory = decoder(rng, name, way)
    mask = None if name in ("coverage", "dot") else MASK
    memory_mask = np.arange(S) < np.array([[S], [3]])

    def run(part, **options):
        masks = {} if mask is None else {"inputs_mask": mask[:, part]}
        return layer(inputs[:, part], memory, memory_mask=memory_mask, **masks, **options)

    with fast_paths(name != "coverage"):
        outputs, last, weights = array(run(slice(None)))
        first, state, first_weights = run(slice(CUT))
        second, end, second_weights = run(slice(CUT, None), initial_state=state)
    assert isinstance(state, State)
    assert_close(np.concatenate([array(first), array(second)], 1), outputs)
    assert_close(np.concatenate([array(first_weights), array(second_weights)], -2), weights)
    assert_close(keras.tree.flatten(end), keras.tree.flatten(last))
    valid = np.ones((B, T), bool) if mask is None else mask
    assert_close(stepwise(layer, inputs, memory, memory_mask, valid), (outputs, weights))


SAVED = ("coverage", "luong feeding")


@pytest.mark.parametrize(("name", "way"), few([("local_m", "luong"), SAVED], SAVED))
def test_two_halves_in_a_saved_model_are_the_whole(rng, tmp_path, name, way):
    layer, inputs, memory = decoder(rng, name, way)
    first, second, seen = (keras.Input((None, n)) for n in (DIM, DIM, memory.shape[-1]))
    before, state, _ = layer(first, seen)
    after, last, _ = layer(second, seen, initial_state=state)
    model = keras.Model([first, second, seen], [before, after, last])
    model.save(tmp_path / "model.keras")
    model = keras.models.load_model(tmp_path / "model.keras")
    before, after, *last = keras.tree.flatten(model([inputs[:, :CUT], inputs[:, CUT:], memory]))
    outputs, end, _ = array(layer(inputs, memory))
    assert_close(np.concatenate(array([before, after]), 1), outputs)
    assert_close(last, keras.tree.flatten(end))


def test_a_state_goes_in_and_out_of_a_model_of_one_step_and_a_cells_alone_starts_the_rest(rng):
    """The inference model of the tutorials: the state comes in by inputs of its own."""
    cell, fed = keras.layers.GRUCell(6), {"input_feeding": True, "units": OUT}
    layer = AttentionRNN(cell, CoverageAttention(5), return_state=True, **fed)
    inputs, memory = normal(rng, B, T, DIM), normal(rng, B, S, 6)
    token, seen = keras.Input((1, DIM)), keras.Input((None, 6))
    state = State([keras.Input((6,))], keras.Input((None,)), keras.Input((OUT,)))
    output, last = layer(token, seen, initial_state=state)
    model = keras.Model([token, seen, *keras.tree.flatten(state)], [output, last])
    randomize(layer, rng)
    now, steps = [np.zeros((B, size), "float32") for size in (6, S, OUT)], []
    for t in range(T):
        found = model([inputs[:, t : t + 1], memory, *now])
        step, *now = array(keras.tree.flatten(found))
        steps.append(step)
    assert_close(np.concatenate(steps, 1), array(layer(inputs, memory)[0]))
    first, prepared = normal(rng, B, 6), layer.prepare(memory)
    state = layer.initial_state(prepared)._replace(cell=[ops.convert_to_tensor(first)])
    whole = array(layer(inputs, memory, initial_state=state)[0])
    assert_close(layer(inputs, memory, initial_state=[first])[0], whole)
    assert_close(layer.initial_state(prepared, [first]).cell[0], first)
