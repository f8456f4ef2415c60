"""Mistakes in calling and making a layer, each told in one line."""

import re

import keras
import numpy as np
import pytest

from keras_attention import (
    AdditiveAttention,
    AttentionPooling,
    AttentionRNN,
    LocationAttention,
    MultiplicativeAttention,
)
from tests.keras_attention.helpers import normal

B, TQ, TV, DQ, DV, UNITS = 2, 3, 5, 7, 11, 17


@pytest.mark.parametrize(
    ("layer", "call"),
    [
        (AdditiveAttention(UNITS), "query, value"),
        (MultiplicativeAttention(), "query, value"),
        (AttentionRNN(keras.layers.GRUCell(DQ), AdditiveAttention(UNITS)), "inputs, memory"),
        (AttentionPooling(UNITS), "value"),
    ],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_a_list_of_inputs_as_keras_layers_take_it_names_the_mistake(layer, call, symbolic, rng):
    query, value = normal(rng, B, TQ, DQ), normal(rng, B, TV, DV)
    if symbolic:
        query, value = keras.Input((TQ, DQ)), keras.Input((TV, DV))
    name = type(layer).__name__
    expected = f"{name} expected to be called as layer({call}). Received: a list of 2"
    with pytest.raises(ValueError, match=re.escape(expected)):
        layer([query, value])


BAD_CALLS = {
    "query of rank 4": ((2, 3, 5, 7), (2, 5, 7), {}, "query (B, Tq, dim) or (B, dim)"),
    "value of rank 2": ((2, 3, 7), (2, 7), {}, "value (B, Tv, dim)"),
    "another batch": ((2, 3, 7), (3, 5, 7), {}, "one batch size"),
    "another width": ((2, 3, 7), (2, 5, 11), {}, "query and key of the same width"),
    "longer key": ((2, 3, 7), (2, 5, 11), {"key": (2, 4, 7)}, "key and value of the same length"),
    "query mask": ((2, 3, 7), (2, 5, 7), {"query_mask": (2, 5)}, "query_mask (2, 3)"),
    "value mask": ((2, 3, 7), (2, 5, 7), {"value_mask": (2, 3)}, "value_mask (2, 5)"),
    "key mask": ((2, 3, 7), (2, 5, 7), {"key_mask": (2, 5, 7)}, "key_mask (2, 5)"),
    "mask": ((2, 3, 7), (2, 5, 7), {"attention_mask": (2, 5, 3)}, "attention_mask (2, 3, 5)"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_shapes_are_told_with_layer_expected_and_received(case):
    query, value, more, expected = BAD_CALLS[case]
    layer = MultiplicativeAttention("dot")
    arguments = {n: np.ones(s, "bool" if "mask" in n else "float32") for n, s in more.items()}
    with pytest.raises(ValueError, match="MultiplicativeAttention expected") as error:
        layer(np.ones(query, "float32"), np.ones(value, "float32"), **arguments)
    assert expected in str(error.value)
    assert "Received: " in str(error.value)


@pytest.mark.parametrize(
    ("make", "expected", "received"),
    [
        (lambda: MultiplicativeAttention("cosine"), "dot, scaled_dot, general", "'cosine'"),
        (lambda: AdditiveAttention(0), "units >= 1", "units=0"),
        (lambda: AdditiveAttention(3, dropout=1.5), "0 <= dropout < 1", "dropout=1.5"),
        (lambda: AdditiveAttention(3, num_heads=2), "num_heads divides", "units=3, num_heads=2"),
        (lambda: AdditiveAttention(3, num_heads=0), "num_heads >= 1", "num_heads=0"),
        (lambda: AdditiveAttention(3, distribution="max"), "softmax, sparsemax", "'max'"),
        (lambda: LocationAttention(0), "max_length >= 1", "max_length=0"),
    ],
)
def test_bad_arguments_are_told_with_layer_expected_and_received(make, expected, received):
    with pytest.raises(ValueError, match=r"Attention expected .* Received: ") as error:
        make()
    assert expected in str(error.value)
    assert received in str(error.value)


def test_a_key_of_another_length_is_told_before_a_step():
    layer = MultiplicativeAttention("dot")
    layer.build((2, 3, 7), (2, 5, 7))
    with pytest.raises(ValueError, match="expected key and value of the same length"):
        layer.prepare(np.ones((2, 4, 7), "float32"), np.ones((2, 5, 7), "float32"))


@pytest.mark.parametrize(
    ("change", "received"),
    [
        (lambda given: {**given, "memory": given["memory"][0]}, "3 elements"),
        (lambda given: {**given, "memory": given["memory"][:1]}, "1 elements"),
        (lambda given: {**given, "memory_mask": [None]}, "1 elements"),
        (lambda given: {**given, "memory_key": given["memory"][:1]}, "1 elements"),
    ],
)
def test_several_memories_come_in_lists_of_as_many(change, received, rng):
    attentions = [AdditiveAttention(UNITS), AdditiveAttention(UNITS)]
    layer = AttentionRNN(keras.layers.GRUCell(DQ), attentions)
    memories = [keras.ops.convert_to_tensor(normal(rng, B, TV, DV)) for _ in attentions]
    with pytest.raises(ValueError, match=rf"2 memory\(s\), and lists of as many.*{received}"):
        layer(normal(rng, B, TQ, DQ), **change({"memory": memories}))
