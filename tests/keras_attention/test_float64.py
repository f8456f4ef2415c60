"""In float64 everything is as exact as float64 is: against NumPy, to twelve digits.

On TensorFlow: products of `keras.ops` are in float32 on PyTorch, and JAX has float64 where a whole
process has it.
"""

import keras
import pytest

from keras_attention import mechanisms
from tests.keras_attention import reference, test_mechanisms, zoo
from tests.keras_attention.helpers import assert_close, mask

EXACT = 1e-12


@pytest.fixture(autouse=True)
def float64():
    """Make float64 the type of all layers, for the length of a test."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float64")
    yield
    keras.config.set_dtype_policy(before)


def normal(rng, *shape):
    return rng.normal(size=shape)


@pytest.mark.parametrize("name", test_mechanisms.CASES)
def test_mechanisms_with_places_and_a_past(rng, name):
    t = test_mechanisms
    layer = t.built(t.CASES[name][0], rng)
    query, memory = normal(rng, t.B, t.TQ, t.DQ), normal(rng, t.B, t.TV, t.DV)
    valid, present = mask(rng, t.B, t.TQ), mask(rng, t.B, t.TV)
    allowed = reference.join_masks((t.B, t.TQ, t.TV), query_mask=valid, value_mask=present)
    expected = t.run(name, layer, query, memory, valid, allowed, present)
    found = layer(query, memory, query_mask=valid, value_mask=present, return_attention_scores=True)
    assert_close(found, expected, EXACT)


@pytest.mark.parametrize("name", mechanisms.BY_NAME)
def test_a_mechanism_made_by_name_has_its_type_all_through(rng, name):
    """Where the rest of a model is in another."""
    keras.config.set_dtype_policy("float32")
    layer = mechanisms.make(name, zoo.UNITS, dtype="float64")
    query, value = normal(rng, 2, 3, zoo.DV), normal(rng, 2, 5, zoo.DV)
    layer(query, value)
    assert {w.dtype for w in layer.weights} <= {"float64"}
    assert keras.backend.standardize_dtype(layer(query, value).dtype) == "float64"
