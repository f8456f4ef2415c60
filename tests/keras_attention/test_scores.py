import numpy as np
import pytest
from keras import ops

from keras_attention import MultiplicativeAttention, backend, scores
from tests.keras_attention.helpers import assert_close, gradients, normal, weighted_sum

B, TQ, TV, UNITS = 2, 3, 5, 13


@pytest.mark.parametrize("batches", [(1, B), (B, 1)])
def test_additive_repeats_a_single_sentence(rng, batches):
    query, key = normal(rng, batches[0], TQ, UNITS), normal(rng, batches[1], TV, UNITS)
    scale, upstream = normal(rng, UNITS), normal(rng, B, TQ, TV)
    hidden = np.tanh(query[:, :, None].astype("float64") + key[:, None])
    assert_close(scores.additive(query, key, scale), hidden @ scale)

    def loss(tensors):
        return weighted_sum(scores.additive(*tensors), upstream)

    slope = upstream[..., None] * scale * (1 - hidden**2)
    own = [
        x if n == B else x.sum(0, keepdims=True)
        for x, n in zip((slope.sum(2), slope.sum(1)), batches, strict=True)
    ]
    expected = [*own, (upstream[..., None] * hidden).sum((0, 1, 2))]
    assert_close(gradients(loss, [query, key, scale]), expected)


@pytest.mark.parametrize("known", [False, True])
def test_additive_repeats_a_sentence_of_unknown_batches(rng, known, monkeypatch):
    import tensorflow as tf

    from keras_attention.backend import on_tensorflow

    monkeypatch.setattr(on_tensorflow, "LARGEST_FORMULA", 1)
    specs = tf.TensorSpec([None, TQ, UNITS]), tf.TensorSpec([1 if known else None, TV, UNITS])
    query, key, scale = normal(rng, B, TQ, UNITS), normal(rng, 1, TV, UNITS), normal(rng, UNITS)

    @tf.function(input_signature=specs)
    def run(query, key):
        with tf.GradientTape() as tape, backend.within(training=True):
            tape.watch([query, key])
            found = scores.additive(query, key, scale)
        return found, tape.gradient(found, [query, key])

    hidden = np.tanh(query[:, :, None].astype("float64") + key[:, None])
    slope = scale * (1 - hidden**2)
    found, slopes = run(query, key)
    assert_close(found, hidden @ scale)
    assert_close(slopes, [slope.sum(2), slope.sum((0, 1))[None]])


def test_additive_refuses_batches_that_differ(rng):
    query, key = normal(rng, B, TQ, UNITS), normal(rng, B + 1, TV, UNITS)
    with pytest.raises(ValueError, match=r"expected .* one batch size, or of 1. Received: query"):
        scores.additive(query, key, normal(rng, UNITS))


@pytest.mark.parametrize("score", ["dot", "scaled_dot"])
def test_products_past_the_range_of_float16_stay_finite(score):
    query = ops.full((1, 1, 4), 300.0, dtype="float16")
    expected = 4 * 300.0**2 / (2.0 if score == "scaled_dot" else 1.0)
    layer = MultiplicativeAttention(score, dtype="float16")
    assert_close(layer.compute_scores(query, query), [[[expected]]])
