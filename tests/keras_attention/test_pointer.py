import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import PointerGenerator
from keras_attention.layers import pointer
from tests.keras_attention import reference
from tests.keras_attention.helpers import (
    array,
    assert_close,
    compiled,
    few,
    gradients,
    normal,
    randomize,
    saved_and_loaded,
    weight_gradients,
    weights_of,
)

B, T, S, DIM, V = 2, 3, 5, 7, 11
IDS = np.array([[4, 11, 4, 13, 4], [0, 10, 10, 13, 15]], "int32")  # 11 and more are not in V


def attention(rng, *shape):
    weights = np.exp(rng.normal(size=shape))
    return (weights / weights.sum(-1, keepdims=True)).astype("float32")


def inputs(rng):
    return [normal(rng, B, T, DIM), normal(rng, B, T, V), attention(rng, B, T, S), IDS]


def built(rng, **kwargs):
    layer = PointerGenerator(**kwargs)
    layer.build((None, None, DIM), (None, None, V), (None, None, S), (None, S))
    randomize(layer, rng)
    return layer


def formula(w, features, logits, weights, ids):
    """Equations 8 and 9, word by word: log-probabilities in float64, of any logits.

    With them come the slopes, in logits and weights, of the sum of all that is possible.
    """
    features, logits, weights = (x.astype("float64") for x in (features, logits, weights))
    result = np.full((*logits.shape[:2], V + ids.shape[1]), -np.inf)
    of_logits, of_weights = np.zeros_like(logits), np.zeros_like(weights)
    for b, t in np.ndindex(*logits.shape[:2]):
        p_gen = 1 / (1 + np.exp(-(features[b, t] @ w["kernel"][:, 0] + w["bias"])))
        powers = np.exp(logits[b, t] - logits[b, t].max())
        said, copied = np.zeros(V + ids.shape[1]), np.zeros(V + ids.shape[1])
        said[:V] = p_gen * powers / powers.sum()
        np.add.at(copied, ids[b], (1 - p_gen) * weights[b, t])
        p = said + copied
        result[b, t][p > 0] = np.log(p[p > 0])
        # d log p_w / d l_v = (said_w / p_w) ((v = w) - softmax_v), and so for copied words
        shares = np.divide(said, p, out=np.zeros_like(p), where=p > 0)[:V]
        of_logits[b, t] = shares - shares.sum() * powers / powers.sum()
        inverse = np.divide(1, p, out=np.zeros_like(p), where=p > 0)
        of_weights[b, t] = (1 - p_gen) * inverse[ids[b]]
    return result, of_logits, of_weights


@pytest.mark.parametrize("low", few([None, -1e7, np.finfo("float32").min, -np.inf], None, -np.inf))
def test_it_is_the_formula_and_forbidden_words_are_copied_all_the_same(rng, low):
    layer, (features, logits, weights, ids) = built(rng), inputs(rng)
    if low is not None:
        logits[0, :, [4, 7]] = logits[1, 1, [0, 2, 10]] = low  # 4, 0 and 10 are in the source
        weights[1, 1, 1:3] = 0  # of word 10: neither said nor copied
        weights[0, 2, 1] = weights[1, 0, 0] = weights[1, 2, 2] = 0  # words 11, 0 and 10
    expected, *slopes = formula(weights_of(layer), features, logits, weights, ids)
    found, possible = array(layer(features, logits, weights, ids)), np.isfinite(expected)
    assert found.dtype == "float32"
    assert_close(found[possible], expected[possible])
    assert (found[~possible] < -60).all()
    assert possible[1, 1, 10] == (low is None)
    assert possible[1, 2, 10]

    def total(tensors):
        log_probs = layer(ops.convert_to_tensor(features), *tensors, ops.convert_to_tensor(ids))
        return ops.sum(ops.where(possible, log_probs, ops.zeros_like(log_probs)))

    of_logits, of_weights = gradients(total, [logits, weights])
    assert np.isfinite(of_weights).all()
    assert_close(of_logits, slopes[0], 1e-4)
    reached = np.stack([possible[b][:, ids[b]] for b in range(B)])
    np.testing.assert_allclose(of_weights[reached], slopes[1][reached], rtol=1e-4)


@pytest.mark.parametrize("empty", ["batch", "steps"])
def test_sizes_of_0(rng, empty):
    b, t, layer = 0 if empty == "batch" else B, 0 if empty == "steps" else T, built(rng)
    given, ids = [normal(rng, b, t, n) for n in (DIM, V, S)], np.zeros((b, S), "int32")
    assert layer(*given, ids).shape == (b, t, V + S)
    slopes = gradients(lambda x: ops.sum(layer(*x, ops.convert_to_tensor(ids))), given)
    assert all(np.isfinite(x).all() for x in slopes)
    assert pointer.copied_ids(ids, ids, V).shape == (b, S)
    if empty == "batch":
        assert layer(*(x[:, 0] for x in given), ids).shape == (b, V + S)


def test_it_compiles_and_what_attention_leaves_out_is_not_copied(rng):
    layer, (*given, weights, ids) = built(rng), inputs(rng)
    expected = array(layer(*given, weights, ids))
    padded = [np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 2)]) for x in (weights, ids)]
    run = compiled(lambda *x: layer(*x))
    found = array(run(*map(ops.convert_to_tensor, [*given, *padded])))
    assert found.shape == (B, T, V + S + 2)
    assert_close(found[..., : V + S], expected)
    assert (found[..., V + S :] < -60).all()


def test_gradients_of_features_and_kernel_are_finite_differences(rng):
    layer, (features, *given) = built(rng), inputs(rng)
    w, said = weights_of(layer), rng.integers(0, V, (B, T))
    said[0, 1], said[1, 2] = 13, 15  # copied alone

    def loss(kernel, features):
        log_probs, *_ = formula({**w, "kernel": kernel}, features, *given)
        return -np.take_along_axis(log_probs, said[..., None], -1).sum()

    def total(features):
        log_probs = layer(*map(ops.convert_to_tensor, (features, *given)))
        return -ops.sum(ops.take_along_axis(log_probs, ops.convert_to_tensor(said[..., None]), -1))

    (found,) = gradients(lambda arrays: total(*arrays), [features])
    assert_close(found, reference.differences(lambda x: loss(w["kernel"], x), features), 1e-3)
    slopes = weight_gradients(layer, lambda: total(features))
    kernel = next(slope for path, slope in slopes.items() if "kernel" in path)
    assert_close(kernel, reference.differences(lambda x: loss(x, features), w["kernel"]), 1e-3)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_is_added_up_in_float32(rng, policy):
    layer, (features, logits, *rest) = built(rng, dtype=policy), inputs(rng)
    found = array(layer(features, logits, *rest))
    assert found.dtype == "float32"
    expected, *_ = formula(weights_of(layer), features, logits, *rest)
    assert_close(np.exp(found), np.exp(expected), 0.02)
    assert np.isfinite(array(layer(100 * features, 1000 * logits, *rest))).all()


def test_it_saves_and_loads(rng, tmp_path):
    shapes = [(None, DIM), (None, V), (None, None), (None,)]
    symbols = [keras.Input(s, dtype="int32" if len(s) == 1 else "float32") for s in shapes]
    model = keras.Model(symbols, PointerGenerator()(*symbols))
    assert model.output.shape == (None, None, None)
    saved_and_loaded(model, inputs(rng), rng, tmp_path)


def test_places_of_words_that_the_vocabulary_lacks(rng):
    source = np.array([[7, 9, 7, 8, 9], [3, 3, 3, 2, 1]], "int32")
    known = np.array([[-1, 5, -1, -1, 5], [-1, -1, -1, 4, 6]], "int32")
    found = array(pointer.copied_ids(*map(ops.convert_to_tensor, (source, known)), V))
    np.testing.assert_array_equal(found, [[V, 5, V, V + 3, 5], [V, V, V, 4, 6]])
