"""The formulas once more, as NumPy loops in float64: what the tests hold the library to."""

import numpy as np


def sigmoid(x):
    return np.exp(np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x))))


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


def attend(score, query, value, key=None, mask=None):
    """Contexts `(B, Tq, dv)` and weights `(B, Tq, Tv)`; `mask` is `(B, Tq, Tv)` or None."""
    key = value if key is None else key
    weights = np.zeros((*query.shape[:2], value.shape[1]))
    for b, i in np.ndindex(*weights.shape[:2]):
        scores = [score(np.float64(query[b, i]), np.float64(k)) for k in key[b]]
        weights[b, i] = softmax(scores, None if mask is None else mask[b, i])
    return weights @ value, weights


def join_masks(
    shape, query_mask=None, value_mask=None, key_mask=None, attention_mask=None, causal=False
):
    """All masks as one `(B, Tq, Tv)`."""
    result = np.ones(shape, bool) if attention_mask is None else attention_mask.copy()
    for mask, axis in ((query_mask, 2), (value_mask, 1), (key_mask, 1)):
        if mask is not None:
            result &= np.expand_dims(mask, axis)
    return np.tril(result) if causal else result


# Recurrent cells: (inputs, list of states, weights by name) -> (output, list of states).


def simple_rnn(x, states, w):
    h = np.tanh(x @ w["kernel"] + states[0] @ w["recurrent_kernel"] + w["bias"])
    return h, [h]


def gru(x, states, w):
    """Cho et al. 2014, eq. 5 to 8, or the variant of Keras's default, `reset_after=True`.

    That variant has two biases; its reset gate multiplies after the product.
    """
    (h,), n = states, states[0].shape[-1]
    after = w["bias"].ndim == 2
    a = x @ w["kernel"] + (w["bias"][0] if after else w["bias"])
    u = w["recurrent_kernel"]
    r = h @ u + (w["bias"][1] if after else 0.0)
    update, reset = sigmoid(a[:, :n] + r[:, :n]), sigmoid(a[:, n : 2 * n] + r[:, n : 2 * n])
    candidate = np.tanh(
        a[:, 2 * n :] + (reset * r[:, 2 * n :] if after else (reset * h) @ u[:, 2 * n :])
    )
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
    cells, inputs, memory, look, *, order, size, read_out, gate, feeding, masks, initial
):
    """Run a decoder, a sentence after the other.

    Args:
        cells: list of `(step, weights, sizes of the states)`, bottom first.
        inputs: `(B, T, dim)`; memory: `(B, S, dim)`.
        look: from a query, a memory `(S, dim)`, what is remembered, None at first, and the allowed
            places `(S,)` to weights `(S,)` or `(heads, S)` and what is remembered next.
        size: width of the outputs.
        read_out: from `[c_t; s_t]` and the step's inputs to the output.
        gate: from the query to the factors of its context.
        masks: of the inputs `(B, T)` and the memory `(B, S)`, or None.
        initial: flat list of states, or None for zeros.

    Returns:
        Outputs `(B, T, size)`, weights `(B, T, S)` or `(B, T, heads, S)`, the last states as a flat
        list.
    """
    (batch, time), widths = inputs.shape[:2], [n for *_, sizes in cells for n in sizes]
    valid = np.ones((batch, time), bool) if masks[0] is None else masks[0]
    allowed = np.ones(memory.shape[:2], bool) if masks[1] is None else masks[1]
    initial = [np.zeros((batch, width)) for width in widths] if initial is None else initial
    outputs, weights, ends = np.zeros((batch, time, size)), None, []

    def attended(query, b, remembered):
        w, remembered = look(query, np.float64(memory[b]), remembered, allowed[b])
        heads = np.atleast_2d(w)
        parts = zip(heads, np.split(memory[b], len(heads), -1), strict=True)
        return gate(query) * np.concatenate([head @ part for head, part in parts]), w, remembered

    for b in range(batch):
        flat = iter([np.float64(state[b : b + 1]) for state in initial])
        states = [[next(flat) for _ in sizes] for *_, sizes in cells]
        last, remembered = np.zeros(size), None

        for t in np.flatnonzero(valid[b]):
            y = np.float64(inputs[b, t])
            x = np.concatenate([y, last]) if feeding else y
            if order == "bahdanau":
                context, w, remembered = attended(states[-1][0][0], b, remembered)
                x = np.concatenate([x, context])
            x = x[None]
            for n, (step, of_cell, _) in enumerate(cells):
                x, states[n] = step(x, states[n], of_cell)
            if order == "luong":
                context, w, remembered = attended(x[0], b, remembered)
            outputs[b, t] = last = read_out(np.concatenate([context, x[0]]), y)
            weights = np.zeros((batch, time, *w.shape)) if weights is None else weights
            weights[b, t] = w
        ends.append([state for cell in states for state in cell])
    return outputs, weights, [np.concatenate(states) for states in zip(*ends, strict=True)]


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
    return softmax(np.log(sigmoid(z)))


def monotonic(scores, previous, allowed=None, hard=False):
    """Raffel et al. 2017, for one query: go right from where the last one stopped."""
    p = (np.asarray(scores) > 0).astype("float64") if hard else sigmoid(np.float64(scores))
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
