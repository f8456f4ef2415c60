"""Each row of docs/papers.md is built as it stands there, and computes its paper's equations."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_attention
from tests.keras_attention import pages
from tests.keras_attention.helpers import array, assert_close, normal, randomize, weights_of
from tests.keras_attention.reference import gru, sigmoid, softmax
from tests.keras_attention.test_mechanisms import (
    at_0,
    coverage,
    first,
    local,
    location,
    location_sensitive,
    looking,
    mocha,
    monotonic,
    nothing,
    plain,
)
from tests.keras_attention.test_recurrent import expected

PAGE = Path(__file__).parents[2] / "docs" / "papers.md"
ROWS = dict(re.findall(r"^\| ([^|]+?) \| `(Att[^`]+|Mul[^`]+)` \|", PAGE.read_text(), re.MULTILINE))

B, T, S, E, D, N, M, L = 2, 3, 5, 7, 12, 12, 8, 6  # dot wants D = N, and heads divide D and M
SIZES = {"n": N, "m": M, "l": L, "k": 3, "r": 3, "S": S, "h": 2, "w": 2}


def lstm(dim):
    return 4 * N * (dim + N + 1)


def gru_of(dim):
    return 3 * N * (dim + N + 2)


ADDITIVE, PROJECTED = (N + D + 1) * M, N * D
READ_OUT, LOCATED = (D + N) * N, M + 3 * 3 + 3 * M  # W_c; bias, filters and their kernel
ATTENTIONAL = {"order": "luong", "units": N}
FED = {"order": "luong", "input_feeding": True}
# For each row: the formula of its weights and what it remembers at first, the paper's settings of
# decoder and attention, and the count of all weights.
PAPERS = {
    "Bahdanau et al. 2014": (
        *(plain, at_0, {"units": L, "readout": "maxout"}),
        gru_of(E + D) - 3 * N + ADDITIVE + (D + N + E) * 2 * L,
    ),
    "Luong et al. 2015, dot": (plain, at_0, ATTENTIONAL, lstm(E) + READ_OUT),
    "Luong et al. 2015, general": (plain, at_0, ATTENTIONAL, lstm(E) + READ_OUT + PROJECTED),
    "Luong et al. 2015, concat": (plain, at_0, ATTENTIONAL, lstm(E) + READ_OUT + ADDITIVE),
    "Luong et al. 2015, location": (location, at_0, ATTENTIONAL, lstm(E) + READ_OUT + N * S),
    "Luong et al. 2015, local-m": (
        *(local, at_0, {**ATTENTIONAL, "half_width": 2, "predictive": False}),
        lstm(E) + READ_OUT + PROJECTED,
    ),
    "Luong et al. 2015, local-p": (
        *(local, at_0, {**ATTENTIONAL, "half_width": 2, "predictive": True}),
        lstm(E) + READ_OUT + PROJECTED + N * N + N,
    ),
    "Luong et al. 2015, general, with input feeding": (
        *(plain, at_0, {**ATTENTIONAL, **FED}),
        lstm(E + N) + READ_OUT + PROJECTED,
    ),
    "Xu et al. 2015, Show, Attend and Tell": (
        *(plain, at_0, {"gate": True}),
        lstm(E + D) + ADDITIVE + N + 1,
    ),
    "Chorowski et al. 2015": (
        *(location_sensitive, nothing, {**FED, "cumulative": False}),
        gru_of(E + D + N) + ADDITIVE + LOCATED,
    ),
    "Chan et al. 2015, LAS": (plain, at_0, FED, lstm(E + D + N) + PROJECTED),
    "Wu et al. 2016, GNMT, first layer": (plain, at_0, {}, lstm(E + D) + ADDITIVE),
    "See et al. 2017, pointer-generator": (
        *(coverage, nothing, {"order": "luong"}),
        lstm(E) + ADDITIVE + M + M,
    ),
    "Raffel et al. 2017": (
        *(monotonic, first, {"mode": "parallel", "noise": 1.0, "bias_initial": -1.0}),
        gru_of(E + D) + ADDITIVE + M + 1 + 1,
    ),
    "Chiu and Raffel 2018, MoChA": (
        *(mocha, first, {"mode": "parallel", "noise": 1.0, "chunk_size": 2}),
        gru_of(E + D) + 2 * ADDITIVE + M + 1 + 1,
    ),
    "Shen et al. 2018, Tacotron 2": (
        *(location_sensitive, nothing, {**FED, "cumulative": True}),
        lstm(E + D + N) + ADDITIVE + LOCATED,
    ),
    "Ma et al. 2020, MMA": (
        *(monotonic, first, {"mode": "parallel", "noise": 1.0, "num_heads": 2}),
        gru_of(E + D) + ADDITIVE + M + 1 + 1,
    ),
}
DECODER = {"order": "bahdanau", "input_feeding": False, "gate": False, "units": None}
DECODER |= {"readout": "attentional"}
POOLED = ("Yang et al. 2016, HAN", "Choi et al. 2016, RETAIN")


def built(row):
    """The layer, or the call, of a row of the page."""
    names = {**vars(keras.layers), **vars(keras_attention), **SIZES}
    return eval(ROWS[row], names)


def test_the_page_has_the_papers():
    assert set(ROWS) == {*PAPERS, *POOLED}


@pytest.mark.parametrize("row", PAPERS)
def test_a_decoder_of_the_page_computes_the_equations_of_its_paper(rng, row):
    layer, (formula, start, settings, count) = built(row), PAPERS[row]
    for name, wanted in {**DECODER, **settings}.items():
        assert getattr(layer if name in DECODER else layer.attention, name) == wanted, name
    inputs, memory = normal(rng, B, T, E), normal(rng, B, S, D)
    layer(inputs, memory)
    randomize(layer, rng)
    assert sum(int(np.prod(x.shape)) for x in layer.trainable_weights) == count
    if layer.input_feeding and layer.output_kernel is None:
        kernel = array(layer.cell.kernel.value).copy()
        kernel[E + D :] = 0  # the paper feeds c_t alone, the layer [c_t; s_t]
        layer.cell.kernel.assign(kernel)
    found, weights = array(layer(inputs, memory, return_attention_scores=True))
    look = looking(layer.attention, formula, start)
    outputs, wanted, _ = expected(layer, inputs, memory, look=look)
    assert_close((found, np.moveaxis(weights, -2, 1)), (outputs, wanted), 1e-4)


def test_the_tacotron_of_the_page_returns_frames_and_weights(rng):
    block, _ = pages.blocks(PAGE)
    model = pages.run(block, PAGE)["tacotron"]
    randomize(model, rng)
    phones, frames = normal(rng, B, S, 16), normal(rng, B, T, 8)
    made, weights = array(model([phones, frames]))
    assert made.shape == (B, T, 8)
    assert_close(weights.sum(-1), np.ones((B, T)))
    # A frame is made of the frames before it only.
    frames[:, -1] += 1
    again = array(model([phones, frames])[0])
    assert_close(again[:, :-1], made[:, :-1])
    assert abs(again[:, -1] - made[:, -1]).max() > 1e-3


def test_hierarchical_attention_pools_by_a_learned_query(rng):
    layer, value = built(POOLED[0]), normal(rng, B, S, D)
    layer(value)
    randomize(layer, rng)
    w = weights_of(layer)
    assert sum(x.size for x in w.values()) == D * M + M + M
    for b, pooled in enumerate(array(layer(value))):
        a = softmax(np.tanh(value[b] @ w["kernel"] + w["bias"]) @ w["scale"])
        assert_close(pooled, a @ value[b])


def test_retain_weighs_gated_visits_by_other_states(rng):
    names = {"ones": np.ones((B, 1, 1), "float32"), "g": normal(rng, B, S, 3)}
    names |= {"beta": np.tanh(normal(rng, B, S, D)), "v": normal(rng, B, S, D)}
    made, call = re.match(r"(.*?\))(\(ones.*)", ROWS[POOLED[1]]).groups()
    layer = eval(made, vars(keras_attention))
    context = eval(f"layer{call}", {"layer": layer, **names})
    (kernel,) = layer.get_weights()
    assert kernel.shape == (1, 3)
    for b in range(B):
        alpha = softmax(names["g"][b] @ kernel[0])
        expected = sum(alpha[j] * names["beta"][b, j] * names["v"][b, j] for j in range(S))
        assert_close(array(context)[b, 0], expected)


def test_the_retain_of_the_page_is_the_papers(rng):
    _, block = pages.blocks(PAGE)
    names = pages.run(block, PAGE)
    model = names["retain"]
    randomize(model, rng)
    visits = (rng.random((B, S, 30)) < 0.3).astype("float32")
    visits[..., 0] = 1
    visits[1, 2:] = 0  # padding
    dense = {x.kernel.shape: x for x in model.layers if isinstance(x, keras.layers.Dense)}
    embedding, gates, output = (dense[shape] for shape in ((30, 16), (16, 16), (16, 1)))
    (attention,) = (x for x in model.layers if isinstance(x, keras_attention.Attention))
    first, second = model.get_layer("alpha"), model.get_layer("beta")
    for b, length in enumerate((S, 2)):
        v = visits[b, :length] @ weights_of(embedding)["kernel"]
        g, h = (states_of(layer, v[::-1])[::-1] for layer in (first, second))
        w = weights_of(gates)
        beta = np.tanh(h @ w["kernel"] + w["bias"])
        alpha = softmax(g @ weights_of(attention)["kernel"][0])
        w = weights_of(output)
        expected = sigmoid(alpha @ (beta * v) @ w["kernel"] + w["bias"])
        assert_close(model(visits)[b], expected, 1e-4)


def states_of(layer, inputs):
    """The outputs of a GRU for one sequence `(T, dim)`: `(T, n)`."""
    w, states = weights_of(layer.cell), [np.zeros((1, layer.units))]
    for x in inputs:
        states.append(gru(x[None], states[-1:], w)[0])
    return np.concatenate(states[1:])
