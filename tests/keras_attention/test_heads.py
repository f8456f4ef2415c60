"""Several heads: each attends with its part of query, key and value."""

import numpy as np
import pytest
from keras import ops

from keras_attention import AdditiveAttention, MultiplicativeAttention
from tests.keras_attention import reference
from tests.keras_attention.helpers import (
    array,
    assert_close,
    mask,
    normal,
    randomize,
    weights_of,
)

B, TQ, TV = 2, 3, 5

HEADS = 3


class InTurn(AdditiveAttention):
    """Its queries attend one after the other."""

    sequential = True


MULTI_HEAD = {
    "dot": lambda: MultiplicativeAttention("dot", num_heads=HEADS),
    "scaled_dot": lambda: MultiplicativeAttention("scaled_dot", num_heads=HEADS),
    "general": lambda: MultiplicativeAttention("general", num_heads=HEADS),
    "additive": lambda: AdditiveAttention(12, num_heads=HEADS),
    "additive in turn": lambda: InTurn(12, num_heads=HEADS),
    "normalised additive": lambda: AdditiveAttention(12, normalize=True, num_heads=HEADS),
}


@pytest.mark.parametrize("name", MULTI_HEAD)
def test_each_head_attends_with_its_part_and_the_contexts_are_joined(rng, name):
    layer, width, key_width = MULTI_HEAD[name](), 6, 15
    query_width = key_width if name in ("dot", "scaled_dot") else width
    layer.build((B, TQ, query_width), (B, TV, 21), (B, TV, key_width))
    randomize(layer, rng)
    query, key = normal(rng, B, TQ, query_width), normal(rng, B, TV, key_width)
    value, allowed = normal(rng, B, TV, 21), mask(rng, B, TQ, TV)
    w = weights_of(layer)

    def parts(x):
        return np.split(x, HEADS, axis=-1)

    contexts, weights = [], []
    for h in range(HEADS):
        q, k = query, key
        if name in ("dot", "scaled_dot"):
            q, k, score = parts(query)[h], parts(key)[h], getattr(reference, name)
        elif name == "general":
            kernel = np.split(w["kernel"], HEADS, axis=0)[h]
            q, score = parts(query)[h], lambda q, k, kernel=kernel: reference.general(q, k, kernel)
        else:
            kernels = parts(w["query_kernel"])[h], parts(w["key_kernel"])[h]
            scale, bias = parts(w["scale"])[h], 0.0
            if layer.normalize:
                scale, bias = w["gain"] * scale / np.sqrt((scale**2).sum()), parts(w["bias"])[h]
            rest = (*kernels, scale, bias)
            score = lambda q, k, rest=rest: reference.additive(q, k, *rest)  # noqa: E731
        context, weight = reference.attend(score, q, parts(value)[h], k, allowed)
        contexts.append(context)
        weights.append(weight)
    expected = np.concatenate(contexts, -1), np.stack(weights, 1)
    result = layer(query, value, key, attention_mask=allowed, return_attention_scores=True)
    assert_close(result, expected)

    memory = layer.prepare(ops.convert_to_tensor(value), ops.convert_to_tensor(key))
    expected = array(layer(query, value, key, return_attention_scores=True))
    beams = query.reshape(B * TQ, -1)  # all queries at once, as beams that share a memory row
    context, weight, _ = layer.step(ops.convert_to_tensor(beams), memory, ())
    assert_close(context, expected[0].reshape(B * TQ, -1))
    assert_close(weight, expected[1].swapaxes(1, 2).reshape(B * TQ, HEADS, TV))
