"""The mechanisms that look at places or at their own past, against NumPy loops over the queries."""

import numpy as np
import pytest
from keras import ops

from keras_attention import (
    AdditiveAttention,
    CoverageAttention,
    LocalAttention,
    LocationAttention,
    LocationSensitiveAttention,
    MonotonicAttention,
    MonotonicChunkwiseAttention,
    MultiplicativeAttention,
    mechanisms,
)
from keras_attention.mechanisms._monotonic import chunkwise
from tests.keras_attention import reference, zoo
from tests.keras_attention.helpers import (
    array,
    assert_close,
    gradient,
    mask,
    normal,
    randomize,
    score_of,
    weighted_sum,
    weights_of,
)

B, TQ, TV, DQ, DV, UNITS = 2, 5, 7, 3, 11, 13


# One query: (layer, query (dq,), memory (Tv, dv), what is remembered, allowed (Tv,), valid places)
# -> weights, what is remembered next.


def local(layer, q, memory, t, allowed, valid, head=0):
    score, width = score_of(layer.attention, head), layer.half_width
    part = np.split(q, layer.attention.num_heads)[head]
    first = np.argmax(valid)  # places count from here
    center = first + t
    if layer.predictive:
        w = weights_of(layer)
        hidden = np.tanh(q @ w["position_kernel"])
        center = first + valid.sum() * reference.sigmoid(hidden @ w["position_scale"])
    inside = np.array([abs(s - center) <= width and allowed[s] for s in range(len(memory))])
    weights = reference.softmax([score(part, k) for k in memory], inside)
    if layer.predictive:
        for s in range(len(memory)):
            weights[s] *= np.exp(-((s - center) ** 2) / (2 * (width / 2) ** 2))
    return weights, t + 1


def location(layer, q, memory, state, allowed, valid):
    places = np.maximum(np.arange(len(memory)) - np.argmax(valid), 0)  # from the first valid one
    return reference.softmax(q @ weights_of(layer)["kernel"][:, places], allowed), state


def location_sensitive(layer, q, memory, last, allowed, size):
    w, half = weights_of(layer), (layer.kernel_size - 1) // 2
    scores = []
    for j, k in enumerate(memory):
        f = np.zeros(layer.filters)
        for tap in range(layer.kernel_size):
            at = j + tap - half
            if 0 <= at < len(memory):
                f += w["location_filter"][tap, 0] * last[at]
        inner = q @ w["query_kernel"] + k @ w["key_kernel"] + f @ w["location_kernel"] + w["bias"]
        scores.append(w["scale"] @ np.tanh(inner))
    weigh = layer.distribution if isinstance(layer.distribution, str) else "smoothing"
    weights = getattr(reference, weigh)(scores, allowed)
    return weights, last + weights if layer.cumulative else weights


def coverage(layer, q, memory, covered, allowed, size):
    w, scores = weights_of(layer), []
    for k, c in zip(memory, covered, strict=True):
        inner = q @ w["query_kernel"] + k @ w["key_kernel"] + c * w["coverage_kernel"] + w["bias"]
        scores.append(w["scale"] @ np.tanh(inner))
    weights = reference.softmax(scores, allowed)
    return weights, covered + weights


def monotonic(layer, q, memory, last, allowed, size):
    score, bias = score_of(layer.attention), weights_of(layer)["score_bias"]
    scores = [score(q, k) + bias for k in memory]
    weights = reference.monotonic(scores, last, allowed, layer.mode == "hard")
    return weights, weights


def chunkwise_formula(u, stops, size, allowed):
    weights = np.zeros(len(u))
    for j in range(len(u)):
        for k in range(j, min(j + size, len(u))):
            total = sum(np.exp(u[m]) for m in range(max(0, k - size + 1), k + 1) if allowed[m])
            if allowed[j] and stops[k]:
                weights[j] += stops[k] * np.exp(u[j]) / total
    return weights


def mocha(layer, q, memory, last, allowed, size):
    stops, _ = monotonic(layer, q, memory, last, allowed, size)
    u = [score_of(layer.chunk_attention)(q, k) for k in memory]
    return chunkwise_formula(u, stops, layer.chunk_size, allowed), stops


def nothing(memory):
    return np.zeros(len(memory))


def first(memory):
    return np.eye(len(memory))[0]


def at_0(memory):
    return 0


def inner(heads=1):
    return MultiplicativeAttention("general", num_heads=heads)


def normed():
    return AdditiveAttention(UNITS, normalize=True)


def sensitive(*args, **options):
    return lambda: LocationSensitiveAttention(UNITS, *args, **options)


def stopping(mode):
    return lambda: MonotonicAttention(normed(), mode=mode)


def chunks(size, mode="parallel"):
    return lambda: MonotonicChunkwiseAttention(normed(), inner(), chunk_size=size, mode=mode)


CASES = {
    "location": (lambda: LocationAttention(TV), location, at_0),
    "local-m": (lambda: LocalAttention(inner(), half_width=2), local, at_0),
    "local-p": (lambda: LocalAttention(inner(), 2, predictive=True), local, at_0),
    "local-p units": (lambda: LocalAttention(inner(), 3, True, units=5), local, at_0),
    "location-sensitive": (sensitive(filters=2, kernel_size=3), location_sensitive, nothing),
    "smoothing, cumulative": (
        sensitive(2, 5, cumulative=True, distribution=zoo.smoothing),
        location_sensitive,
        nothing,
    ),
    "coverage": (lambda: CoverageAttention(UNITS), coverage, nothing),
    "monotonic parallel": (stopping("parallel"), monotonic, first),
    "monotonic hard": (stopping("hard"), monotonic, first),
    "chunks of 1": (chunks(1), mocha, first),
    "chunks of 3": (chunks(3), mocha, first),
    "hard chunks": (chunks(2, "hard"), mocha, first),
}


def built(make, rng, length=TV):
    layer = make()
    layer.build((B, TQ, DQ), (B, length, DV))
    randomize(layer, rng)
    return layer


def run(name, layer, query, memory, query_mask, allowed, value_mask):
    """All queries: contexts `(B, Tq, dv)` and weights `(B, Tq, Tv)`."""
    _, formula, start = CASES[name]
    batch, time, length = len(query), query.shape[1], memory.shape[1]
    weights = np.zeros((batch, time, length))
    for b in range(batch):
        state = start(memory[b])
        present = np.ones(length, bool) if value_mask is None else value_mask[b]
        for t in range(time):
            if not query_mask[b, t]:
                continue
            q, m = query[b, t].astype("float64"), memory[b].astype("float64")
            weights[b, t], state = formula(layer, q, m, state, allowed[b, t], present)
    return weights @ memory, weights


MASKS = ("query_mask", "value_mask", "attention_mask", "use_causal_mask")
MASKED_ALONE = ("location-sensitive", "chunks of 3")


@pytest.mark.parametrize(
    ("name", "masks", "dtype", "batch", "length"),
    [
        *((name, MASKS, "float64", B, TV) for name in CASES),
        *((name, (), "float32", 1, length) for name in CASES for length in (1, 2)),
        *((n, (m,), "float32", B, TV) for n in MASKED_ALONE for m in MASKS),
    ],
)
def test_weights_follow_the_formula_under_every_mask(
    rng, set_policy, name, masks, dtype, batch, length
):
    """In float64 to twelve digits; a batch of one and the shortest memories need no mask."""
    set_policy(dtype)
    layer = built(CASES[name][0], rng, length)
    query, memory = normal(rng, batch, TQ, DQ), normal(rng, batch, length, DV)
    sizes = ((batch, TQ), (batch, length), (batch, TQ, length))
    given = {m: mask(rng, *s) for m, s in zip(MASKS, sizes, strict=False) if m in masks}
    causal = "use_causal_mask" in masks
    allowed = reference.join_masks((batch, TQ, length), **given, causal=causal)
    valid = given.get("query_mask", np.ones((batch, TQ), bool))
    expected = run(name, layer, query, memory, valid, allowed, given.get("value_mask"))
    result = layer(query, memory, **given, use_causal_mask=causal, return_attention_scores=True)
    assert_close(result, expected, 2e-5 if dtype == "float32" else 1e-12)
    assert not array(result[1])[~allowed].any()


def test_a_name_makes_the_layer_with_its_own_options():
    layer = mechanisms.make("local_p", 6, num_heads=3, half_width=4)
    assert (layer.half_width, layer.predictive, layer.attention.num_heads) == (4, True, 3)


@pytest.mark.parametrize("predictive", [False, True])
def test_local_attention_takes_the_heads_of_its_score(rng, predictive):
    layer = LocalAttention(inner(heads=3), 2, predictive)
    layer.build((B, TQ, 6), (B, TV, 9))
    randomize(layer, rng)
    query, memory, everything = normal(rng, B, TQ, 6), normal(rng, B, TV, 9), np.ones(TV, bool)
    context, weights = array(layer(query, memory, return_attention_scores=True))
    for head in range(3):
        expected = np.zeros((B, TQ, TV))
        for b, t in np.ndindex(B, TQ):
            given = query[b, t], memory[b], t, everything, everything
            expected[b, t], _ = local(layer, *given, head=head)
        assert_close(weights[:, head], expected, 2e-5)
        part = slice(3 * head, 3 * head + 3)
        assert_close(context[..., part], expected @ memory[..., part], 2e-5)


def test_chunks_hold_for_scores_of_any_size(rng):
    u, stops = 1e4 * normal(rng, B, TV), rng.dirichlet(np.ones(TV), size=B).astype("float32")
    result = array(chunkwise(ops.convert_to_tensor(u), ops.convert_to_tensor(stops), 3))
    for b in range(B):
        expected = np.zeros(TV)
        for k in range(TV):  # a softmax of such scores is its highest
            chunk = range(max(0, k - 2), k + 1)
            expected[max(chunk, key=lambda j: u[b, j])] += stops[b, k]
        assert_close(result[b], expected)


@pytest.mark.parametrize("name", CASES)
def test_gradients_of_the_queries_are_finite_differences(rng, name):
    layer = built(CASES[name][0], rng)
    query, memory, upstream = normal(rng, 1, 3, DQ), normal(rng, 1, TV, DV), normal(rng, 1, 3, DV)
    valid, allowed = np.ones((1, 3), bool), np.ones((1, 3, TV), bool)

    def exact(query):
        return (run(name, layer, query, memory, valid, allowed, None)[0] * upstream).sum()

    found = gradient(lambda query: weighted_sum(layer(query, memory), upstream), query)
    assert_close(found, reference.differences(exact, query), 2e-4)


def test_noise_is_added_to_the_scores_in_training_alone(rng):
    def make(noise):
        layer = MonotonicAttention(normed(), noise=noise, bias_initial=-1.0, seed=3)
        layer.build((B, TQ, DQ), (B, TV, DV))
        return layer

    query, memory = normal(rng, B, TQ, DQ), normal(rng, B, TV, DV)
    plain, noisy = make(0.0), make(2.0)
    noisy.set_weights([*plain.get_weights(), *noisy.get_weights()[len(plain.weights) :]])
    assert_close(noisy(query, memory), array(plain(query, memory)))
    trained = array(noisy(query, memory, training=True))
    assert (np.abs(trained - array(noisy(query, memory))) > 1e-3).any()
    assert (trained != array(noisy(query, memory, training=True))).any()


def test_the_place_in_a_long_memory_is_predicted_in_float32(rng):
    score = MultiplicativeAttention("general", dtype="mixed_bfloat16")
    layer = LocalAttention(score, 2, predictive=True, units=37, dtype="mixed_bfloat16")
    layer.build((None, None, DQ), (None, None, DV))
    randomize(layer, rng)
    query = ops.cast(normal(rng, B, TQ, DQ), "bfloat16")
    kernel = ops.cast(layer.position_kernel, "bfloat16")
    hidden = array(ops.cast(ops.tanh(ops.matmul(query, kernel)), "float32"))
    expected = reference.sigmoid(hidden @ weights_of(layer)["position_scale"])
    found = array(layer.queries(query)["position"])[..., 0]
    np.testing.assert_allclose(5000 * found, 5000 * expected, atol=0.5)


def test_places_past_the_greatest_are_told_or_have_no_weight_under_xla(rng):
    import tensorflow as tf

    layer = LocationAttention(TV)
    layer.build((B, TQ, DQ), (B, TV, DV))
    specs = [tf.TensorSpec([None, None, width]) for width in (DQ, DV)]
    call = tf.function(layer.__call__, input_signature=specs, jit_compile=True)
    query, longer = normal(rng, B, TQ, DQ), normal(rng, B, TV + 2, DV)
    assert np.isnan(array(call(query, longer))).all()
    with pytest.raises(
        ValueError, match=r"LocationAttention expected .*max_length=7.* Received: 9"
    ):
        layer(query, longer)
