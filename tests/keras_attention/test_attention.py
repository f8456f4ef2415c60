"""The contract of the layers, on the layers whose scores need query and key alone."""

import itertools

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

B, TQ, TV, DQ, DV, DK, UNITS = 2, 3, 5, 6, 21, 15, 12


def built(layer, rng, query_width=DQ, key_width=DV):
    layer.build((B, TQ, query_width), (B, TV, DV), (B, TV, key_width))
    randomize(layer, rng)
    return layer, score_of(layer)


class InTurn(AdditiveAttention):
    """Its queries attend one after the other."""

    sequential = True


LAYERS = {
    "dot": lambda **kwargs: MultiplicativeAttention("dot", **kwargs),
    "scaled_dot": lambda **kwargs: MultiplicativeAttention("scaled_dot", **kwargs),
    "general": lambda **kwargs: MultiplicativeAttention("general", **kwargs),
    "scaled general": lambda **kwargs: MultiplicativeAttention("general", use_scale=True, **kwargs),
    "additive": lambda **kwargs: AdditiveAttention(UNITS, **kwargs),
    "additive in turn": lambda **kwargs: InTurn(UNITS, **kwargs),
    "additive with bias": lambda **kwargs: AdditiveAttention(UNITS, use_bias=True, **kwargs),
    "normalised additive": lambda **kwargs: AdditiveAttention(UNITS, normalize=True, **kwargs),
}


@pytest.mark.parametrize(
    ("name", "heads", "with_key"),
    [("dot", 1, False), ("additive", 1, False), *itertools.product(LAYERS, (1, 3), [True])],
)
def test_each_head_follows_the_formula_with_its_part_and_the_contexts_are_joined(
    rng, name, heads, with_key
):
    size, products = DK if with_key else DV, ("dot", "scaled_dot")
    width = size if name in products else DQ
    layer, _ = built(LAYERS[name](num_heads=heads), rng, width, size)
    query, value, key = normal(rng, B, TQ, width), normal(rng, B, TV, DV), normal(rng, B, TV, DK)
    inputs, allowed = [query, value, *([key] if with_key else [])], mask(rng, B, TQ, TV)
    parts = {
        "query": np.split(query, heads, -1) if "additive" not in name else [query] * heads,
        "key": np.split(inputs[-1], heads, -1) if name in products else [inputs[-1]] * heads,
        "value": np.split(value, heads, -1),
    }

    def expected(allowed=None):
        of_heads = [
            reference.attend(score_of(layer, h), q, v, k, allowed)
            for h, (q, k, v) in enumerate(zip(*parts.values(), strict=True))
        ]
        contexts, weights = zip(*of_heads, strict=True)
        return np.concatenate(contexts, -1), np.stack(weights, 1) if heads > 1 else weights[0]

    result = layer(*inputs, attention_mask=allowed, return_attention_scores=True)
    assert_close(result, expected(allowed))
    assert_close(layer(*inputs), expected()[0])


# The causal mask joins every other combination: each pair of the five is met both ways.
COMBINATIONS = [*itertools.product([False, True], repeat=4)]


@pytest.mark.parametrize("which", COMBINATIONS)
def test_every_combination_of_masks_leaves_exact_zeros(rng, which):
    causal = sum(which) % 2 == 0
    layer, score = built(LAYERS["additive"](), rng)
    query, value = normal(rng, B, TV, DQ), normal(rng, B, TV, DV)
    shapes = {
        "query_mask": (B, TV),
        "value_mask": (B, TV),
        "key_mask": (B, TV),
        "attention_mask": (B, TV, TV),
    }
    masks = {n: mask(rng, *s) for (n, s), on in zip(shapes.items(), which, strict=True) if on}
    joined = reference.join_masks((B, TV, TV), **masks, causal=causal)
    expected = reference.attend(score, query, value, mask=joined)
    result = layer(query, value, **masks, use_causal_mask=causal, return_attention_scores=True)
    assert_close(result, expected)
    assert not array(result[1])[~joined].any()


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
    layer, score = built(LAYERS["additive"](), rng)
    query, grid, allowed = normal(rng, B, TQ, DQ), normal(rng, B, 2, 3, DV), mask(rng, B, 2, 3)
    joined = np.repeat(allowed.reshape(B, 1, 6), TQ, 1)
    expected = reference.attend(score, query, grid.reshape(B, 6, DV), mask=joined)
    for given in (allowed, allowed.reshape(B, 6)):
        result = layer(query, grid, value_mask=given, return_attention_scores=True)
        assert_close(result, expected)
    symbolic = layer(keras.Input((TQ, DQ)), keras.Input((2, 3, DV)), return_attention_scores=True)
    assert [x.shape for x in symbolic] == [(None, TQ, DV), (None, TQ, 6)]


def test_gradients_are_finite_differences(rng):
    layer, _ = built(LAYERS["normalised additive"](), rng)
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
    layer = Distance()
    expected = reference.attend(
        lambda q, k: -((q - k) ** 2).sum(), query, value, mask=np.repeat(allowed[:, None], TQ, 1)
    )
    result = layer(query, value, value_mask=allowed, return_attention_scores=True)
    assert_close(result, expected)
