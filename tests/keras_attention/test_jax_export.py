"""Batch and lengths may be symbols when JAX exports."""

import keras
import pytest

from tests.keras_attention import zoo
from tests.keras_attention.helpers import array, assert_close

pytestmark = pytest.mark.skipif(keras.backend.backend() != "jax", reason="exports from JAX")


@pytest.mark.parametrize("name", [n for n in zoo.LAYERS if n != "hoisted"])
def test_sizes_may_be_unknown(rng, name):
    import jax
    from jax import export

    layer = zoo.built(name)
    batch, *lengths = export.symbolic_shape("b, t, s")
    shapes = zoo.shapes(name)
    free = [(batch, *lengths[n : n + len(shape) - 1], shape[-1]) for n, shape in enumerate(shapes)]
    exported = export.export(jax.jit(lambda *inputs: zoo.call(name, layer, inputs)))(
        *[jax.ShapeDtypeStruct(shape, "float32") for shape in free]
    )
    inputs = [x[:, :2] if x.ndim == 3 else x for x in zoo.arrays(name, rng, 3)]
    expected = [array(x) for x in zoo.call(name, layer, inputs)]
    assert_close(list(exported.call(*inputs)), expected)
