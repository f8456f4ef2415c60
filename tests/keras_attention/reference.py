"""The formulas once more, as NumPy loops in float64: what the tests hold the library to."""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(scores, allowed=None):
    """Softmax of one row `(Tv,)` over the allowed positions; zeros if there are none."""
    scores = np.asarray(scores, "float64")
    weights = np.zeros_like(scores)
    places = np.arange(len(scores)) if allowed is None else np.flatnonzero(allowed)
    if len(places):
        powers = np.exp(scores[places] - scores[places].max())
        weights[places] = powers / powers.sum()
    return weights


def dot(q, k):
    return float(np.dot(q, k))


def scaled_dot(q, k):
    return float(np.dot(q, k) / np.sqrt(len(q)))


def general(q, k, kernel):
    return float(q @ kernel @ k)


def additive(q, k, query_kernel, key_kernel, scale, bias=0.0):
    return float(scale @ np.tanh(q @ query_kernel + k @ key_kernel + bias))


def score_all(score, query, key):
    """Scores `(B, Tq, Tv)` of `score(query vector, key vector)`."""
    batch, rows, columns = len(query), query.shape[1], key.shape[1]
    result = np.zeros((batch, rows, columns))
    for b in range(batch):
        for i in range(rows):
            for j in range(columns):
                result[b, i, j] = score(query[b, i].astype("float64"), key[b, j].astype("float64"))
    return result


def attend(score, query, value, key=None, mask=None, distribution=softmax):
    """Contexts `(B, Tq, dv)` and weights `(B, Tq, Tv)`; `mask` is `(B, Tq, Tv)` or None."""
    e = score_all(score, query, value if key is None else key)
    weights = np.zeros_like(e)
    contexts = np.zeros((*e.shape[:2], value.shape[-1]))
    for b in range(e.shape[0]):
        for i in range(e.shape[1]):
            weights[b, i] = distribution(e[b, i], None if mask is None else mask[b, i])
            for j in range(e.shape[2]):
                contexts[b, i] += weights[b, i, j] * value[b, j].astype("float64")
    return contexts, weights


def join_masks(
    shape, query_mask=None, value_mask=None, key_mask=None, attention_mask=None, causal=False
):
    """All masks as one `(B, Tq, Tv)`."""
    result = np.ones(shape, bool)
    for b, i, j in np.ndindex(*shape):
        for mask, place in (
            (query_mask, (b, i)),
            (value_mask, (b, j)),
            (key_mask, (b, j)),
            (attention_mask, (b, i, j)),
        ):
            result[b, i, j] &= mask is None or mask[place]
        result[b, i, j] &= not causal or j <= i
    return result


# Recurrent cells: (inputs, list of states, weights by name) -> (output, list of states).


def simple_rnn(x, states, w):
    h = np.tanh(x @ w["kernel"] + states[0] @ w["recurrent_kernel"] + w["bias"])
    return h, [h]


def gru(x, states, w):
    """Cho et al. 2014 in the variant of Keras's default, `reset_after=True`."""
    h = states[0]
    units = h.shape[-1]
    a = x @ w["kernel"] + w["bias"][0]
    r = h @ w["recurrent_kernel"] + w["bias"][1]
    update = sigmoid(a[:, :units] + r[:, :units])
    reset = sigmoid(a[:, units : 2 * units] + r[:, units : 2 * units])
    candidate = np.tanh(a[:, 2 * units :] + reset * r[:, 2 * units :])
    h = update * h + (1 - update) * candidate
    return h, [h]


def lstm(x, states, w):
    h, c = states
    gates = x @ w["kernel"] + h @ w["recurrent_kernel"] + w["bias"]
    i, f, g, o = np.split(gates, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    h = sigmoid(o) * np.tanh(c)
    return h, [h, c]


CELLS = {"SimpleRNNCell": simple_rnn, "GRUCell": gru, "LSTMCell": lstm}


def attention_rnn(
    cells, inputs, memory, score, *, order, size, read_out, gate, feeding, masks, initial
):
    """Run a decoder.

    Args:
        cells: list of `(step, weights, sizes of the states)`, bottom first.
        inputs: `(B, T, dim)`; memory: `(B, S, dim)`.
        score: `(query vector, key vector) -> float`.
        size: width of the outputs.
        read_out: from `[c_t; s_t]` and the step's inputs to the output.
        gate: from queries `(B, .)` to the factors of their contexts.
        masks: of the inputs `(B, T)` and the memory `(B, S)`, or None.
        initial: flat list of states, or None for zeros.

    Returns:
        Outputs `(B, T, size)`, weights `(B, T, S)`, the last states as a flat list.
    """
    inputs_mask, memory_mask = masks
    batch, time = inputs.shape[:2]
    widths = [width for _, _, sizes in cells for width in sizes]
    flat = iter([np.zeros((batch, width)) for width in widths] if initial is None else initial)
    states = [[np.array(next(flat), "float64") for _ in sizes] for _, _, sizes in cells]
    last, outputs = np.zeros((batch, size)), np.zeros((batch, time, size))
    all_weights = np.zeros((batch, time, memory.shape[1]))
    allowed = None if memory_mask is None else memory_mask[:, None, :]

    def look(query):
        context, weights = attend(score, query[:, None], memory, mask=allowed)
        return gate(query) * context[:, 0], weights[:, 0]

    for t in range(time):
        y = inputs[:, t].astype("float64")
        x = np.concatenate([y, last], -1) if feeding else y
        if order == "bahdanau":
            context, weights = look(states[-1][0])
            x = np.concatenate([x, context], -1)
        new_states = []
        for (step, w, _), state in zip(cells, states, strict=True):
            x, new = step(x, state, w)
            new_states.append(new)
        if order == "luong":
            context, weights = look(x)
        output = read_out(np.concatenate([context, x], -1), y)
        valid = np.ones(batch, bool) if inputs_mask is None else inputs_mask[:, t]
        for b in np.flatnonzero(valid):
            outputs[b, t], all_weights[b, t], last[b] = output[b], weights[b], output[b]
            for state, new in zip(states, new_states, strict=True):
                for s, n in zip(state, new, strict=True):
                    s[b] = n[b]
    return outputs, all_weights, [s for state in states for s in state]


# Distributions: (scores `(Tv,)`, allowed `(Tv,)` or None) -> weights.


def _on_allowed(distribution):
    def weigh(scores, allowed=None):
        scores = np.asarray(scores, "float64")
        places = np.arange(len(scores)) if allowed is None else np.flatnonzero(allowed)
        weights = np.zeros_like(scores)
        if len(places):
            weights[places] = distribution(scores[places])
        return weights

    return weigh


def _bisect(total, low, high):
    """The threshold at which the falling function `total` is 1."""
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle) > 1 else (low, middle)
    return (low + high) / 2


@_on_allowed
def sparsemax(z):
    threshold = _bisect(lambda t: np.maximum(z - t, 0).sum(), z.max() - 1, z.max())
    return np.maximum(z - threshold, 0)


@_on_allowed
def entmax15(z):
    z = z / 2
    threshold = _bisect(lambda t: (np.maximum(z - t, 0) ** 2).sum(), z.max() - 1, z.max())
    return np.maximum(z - threshold, 0) ** 2


@_on_allowed
def smoothing(z):
    logs = np.minimum(z, 0) - np.log1p(np.exp(-np.abs(z)))
    powers = np.exp(logs - logs.max())
    return powers / powers.sum()


def _sigmoids(z):
    return np.exp(np.minimum(z, 0) - np.log1p(np.exp(-np.abs(z))))


def monotonic(scores, previous, allowed=None, hard=False):
    """Raffel et al. 2017, for one query: go right from where the last one stopped."""
    p = (np.asarray(scores) > 0).astype("float64") if hard else _sigmoids(np.float64(scores))
    if allowed is not None:
        p = p * allowed
    weights, q = np.zeros(len(p)), 0.0
    for j in range(len(p)):
        q = (1 - p[j - 1]) * q + previous[j] if j else previous[j]
        weights[j] = p[j] * q
    return weights


def differences(function, x, step=1e-5):
    """The gradient of a scalar function by central differences, float64."""
    x = np.asarray(x, "float64")
    slope = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        for sign in (1, -1):
            moved = x.copy()
            moved[index] += sign * step
            slope[index] += sign * function(moved) / (2 * step)
    return slope
