"""Steps with constant weights against those that the layers compute."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.keras_attention.helpers import array, assert_close, normal
from training.config.schema import Config
from training.decode.search import encode, search
from training.decode.settings import SearchSettings
from training.decode.steps import ConstantModelStep, PlainStep, constant_steps
from training.model.seq2seq import build_seq2seq

SOURCES, TARGETS, BATCH = 23, 29, 3
MODELS = {
    "lstm": {"encoder": "lstm", "decoder": "lstm"},
    "gru, tied": {"tie_embeddings": True},
    "luong, feeding": {"order": "luong", "input_feeding": True, "attention": "general"},
    "two layers": {"decoder": "lstm", "encoder": "lstm", "decoder_layers": 2},
    "deep": {"readout": "deep"},
    "deep, luong, feeding": {"readout": "deep", "order": "luong", "input_feeding": True},
    "no attention": {"attention": "none"},
    "coverage": {"attention": "coverage", "order": "bahdanau"},
}
PAST = ("local_p", "location_sensitive", "chunkwise")  # mechanisms whose steps are not alike
CASES = [(name, "float32", 2) for name in (*MODELS, *PAST)]
CASES += [(name, "bfloat16", 1) for name in MODELS]


def make_model(rng, **settings):
    sizes = {"encoder_units": 7, "decoder_units": 13, "embedding_size": 11, "readout_units": 11}
    model = build_seq2seq(Config(attention_units=17, **{**sizes, **settings}), SOURCES, TARGETS)
    for weight in model.weights:
        if weight.dtype == "float32":
            weight.assign(0.5 * normal(rng, *weight.shape))
    return model


@pytest.mark.parametrize(("name", "precision", "width"), CASES)
def test_log_probabilities_are_those_of_the_layers(rng, name, precision, width):
    model = make_model(rng, **MODELS.get(name, {"attention": name}))
    source = rng.integers(1, SOURCES, (BATCH, 5)).astype("int32")
    source[1, 2:] = 0
    plain, fixed = PlainStep(model, width), ConstantModelStep(model, width, precision)
    memory, state = plain.prepare(source)
    made, own_state = fixed.prepare(source)
    tolerance = 1e-5 if precision == "float32" else 0.1
    for x, y in zip(*map(keras.tree.flatten, (own_state, state)), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(array(x), array(y), atol=tolerance)
    state, own_state = (
        keras.tree.map_structure(lambda x: ops.repeat(x, width, 0), s) for s in (state, own_state)
    )
    assert {id(weight) for weight in fixed.taken} <= {id(weight) for weight in model.weights}
    assert name not in PAST or model.get_layer("decoder").cell.kernel in fixed.taken
    for _ in range(3):
        tokens = rng.integers(4, TARGETS, BATCH * width).astype("int32")
        own_state = own_state if precision == "float32" else state
        found, weights, own_state = fixed(tokens, made, own_state)
        expected, expected_weights, state = plain(tokens, memory, state)
        if precision == "float32":
            assert_close([found, weights], [array(expected), array(expected_weights)], 1e-4)
        else:
            listed = np.take_along_axis(array(expected), array(found.ids), -1)
            np.testing.assert_allclose(array(found.log_probs), listed, atol=0.2)
            np.testing.assert_allclose(array(weights), array(expected_weights), atol=0.1)
            best = array(expected).max(-1)
            assert (best - listed.max(-1) < 0.1).all()


def test_what_is_encoded_once_is_searched_as_if_it_were_read_again(rng):
    model = make_model(rng, **MODELS["gru, tied"])
    source = rng.integers(1, SOURCES, (BATCH, 5)).astype("int32")
    source[1, 2:] = 0
    steps = constant_steps([model], 2, "float32")
    asked = SearchSettings(beam_width=2, num_results=2)
    source = ops.convert_to_tensor(source)
    found = search([model], encode(steps, source), asked, steps=steps)
    expected = search([model], source, asked, steps=steps)
    np.testing.assert_array_equal(array(found.ids), array(expected.ids))
    assert_close([found.scores], [array(expected.scores)])


def test_a_decoder_that_aligns_steps_as_it_is(rng):
    model = make_model(rng, attention="hard_monotonic", order="luong")
    source = rng.integers(1, SOURCES, (BATCH, 5)).astype("int32")
    results, asked = [], SearchSettings(beam_width=3)
    for steps in (None, constant_steps([model], 3, "bfloat16")):
        results.append(search([model], source, asked, max_length=7, steps=steps).ids)
    np.testing.assert_array_equal(*map(array, results))


def test_an_ensemble_searches_with_constants_as_without(rng):
    models, width = [make_model(rng) for _ in range(2)], 3
    asked = SearchSettings(beam_width=width, num_results=min(width, 2))
    steps = constant_steps(models, width, "float32")
    for batch in (BATCH, 1):
        source = rng.integers(1, SOURCES, (batch, 5)).astype("int32")
        found = search(models, source, asked, max_length=7, steps=steps)
        expected = search(models, source, asked, max_length=7)
        np.testing.assert_array_equal(array(found.ids), array(expected.ids))
        assert_close(found.scores, array(expected.scores))
    with pytest.raises(ValueError, match="bfloat16 expected one model"):
        constant_steps(models, width, "bfloat16")
