"""The contract of the layers, on the layers whose scores need query and key alone."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AdditiveAttention, Attention, MultiplicativeAttention
from tests.keras_attention import reference
from tests.keras_attention.helpers import (
    array,
    assert_close,
    gradients,
    mask,
    normal,
    randomize,
    score_of,
    weight_gradients,
    weighted_sum,
    weights_of,
)

B, TQ, TV, DQ, DV, UNITS = 2, 3, 5, 6, 7, 11


def built(rng, **options):
    layer = AdditiveAttention(UNITS, **options)
    layer.build((B, TQ, DQ), (B, TV, DV))
    randomize(layer, rng)
    return layer


def test_dropout_rescales_and_is_not_in_the_returned_weights(rng):
    layer = MultiplicativeAttention("dot", dropout=0.5, seed=3)
    query, value = normal(rng, B, TQ, TV), np.stack([np.eye(TV, dtype="float32")] * B)
    plain = array(layer(query, value, return_attention_scores=True))
    dropped = array(layer(query, value, return_attention_scores=True, training=True))
    assert_close(dropped[1], plain[1])
    # The values are unit vectors, so the contexts are the weights that were used.
    kept = dropped[0] != 0
    assert 0 < kept.sum() < kept.size
    assert_close(dropped[0][kept], 2 * plain[1][kept])
    memory = layer.prepare(ops.convert_to_tensor(value))
    step = ops.convert_to_tensor(query[:, 0]), memory, layer.initial_state(memory)
    context = array(layer.step(*step, training=True)[0])
    assert set(np.rint(context / plain[1][:, 0]).ravel()) == {0, 2}


def test_implicit_masks_reach_query_and_value_and_go_on(rng):
    ids = {"query": np.array([[4, 2, 0], [1, 0, 0]]), "value": np.array([[3, 0, 2, 0, 0]] * 2)}
    embed = keras.layers.Embedding(7, DV, mask_zero=True)
    layer = MultiplicativeAttention("dot")
    query, value = embed(ids["query"]), embed(ids["value"])
    context, weights = layer(query, value, return_attention_scores=True)
    joined = reference.join_masks((2, 3, 5), ids["query"] != 0, ids["value"] != 0)
    expected = reference.attend(reference.dot, array(query), array(value), mask=joined)
    assert_close((context, weights), expected)
    assert_close(context._keras_mask, ids["query"] != 0)  # which goes on to the next layer


def test_a_grid_is_a_sequence_read_row_by_row(rng):
    layer, query, grid = built(rng), normal(rng, B, TQ, DQ), normal(rng, B, 2, 3, DV)
    allowed = mask(rng, B, 2, 3)
    joined = np.repeat(allowed.reshape(B, 1, 6), TQ, 1)
    expected = reference.attend(score_of(layer), query, grid.reshape(B, 6, DV), mask=joined)
    for given in (allowed, allowed.reshape(B, 6)):
        result = layer(query, grid, value_mask=given, return_attention_scores=True)
        assert_close(result, expected)
    symbolic = layer(keras.Input((TQ, DQ)), keras.Input((2, 3, DV)), return_attention_scores=True)
    assert [x.shape for x in symbolic] == [(None, TQ, DV), (None, TQ, 6)]


def test_gradients_are_finite_differences(rng):
    layer = built(rng, normalize=True)
    query, value, allowed = normal(rng, B, TQ, DQ), normal(rng, B, TV, DV), mask(rng, B, TV)
    upstream, joined = normal(rng, B, TQ, DV), np.repeat(allowed[:, None], TQ, 1)
    w = weights_of(layer)

    def loss(tensors):
        return weighted_sum(layer(*tensors, value_mask=allowed), upstream)

    def exact(changed):
        """The sum where an array, by its name, is another one."""
        x = {"query": query, "value": value, **w, **changed}
        scale = x["gain"] * x["scale"] / np.sqrt((x["scale"] ** 2).sum())
        rest = x["query_kernel"], x["key_kernel"], scale, x["bias"]
        context, _ = reference.attend(
            lambda q, k: reference.additive(q, k, *rest), x["query"], x["value"], mask=joined
        )
        return (context * upstream).sum()

    found = dict(zip(("query", "value"), gradients(loss, [query, value]), strict=True))
    slopes = weight_gradients(layer, lambda: loss([query, value]))
    found |= {path.rpartition("/")[2]: slope for path, slope in slopes.items()}
    for name, start in {"query": query, "value": value, **w}.items():
        slope = reference.differences(lambda x, name=name: exact({name: x}), start)
        assert_close(found[name], slope, 1e-4)


@pytest.mark.parametrize("score", ["dot", "scaled_dot"])
def test_products_past_the_range_of_float16_stay_finite(score):
    query = ops.full((1, 1, 4), 300.0, dtype="float16")
    expected = 4 * 300.0**2 / (2.0 if score == "scaled_dot" else 1.0)
    layer = MultiplicativeAttention(score, dtype="float16")
    assert_close(layer.compute_scores(query, query), [[[expected]]])


class Distance(Attention):
    """A mechanism of the user's own: no more than a score."""

    def compute_scores(self, query, key):
        gap = ops.expand_dims(query, 2) - ops.expand_dims(key, 1)
        return -ops.sum(ops.square(gap), axis=-1)


def test_a_subclass_needs_no_more_than_a_score(rng):
    query, value, allowed = normal(rng, B, TQ, DV), normal(rng, B, TV, DV), mask(rng, B, TV)
    joined = np.repeat(allowed[:, None], TQ, 1)
    expected = reference.attend(lambda q, k: -((q - k) ** 2).sum(), query, value, mask=joined)
    result = Distance()(query, value, value_mask=allowed, return_attention_scores=True)
    assert_close(result, expected)
