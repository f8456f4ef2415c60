"""Batches of no sentences, memories of no positions, no queries: empty results, or zeros."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import losses
from tests.keras_attention import zoo
from tests.keras_attention.helpers import array, assert_close, normal, weight_gradients

# B, Tq and Tv, one of which is 0.
EMPTY = {"sentences": (0, 3, 5), "queries": (2, 0, 5), "memory": (2, 3, 0), "both": (2, 0, 0)}
GRAPHS = keras.backend.backend() == "tensorflow"
every_way = pytest.mark.parametrize(("graph", "masked"), [(False, False), (GRAPHS, True)])


@functools.cache
def built(name):
    layer = zoo.LAYERS[name]()
    layer.build(*[(zoo.B, *shape) for shape in zoo.shapes(name)])
    zoo.fixed_weights(layer)
    return layer


def given(rng, name, what):
    """Inputs of the layer, and masks of them by the names that it has for them."""
    batch, rows, places = EMPTY[what]
    width, size = zoo.widths(name)
    if name in zoo.POOLING or name == "hoisted":
        inputs = [normal(rng, batch, places, size)]
        names = ["mask"]
    elif name == "cell":
        inputs = [normal(rng, batch, width), normal(rng, batch, places, size)]
        names = [None, "memory_mask"]
    else:
        inputs = [normal(rng, batch, rows, width), normal(rng, batch, places, size)]
        names = ["query_mask", "value_mask"]
        if name in zoo.RECURRENT:
            names = ["inputs_mask", "memory_mask"]
    masks = {n: np.ones(x.shape[:2], bool) for n, x in zip(names, inputs, strict=True) if n}
    return inputs, masks


def run(name, layer, inputs, masks, graph):
    """Return the layer's outputs; in a graph, whose lengths are unknown when it is traced."""
    if not graph:
        return zoo.call(name, layer, inputs, **masks)

    def spec(x):
        free = x.ndim - (x.dtype != bool)
        return (None,) * free + x.shape[free:], x.dtype.name

    flat = [*inputs, *masks.values()]
    return traced(name, layer, tuple(masks), tuple(spec(x) for x in flat))(*flat)


@functools.cache
def traced(name, layer, masks, specs):
    """The layer's call in a graph, traced once for all sizes."""
    import tensorflow as tf

    count = len(specs) - len(masks)

    @tf.function(input_signature=[tf.TensorSpec(*spec) for spec in specs], autograph=False)
    def call(*arrays):
        return zoo.call(
            name, layer, arrays[:count], **dict(zip(masks, arrays[count:], strict=True))
        )

    return call


@every_way
@pytest.mark.parametrize("what", EMPTY)
@pytest.mark.parametrize("name", zoo.MECHANISMS)
def test_attention_gives_zeros(rng, name, what, graph, masked):
    layer, (inputs, masks) = built(name), given(rng, name, what)
    masks = masks if masked else {}
    if masked:
        masks["attention_mask"] = np.ones(EMPTY[what], bool)
    batch, rows, places = EMPTY[what]
    context, weights = run(name, layer, inputs, masks, graph)
    heads = [layer.num_heads] if layer.num_heads > 1 else []
    assert_close(context, np.zeros((batch, rows, zoo.widths(name)[1])))
    assert_close(weights, np.zeros((batch, *heads, rows, places)))
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"


@pytest.mark.parametrize(
    ("what", "masked"), [("sentences", True), ("queries", False), ("memory", True), ("both", False)]
)
@pytest.mark.parametrize("name", [n for n in zoo.LAYERS if n != "hoisted"])
def test_gradients_are_finite(rng, name, what, masked):
    layer, (inputs, masks) = built(name), given(rng, name, what)
    found = weight_gradients(
        layer, lambda: ops.sum(zoo.call(name, layer, inputs, **(masks if masked else {}))[0])
    )
    for weight in layer.trainable_weights:
        assert found[weight.path].shape == tuple(weight.shape)
        assert np.isfinite(found[weight.path]).all()
        if name in zoo.MECHANISMS:
            assert not found[weight.path].any()


@every_way
@pytest.mark.parametrize("what", EMPTY)
@pytest.mark.parametrize("name", [*zoo.RECURRENT, "cell"])
def test_a_recurrent_layer_goes_on_without_contexts(rng, name, what, graph, masked):
    """It does what it does with a memory that is masked all over."""
    if graph and EMPTY[what][1] == 0 and name != "cell":
        pytest.skip("a loop of no steps in a graph, which keras.layers.RNN does not run either")
    if name == "cell" and what == "queries":
        pytest.skip("it takes one query")
    layer, (inputs, masks) = built(name), given(rng, name, what)
    found = run(name, layer, inputs, masks if masked else {}, graph)
    batch, rows, _ = EMPTY[what]
    if batch == 0 or (rows == 0 and name != "cell"):
        full = zoo.call(name, layer, zoo.arrays(name, rng))
        assert len(found) == len(full)
        for x, like in zip(found, full, strict=True):
            assert len(x.shape) == len(like.shape)
            assert x.shape[0] == batch
            assert not array(x).any()  # states are those before the first step
        return
    memory = normal(rng, batch, zoo.TV, zoo.widths(name)[1])
    hidden = {"memory_mask": np.zeros((batch, zoo.TV), bool)}
    expected = zoo.call(name, layer, [inputs[0], memory], **hidden)
    for x, e in zip(found, expected, strict=True):
        if e.shape[-1] == zoo.TV:  # weights
            e = e[..., :0]
        assert_close(x, array(e))


@pytest.mark.parametrize("shape", [(0, 3, 5), (2, 0, 5), (2, 3, 0)])
@pytest.mark.parametrize("loss", losses.BY_NAME)
def test_losses_of_nothing_are_nothing(rng, loss, shape):
    """But for places that are owed attention."""
    found = array(losses.BY_NAME[loss](np.zeros(shape, "float32")))
    owed = shape[2] if loss == "doubly_stochastic" else 0
    assert_close(found, np.full(shape[0], float(owed)))
    layer = losses.AttentionLoss(loss)
    outputs = np.zeros((*shape[:2], 7), "float32")
    assert layer(outputs, np.zeros(shape, "float32")).shape == outputs.shape
    assert_close(layer.losses, [float(owed if shape[0] else 0)])
