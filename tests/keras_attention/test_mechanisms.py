"""The formula of each mechanism, head by head, as a NumPy loop over the queries."""

import itertools

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

B, TQ, TV, DQ, DV, DK, UNITS = 2, 5, 7, 3, 11, 15, 12


# One query: (layer, query (dq,), keys (Tv, dk), what is remembered, allowed (Tv,), valid places,
# head) -> weights, what is remembered next.


def scores_of(layer, q, keys, head=0):
    """Scores `(Tv,)`: a head of products reads its part of the query, of dot products of keys."""
    product = getattr(layer, "score", "")
    q = np.split(q, layer.num_heads)[head] if product else q
    keys = np.split(keys, layer.num_heads, -1)[head] if "dot" in product else keys
    score = score_of(layer, head)
    return np.array([score(q, k) for k in keys])


def plain(layer, q, keys, state, allowed, valid, head=0):
    return reference.softmax(scores_of(layer, q, keys, head), allowed), state


def local(layer, q, keys, t, allowed, valid, head=0):
    width, places = layer.half_width, np.arange(len(keys))
    first = np.argmax(valid)  # places count from here
    center = first + t
    if layer.predictive:
        w = weights_of(layer)
        hidden = np.tanh(q @ w["position_kernel"])
        center = first + valid.sum() * reference.sigmoid(hidden @ w["position_scale"])
    inside = (abs(places - center) <= width) & allowed
    weights = reference.softmax(scores_of(layer.attention, q, keys, head), inside)
    if layer.predictive:
        weights *= np.exp(-((places - center) ** 2) / (2 * (width / 2) ** 2))
    return weights, t + 1


def location(layer, q, keys, state, allowed, valid, head=0):
    places = np.maximum(np.arange(len(keys)) - np.argmax(valid), 0)  # from the first valid one
    return reference.softmax(q @ weights_of(layer)["kernel"][:, places], allowed), state


def with_past(layer, q, keys, past):
    """Additive scores of query, key and `past` `(Tv, units)`, what each key's past adds."""
    w = weights_of(layer)
    return np.tanh(q @ w["query_kernel"] + keys @ w["key_kernel"] + past + w["bias"]) @ w["scale"]


def location_sensitive(layer, q, keys, last, allowed, valid, head=0):
    w, half = weights_of(layer), (layer.kernel_size - 1) // 2
    padded = np.pad(last, half)
    windows = np.stack([padded[j : j + layer.kernel_size] for j in range(len(keys))])
    past = windows @ w["location_filter"][:, 0] @ w["location_kernel"]
    weigh = layer.distribution if isinstance(layer.distribution, str) else "smoothing"
    weights = getattr(reference, weigh)(with_past(layer, q, keys, past), allowed)
    return weights, last + weights if layer.cumulative else weights


def coverage(layer, q, keys, covered, allowed, valid, head=0):
    past = covered[:, None] * weights_of(layer)["coverage_kernel"]
    weights = reference.softmax(with_past(layer, q, keys, past), allowed)
    return weights, covered + weights


def monotonic(layer, q, keys, last, allowed, valid, head=0):
    """Raffel et al. 2017, eq. 8 to 13."""
    scores = scores_of(layer.attention, q, keys, head) + weights_of(layer)["score_bias"]
    weights = reference.monotonic(scores, last, allowed, layer.mode == "hard")
    return weights, weights


def mocha(layer, q, keys, last, allowed, valid, head=0):
    """Chiu and Raffel 2018, eq. 20."""
    stops, _ = monotonic(layer, q, keys, last, allowed, valid, head)
    powers = np.exp(scores_of(layer.chunk_attention, q, keys, head)) * allowed
    weights = np.zeros(len(keys))
    for k in np.flatnonzero(stops):
        chunk = slice(max(0, k - layer.chunk_size + 1), k + 1)
        weights[chunk] += stops[k] * powers[chunk] / powers[chunk].sum()
    return weights, stops


def nothing(keys):
    return np.zeros(len(keys))


def first(keys):
    return np.eye(len(keys))[0]


def at_0(keys):
    return 0


class InTurn(AdditiveAttention):
    """Its queries attend one after the other."""

    sequential = True


def product(score="general", **options):
    return lambda heads=1: MultiplicativeAttention(score, num_heads=heads, **options)


def additive(kind=AdditiveAttention, **options):
    return lambda heads=1: kind(UNITS, num_heads=heads, **options)


def in_window(*args, **options):
    return lambda heads=1: LocalAttention(product()(heads), *args, **options)


def sensitive(*args, **options):
    return lambda: LocationSensitiveAttention(UNITS, *args, **options)


def stopping(mode="parallel"):
    return lambda heads=1: MonotonicAttention(additive(normalize=True)(heads), mode=mode)


def chunks(size, mode="parallel"):
    inner = additive(normalize=True), product()
    return lambda: MonotonicChunkwiseAttention(*(make() for make in inner), size, mode=mode)


CASES = {
    "dot": (product("dot"), plain, at_0),
    "scaled_dot": (product("scaled_dot"), plain, at_0),
    "general": (product(), plain, at_0),
    "scaled general": (product(use_scale=True), plain, at_0),
    "additive": (additive(), plain, at_0),
    "additive in turn": (additive(InTurn), plain, at_0),
    "additive with bias": (additive(use_bias=True), plain, at_0),
    "normalised additive": (additive(normalize=True), plain, at_0),
    "location": (lambda: LocationAttention(TV), location, at_0),
    "local-m": (in_window(2), local, at_0),
    "local-p": (in_window(2, True), local, at_0),
    "local-p units": (in_window(3, True, units=5), local, at_0),
    "location-sensitive": (sensitive(filters=2, kernel_size=3), location_sensitive, nothing),
    "smoothing, cumulative": (
        sensitive(2, 5, cumulative=True, distribution=zoo.smoothing),
        location_sensitive,
        nothing,
    ),
    "coverage": (lambda: CoverageAttention(UNITS), coverage, nothing),
    "monotonic parallel": (stopping(), monotonic, first),
    "monotonic hard": (stopping("hard"), monotonic, first),
    "chunks of 1": (chunks(1), mocha, first),
    "chunks of 3": (chunks(3), mocha, first),
    "hard chunks": (chunks(2, "hard"), mocha, first),
}
PLAIN = [name for name, (_, formula, _) in CASES.items() if formula is plain]
IN_HEADS = [*PLAIN, "local-m", "local-p", "monotonic parallel"]


def widths(name, heads=1, with_key=False):
    """Of query, value and key: heads divide them, and dot products want the same of two."""
    value = DV * heads
    key = DK if with_key else value
    return key if "dot" in name else DQ * heads, value, key


def built(name, rng, length=TV, heads=1, with_key=False):
    make = CASES[name][0]
    layer = make(heads) if heads > 1 else make()
    query, value, key = widths(name, heads, with_key)
    layer.build((B, TQ, query), (B, length, value), (B, length, key))
    randomize(layer, rng)
    return layer


def looking(attention, formula, start):
    """Weights `(Tv,)`, or `(heads, Tv)`, of a query and what is remembered next, None at first."""
    heads = range(attention.num_heads)

    def look(q, keys, past, allowed, valid=None):
        past = [start(keys)] * len(heads) if past is None else past
        valid = allowed if valid is None else valid
        found = [formula(attention, q, keys, past[h], allowed, valid, h) for h in heads]
        weights, past = zip(*found, strict=True)
        return np.array(weights if len(heads) > 1 else weights[0]), past

    return look


def run(name, layer, query, value, valid, allowed, value_mask=None, key=None):
    """All queries: contexts `(B, Tq, dv)` and weights `(B, Tq, Tv)`, or `(B, heads, Tq, Tv)`."""
    look, heads = looking(layer, *CASES[name][1:]), layer.num_heads
    weights = np.zeros((len(query), heads, query.shape[1], value.shape[1]))
    present = np.ones(value.shape[:2], bool) if value_mask is None else value_mask
    for b, keys in enumerate(np.float64(value if key is None else key)):
        past = None
        for t in np.flatnonzero(valid[b]):
            now = np.float64(query[b, t]), keys, past, allowed[b, t], present[b]
            weights[b, :, t], past = look(*now)
    parts = np.split(value, heads, -1)
    contexts = [weights[:, head] @ part for head, part in enumerate(parts)]
    return np.concatenate(contexts, -1), weights if heads > 1 else weights[:, 0]


MASKS = ("query_mask", "value_mask", "key_mask", "attention_mask", "use_causal_mask")
# The causal mask joins every other combination: each pair of the five is met both ways.
COMBINED = [
    tuple(itertools.compress(MASKS, (*on, sum(on) % 2 == 0)))
    for on in itertools.product([False, True], repeat=4)
]
PAST = ("location-sensitive", "chunks of 3")


@pytest.mark.parametrize(
    ("name", "heads", "masks", "dtype", "sizes"),
    [
        *((name, 1, MASKS, "float64", (B, TV)) for name in CASES),
        *((name, 3, MASKS, "float64", (B, TV)) for name in IN_HEADS),
        *((name, 1, (), "float32", (1, length)) for name in CASES for length in (1, 2)),
        *((name, 1, (one,), "float32", (B, TV)) for name in PAST for one in MASKS),
        *(("additive", 1, masks, "float32", (B, TQ)) for masks in COMBINED),
    ],
)
def test_weights_follow_the_formula_under_every_mask(
    rng, set_policy, name, heads, masks, dtype, sizes
):
    """In float64 to twelve digits; a batch of one and the shortest memories need no mask."""
    set_policy(dtype)
    (batch, length), with_key = sizes, name in PLAIN and masks is MASKS
    layer = built(name, rng, length, heads, with_key)
    shapes = (batch, TQ), (batch, length), (batch, length), (batch, TQ, length)
    of_all = zip(shapes, widths(name, heads, with_key), strict=False)
    query, value, key = (normal(rng, *shape, width) for shape, width in of_all)
    given = {m: mask(rng, *s) for m, s in zip(MASKS, shapes, strict=False) if m in masks}
    causal = "use_causal_mask" in masks
    allowed = reference.join_masks((batch, TQ, length), **given, causal=causal)
    valid = given.get("query_mask", np.ones((batch, TQ), bool))
    present = [x for m, x in given.items() if m in ("value_mask", "key_mask")]
    present = np.logical_and.reduce(present) if present else None
    options = {**given, "use_causal_mask": causal, **({"key": key} if with_key else {})}
    expected = run(name, layer, query, value, valid, allowed, present, options.get("key"))
    result = layer(query, value, **options, return_attention_scores=True)
    assert_close(result, expected, 2e-5 if dtype == "float32" else 1e-12)
    assert not np.moveaxis(array(result[1]), -3, 0)[..., ~allowed].any()
    assert_close(layer(query, value, **options), array(result[0]))


def test_a_name_makes_the_layer_with_its_own_options():
    layer = mechanisms.make("local_p", 6, num_heads=3, half_width=4)
    assert (layer.half_width, layer.predictive, layer.attention.num_heads) == (4, True, 3)


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
    layer, (width, *_) = built(name, rng), widths(name)
    query, memory, upstream = (
        normal(rng, 1, 3, width),
        normal(rng, 1, TV, DV),
        normal(rng, 1, 3, DV),
    )
    valid, allowed = np.ones((1, 3), bool), np.ones((1, 3, TV), bool)

    def exact(query):
        return (run(name, layer, query, memory, valid, allowed)[0] * upstream).sum()

    found = gradient(lambda query: weighted_sum(layer(query, memory), upstream), query)
    assert_close(found, reference.differences(exact, query), 2e-4)


def test_noise_is_added_to_the_scores_in_training_alone(rng):
    def make(noise):
        layer = MonotonicAttention(
            additive(normalize=True)(), noise=noise, bias_initial=-1.0, seed=3
        )
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

    layer = built("location", rng)
    specs = [tf.TensorSpec([None, None, width]) for width in (DQ, DV)]
    call = tf.function(layer.__call__, input_signature=specs, jit_compile=True)
    query, longer = normal(rng, B, TQ, DQ), normal(rng, B, TV + 2, DV)
    assert np.isnan(array(call(query, longer))).all()
    with pytest.raises(ValueError, match=r"LocationAttention expected .*=7.* Received: 9"):
        layer(query, longer)
