"""Products and steps with constant kernels against NumPy and the layers."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AdditiveAttention, AttentionRNN
from tests.keras_attention.helpers import array, assert_close, normal
from training.config.schema import Config
from training.decode.constant._products import product, shortlist
from training.decode.constant._step import ConstantStep, has_constant_step
from training.decode.search import encode, search
from training.decode.settings import SearchSettings
from training.decode.steps import ConstantModelStep, PlainStep, constant_steps
from training.model.seq2seq import build_seq2seq

SOURCES, TARGETS, BATCH = 23, 29, 3
HEADS = {"attention_heads": 2, "attention_units": 22}
MODELS = {
    "lstm": {"encoder": "lstm", "decoder": "lstm"},
    "gru, tied": {"tie_embeddings": True},
    "luong, feeding": {"order": "luong", "input_feeding": True, "attention": "general"},
    "two layers": {"decoder": "lstm", "encoder": "lstm", "decoder_layers": 2},
    "deep": {"readout": "maxout"},
    "deep, luong, feeding": {"readout": "maxout", "order": "luong", "input_feeding": True},
    "gate": {"gate": True, "decoder": "lstm", "order": "bahdanau"},
    "gate, luong": {"gate": True, "order": "luong", "attention": "general"},
    "heads": {**HEADS, "order": "bahdanau"},
    "heads, luong": {**HEADS, "order": "luong", "attention": "general", "decoder_units": 14},
    "heads, gate, deep": {**HEADS, "gate": True, "readout": "maxout", "order": "bahdanau"},
    "no attention": {"attention": "none"},
    "coverage": {"attention": "coverage", "order": "bahdanau"},
}
PAST = ("local_p", "location_sensitive", "chunkwise")  # mechanisms whose steps are not alike
CASES = [(name, "float32", 2) for name in (*MODELS, *PAST)]
CASES += [(name, "bfloat16", 1) for name in MODELS]


def make_model(rng, **settings):
    sizes = {"attention_units": 17, "encoder_units": 7, "decoder_units": 13}
    sizes |= {"embedding_size": 11, "readout_units": 11}
    model = build_seq2seq(Config(**{**sizes, **settings}), SOURCES, TARGETS)
    for weight in model.weights:
        if weight.dtype == "float32":
            weight.assign(0.5 * normal(rng, *weight.shape))
    return model


def drawn_source(rng, batch=BATCH):
    source = rng.integers(1, SOURCES, (batch, 5)).astype("int32")
    source[1:2, 2:] = 0
    return source


@pytest.mark.parametrize(("name", "precision", "width"), CASES)
def test_log_probabilities_are_those_of_the_layers(rng, name, precision, width):
    model = make_model(rng, **MODELS.get(name, {"attention": name}))
    source = drawn_source(rng)
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
    constant = name in PAST or name.startswith(("deep", "gate", "heads"))
    assert not constant or model.get_layer("decoder").cell.kernel in fixed.taken
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


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("order", ["bahdanau", "luong"])
def test_a_layer_without_an_attentional_vector(rng, order, heads):
    layer = AttentionRNN(
        keras.layers.LSTMCell(7), AdditiveAttention(6, num_heads=heads), order=order, gate=True
    )
    encoded, mask = normal(rng, BATCH, 5, 14), np.arange(5) < np.array([[5], [2], [3]])
    embeddings = keras.Variable(normal(rng, TARGETS, 3))
    layer(normal(rng, BATCH, 2, 3), encoded)
    for weight in layer.weights:
        weight.assign(normal(rng, *weight.shape))
    step = ConstantStep(layer, embeddings, 1, "float32", "float32")
    memory, own = layer.prepare(encoded, mask=mask), step.prepare(encoded, mask)
    state = own_state = layer.initial_state(memory)
    for _ in range(3):
        tokens = rng.integers(0, TARGETS, BATCH).astype("int32")
        *expected, state = layer.step(array(embeddings.value)[tokens], memory, state)
        *found, own_state = step(tokens, own, own_state)
        assert_close(found, [array(x) for x in expected], 1e-4)


def assert_found(found, expected):
    np.testing.assert_array_equal(array(found.ids), array(expected.ids))
    assert_close([found.scores], [array(expected.scores)])


def test_what_is_encoded_once_is_searched_as_if_it_were_read_again(rng):
    model, asked = (
        make_model(rng, **MODELS["gru, tied"]),
        SearchSettings(beam_width=2, num_results=2),
    )
    steps = constant_steps([model], 2, "float32")
    source = ops.convert_to_tensor(drawn_source(rng))
    found = search([model], encode(steps, source), asked, steps=steps)
    assert_found(found, search([model], source, asked, steps=steps))


def test_a_decoder_that_aligns_steps_as_it_is(rng):
    model = make_model(rng, attention="hard_monotonic", order="luong")
    source, asked = drawn_source(rng), SearchSettings(beam_width=3)
    steps = constant_steps([model], 3, "bfloat16")
    found = search([model], source, asked, max_length=7, steps=steps)
    assert_found(found, search([model], source, asked, max_length=7))


def test_an_ensemble_searches_with_constants_as_without(rng):
    models, asked = [make_model(rng) for _ in range(2)], SearchSettings(beam_width=3, num_results=2)
    steps = constant_steps(models, 3, "float32")
    for batch in (BATCH, 1):
        source = drawn_source(rng, batch)
        found = search(models, source, asked, max_length=7, steps=steps)
        assert_found(found, search(models, source, asked, max_length=7))
    with pytest.raises(ValueError, match="bfloat16 expected one model"):
        constant_steps(models, 3, "bfloat16")


INPUTS, UNITS = 7, 13
EPSILON = 2.0**-8  # of bfloat16, whose rounding is at most half of it


def rounded(x):
    """To bfloat16, by NumPy: half up, which differs from half to even on exact halves alone."""
    bits = np.ascontiguousarray(x, "float32").view("uint32")
    return ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view("float32")


@pytest.mark.parametrize("with_bias", [False, True])
def test_a_product_is_exact_or_that_of_rounded_factors(rng, with_bias):
    x, kernel, bias = normal(rng, BATCH, INPUTS), normal(rng, INPUTS, UNITS), normal(rng, UNITS)
    given = kernel, bias if with_bias else None
    exact = x.astype("float64") @ kernel + with_bias * bias
    for single in (False, True):
        assert_close(array(product(*given, "float32", single)(x)), exact)
    exact = rounded(x).astype("float64") @ rounded(kernel) + with_bias * rounded(bias)
    found = array(product(*given)(x))
    assert found.dtype == "float32"
    size = np.abs(rounded(x)) @ np.abs(rounded(kernel)) + 1
    assert (np.abs(found - exact) < EPSILON * size).all()
    assert np.abs(found - exact).max() > 0


@pytest.mark.parametrize("scale", [1.0, 30.0])  # flat, and with all the mass on one token
def test_a_shortlist_has_the_best_logits_in_float32(rng, scale):
    size, k = 2503, 6
    x, kernel, bias = normal(rng, BATCH, UNITS), scale * normal(rng, UNITS, size), normal(rng, size)
    logits = x.astype("float64") @ rounded(kernel) + bias
    log_probs, ids = array(shortlist(kernel, bias, k)(x))
    assert ids.dtype == "int32"
    assert [len(set(row)) for row in ids] == [k] * BATCH
    best = np.argsort(-logits, axis=-1)
    for b in range(BATCH):
        assert set(best[b, : k // 2]) <= set(ids[b])
    listed = np.take_along_axis(logits, ids, -1)
    # Differences of log-probabilities are those of logits, in float32.
    np.testing.assert_allclose(
        log_probs - log_probs[:, :1], listed - listed[:, :1], rtol=1e-5, atol=1e-4 * scale
    )
    greatest = logits.max(-1, keepdims=True)
    normaliser = greatest + np.log(np.exp(logits - greatest).sum(-1, keepdims=True))
    # Rounding moves the normaliser little: by that of the unlisted alone.
    np.testing.assert_allclose(log_probs, listed - normaliser, atol=0.02)


def test_cells_that_are_not_known_are_not_supported():
    stack = keras.layers.StackedRNNCells([keras.layers.LSTMCell(3)] * 2)
    for cell in (keras.layers.GRUCell(3, reset_after=False), stack):
        assert not has_constant_step(AttentionRNN(cell, AdditiveAttention(4)))
