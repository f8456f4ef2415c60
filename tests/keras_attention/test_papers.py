"""Each row of docs/papers.md is built as it stands there, and computes its paper's equations.

A paper is a loop over the steps of one sentence in NumPy, written from its equations. The loops
know nothing of the layer but its weights.
"""

import re
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_attention
from tests.keras_attention import pages
from tests.keras_attention.helpers import array, assert_close, normal, randomize, weights_of
from tests.keras_attention.reference import gru, lstm, monotonic, sigmoid, softmax

PAGE = Path(__file__).parents[2] / "docs" / "papers.md"
ROWS = dict(re.findall(r"^\| ([^|]+?) \| `(Att[^`]+|Mul[^`]+)` \|", PAGE.read_text(), re.MULTILINE))

B, T, S, E, D, N, M, L = 2, 3, 5, 7, 12, 12, 8, 6  # dot wants D = N, and heads divide D and M
SIZES = {"n": N, "m": M, "l": L, "k": 3, "r": 3, "S": S, "h": 2, "w": 2}


def additive(w, query, memory, more=0.0, part=slice(None)):
    """`vᵀ tanh(W s + U h_j + …)` of one query `(n,)` and all places `(S, D)`: `(S,)`."""
    hidden = query @ w["query_kernel"] + memory @ w["key_kernel"] + w.get("bias", 0.0) + more
    v = w["scale"][part]
    if "gain" in w:
        v = w["gain"] * v / np.sqrt((v**2).sum())
    return np.tanh(hidden)[:, part] @ v


def step_of(cell, w):
    """The cell as a function of an input `(dim,)` and the state, a list of `(n,)`."""
    kind = gru_of_2014 if not getattr(cell, "reset_after", True) else None
    kind = kind or {"LSTMCell": lstm, "GRUCell": gru}[type(cell).__name__]
    return lambda x, state: [s[0] for s in kind(x[None], [s[None] for s in state], w)[1]]


def gru_of_2014(x, states, w):
    """Cho et al. 2014, eq. 5 to 8: the reset gate multiplies the state before the product."""
    (h,), n = states, states[0].shape[-1]
    kernel, recurrent, bias = w["kernel"], w["recurrent_kernel"], w["bias"]
    z, r = np.split(sigmoid((x @ kernel + bias)[:, : 2 * n] + h @ recurrent[:, : 2 * n]), 2, -1)
    new = np.tanh((x @ kernel + bias)[:, 2 * n :] + (r * h) @ recurrent[:, 2 * n :])
    return None, [z * h + (1 - z) * new]


def maxout(x):
    return np.maximum(x[0::2], x[1::2])


def attend_first(score, read_out, gate=lambda s: 1.0):
    """Bahdanau's order: `c_t` of `s_{t-1}`, then `s_t = f(s_{t-1}, y_t, c_t)`."""

    def run(step, state, inputs, memory):
        last, past = None, []
        for y in inputs:
            a, last = score(state[0], memory, last, len(past))
            c = gate(state[0]) * (a @ memory)
            state = step(np.concatenate([y, c]), state)
            past.append((read_out(y, state[0], c), a))
        return past

    return run


def attend_last(score, read_out, fed=lambda c, output: np.zeros(0), width=0):
    """Luong's order: `s_t = f(s_{t-1}, y_t, what is fed)`, then `c_t` of `s_t`.

    `fed(c, output)` `(width,)` is fed to the next step, and is 0 before the first.
    """

    def run(step, state, inputs, memory):
        last, past, before = None, [], np.zeros(width)
        for y in inputs:
            state = step(np.concatenate([y, before]), state)
            a, last = score(state[0], memory, last, len(past))
            c = a @ memory
            output = read_out(y, state[0], c)
            before = fed(c, output)
            past.append((output, a))
        return past

    return run


def plain(energy):
    """A score without memory: softmax of `energy(query, memory)`."""
    return lambda q, memory, last, t: (softmax(energy(q, memory)), None)


def joined(y, s, c):
    return np.concatenate([c, s])


def with_history(w, cumulative, features):
    """Weights that read the weights before: the last, or the sum of all."""

    def score(q, memory, last, t):
        last = np.zeros(S) if last is None else last
        a = softmax(additive(w, q, memory, features(last)))
        return a, last + a if cumulative else a

    return score


def located(w):
    """`V f_j`, where `f = F * a` is a convolution of width 3 along the places."""
    filters, kernel = w["location_filter"][:, 0], w["location_kernel"]

    def features(a):
        padded = np.pad(a, 1)
        return np.stack([padded[j : j + 3] @ filters for j in range(S)]) @ kernel

    return features


def local(w, predictive):
    """Luong et al. 2015, section 3.2, with D = 2."""

    def score(h, memory, last, t):
        center = t
        if predictive:
            hidden = np.tanh(h @ w["position_kernel"])
            center = S * sigmoid(hidden @ w["position_scale"])
        places = np.arange(S)
        a = softmax(memory @ w["kernel"].T @ h, abs(places - center) <= 2)
        return (a * np.exp(-((places - center) ** 2) / 2) if predictive else a), None

    return score


def stopping(w, chunk=None):
    """Raffel et al. 2017, eq. 8 to 13; with `chunk` Chiu and Raffel 2018, eq. 20."""

    def score(q, memory, last, t):
        first = np.eye(S)[0] if last is None else last
        a = monotonic(additive(w, q, memory) + w["score_bias"], first)
        if chunk is None:
            return a, a
        powers, b = np.exp(additive(chunk, q, memory)), np.zeros(S)
        for k in range(S):
            inside = slice(max(0, k - 1), k + 1)
            b[inside] += a[k] * powers[inside] / powers[inside].sum()
        return b, a

    return score


def several_heads(w):
    """Ma et al. 2020, eq. 1 to 4: each head stops by itself, and reads its part of the memory."""

    def run(step, state, inputs, memory):
        last, past = [np.eye(S)[0]] * 2, []
        for y in inputs:
            parts = slice(0, M // 2), slice(M // 2, M)
            last = [
                monotonic(additive(w, state[0], memory, part=p) + w["score_bias"], a)
                for p, a in zip(parts, last, strict=True)
            ]
            halves = np.split(memory, 2, -1)
            c = np.concatenate([a @ part for a, part in zip(last, halves, strict=True)])
            state = step(np.concatenate([y, c]), state)
            past.append((joined(y, state[0], c), np.stack(last)))
        return past

    return run


def attentional(w):
    return lambda y, h, c: np.tanh(np.concatenate([c, h]) @ w["output_kernel"])


def fed_output(c, output):
    return output


def fed_context(c, output):
    """The papers feed the context alone; the rows of the kernel for `s` are 0 in the test."""
    return np.concatenate([c, np.zeros(N)])


LSTM, GRU, ADDITIVE = (
    lambda dim: 4 * N * (dim + N + 1),
    lambda dim: 3 * N * (dim + N + 2),
    (N + D + 1) * M,
)
LUONG = (D + N) * N  # W_c
# For each row: its equations for the weights of attention and layer, and the count of its weights.
PAPERS = {
    "Bahdanau et al. 2014": (
        lambda a, w: attend_first(
            plain(lambda q, h: additive(a, q, h)),
            lambda y, s, c: maxout(np.concatenate([c, s, y]) @ w["output_kernel"]),
        ),
        GRU(E + D) - 3 * N + ADDITIVE + (D + N + E) * 2 * L,
    ),
    "Luong et al. 2015, dot": (
        lambda a, w: attend_last(plain(lambda q, h: h @ q), attentional(w)),
        LSTM(E) + LUONG,
    ),
    "Luong et al. 2015, general": (
        lambda a, w: attend_last(plain(lambda q, h: h @ a["kernel"].T @ q), attentional(w)),
        LSTM(E) + LUONG + N * D,
    ),
    "Luong et al. 2015, concat": (
        lambda a, w: attend_last(plain(lambda q, h: additive(a, q, h)), attentional(w)),
        LSTM(E) + LUONG + ADDITIVE,
    ),
    "Luong et al. 2015, location": (
        lambda a, w: attend_last(plain(lambda q, h: q @ a["kernel"]), attentional(w)),
        LSTM(E) + LUONG + N * S,
    ),
    "Luong et al. 2015, local-m": (
        lambda a, w: attend_last(local(a, False), attentional(w)),
        LSTM(E) + LUONG + N * D,
    ),
    "Luong et al. 2015, local-p": (
        lambda a, w: attend_last(local(a, True), attentional(w)),
        LSTM(E) + LUONG + N * D + N * N + N,
    ),
    "Luong et al. 2015, general, with input feeding": (
        lambda a, w: attend_last(
            plain(lambda q, h: h @ a["kernel"].T @ q), attentional(w), fed_output, N
        ),
        LSTM(E + N) + LUONG + N * D,
    ),
    "Xu et al. 2015, Show, Attend and Tell": (
        lambda a, w: attend_first(
            plain(lambda q, h: additive(a, q, h)),
            joined,
            lambda s: sigmoid(s @ w["gate_kernel"] + w["gate_bias"]),
        ),
        LSTM(E + D) + ADDITIVE + N + 1,
    ),
    "Chorowski et al. 2015": (
        lambda a, w: attend_last(with_history(a, False, located(a)), joined, fed_context, D + N),
        GRU(E + D + N) + ADDITIVE + M + 3 * 3 + 3 * M,
    ),
    "Chan et al. 2015, LAS": (
        lambda a, w: attend_last(
            plain(lambda q, h: h @ a["kernel"].T @ q), joined, fed_context, D + N
        ),
        LSTM(E + D + N) + N * D,
    ),
    "Wu et al. 2016, GNMT, first layer": (
        lambda a, w: attend_first(plain(lambda q, h: additive(a, q, h)), joined),
        LSTM(E + D) + ADDITIVE,
    ),
    "See et al. 2017, pointer-generator": (
        lambda a, w: attend_last(
            with_history(a, True, lambda c: c[:, None] * a["coverage_kernel"]), joined
        ),
        LSTM(E) + ADDITIVE + M + M,
    ),
    "Raffel et al. 2017": (
        lambda a, w: attend_first(stopping(a), joined),
        GRU(E + D) + ADDITIVE + M + 1 + 1,
    ),
    "Chiu and Raffel 2018, MoChA": (
        lambda a, w: attend_first(stopping(a["stop"], a["chunk"]), joined),
        GRU(E + D) + 2 * ADDITIVE + M + 1 + 1,
    ),
    "Shen et al. 2018, Tacotron 2": (
        lambda a, w: attend_last(with_history(a, True, located(a)), joined, fed_context, D + N),
        LSTM(E + D + N) + ADDITIVE + M + 3 * 3 + 3 * M,
    ),
    "Ma et al. 2020, MMA": (
        lambda a, w: several_heads(a),
        GRU(E + D) + ADDITIVE + M + 1 + 1,
    ),
}
POOLED = ("Yang et al. 2016, HAN", "Choi et al. 2016, RETAIN")


def built(row):
    """The layer, or the call, of a row of the page."""
    names = {**vars(keras.layers), **vars(keras_attention), **SIZES}
    return eval(ROWS[row], names)


def weights_by_part(layer, rng):
    """The weights of cell, attention and the layer itself; the fed state has rows of 0."""
    attention = weights_of(layer.attention)
    if hasattr(layer.attention, "chunk_attention"):
        stop = weights_of(layer.attention.attention) | {"score_bias": attention["score_bias"]}
        attention = {"stop": stop, "chunk": weights_of(layer.attention.chunk_attention)}
    inner = {id(x) for x in (*layer.cell.weights, *layer.attention.weights)}
    own = {x.name: array(x.value).astype("float64") for x in layer.weights if id(x) not in inner}
    return weights_of(layer.cell), attention, own


def test_the_page_has_the_papers():
    assert set(ROWS) == {*PAPERS, *POOLED}


@pytest.mark.parametrize("row", PAPERS)
def test_a_decoder_of_the_page_computes_the_equations_of_its_paper(rng, row):
    layer = built(row)
    inputs, memory = normal(rng, B, T, E), normal(rng, B, S, D)
    layer(inputs, memory)
    randomize(layer, rng)
    make, count = PAPERS[row]
    assert sum(int(np.prod(x.shape)) for x in layer.trainable_weights) == count
    if layer.input_feeding and layer.output_kernel is None:
        kernel = array(layer.cell.kernel.value).copy()
        kernel[E + D :] = 0  # the paper feeds c_t alone, the layer [c_t; s_t]
        layer.cell.kernel.assign(kernel)
    cell, attention, own = weights_by_part(layer, rng)
    found, weights = array(layer(inputs, memory, return_attention_scores=True))
    run, state = make(attention, own), [np.zeros(N)] * (2 if "LSTM" in ROWS[row] else 1)
    for b in range(B):
        steps = run(step_of(layer.cell, cell), state, np.float64(inputs[b]), np.float64(memory[b]))
        for t, (output, a) in enumerate(steps):
            assert_close(found[b, t], output, 1e-4)
            assert_close(weights[b, ..., t, :], a, 1e-4)


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
    step, states, state = step_of(layer.cell, weights_of(layer)), [], [np.zeros(layer.units)]
    for x in inputs:
        state = step(x, state)
        states.append(state[0])
    return np.stack(states)
