"""Models exported from TensorFlow to LiteRT run by its own operations, at lengths not traced."""

import keras
import numpy as np
import pytest

from keras_attention import (
    AdditiveAttention,
    AttentionPooling,
    AttentionRNN,
    CoverageAttention,
    HoistedRNN,
    LocalAttention,
    LocationAttention,
    MultiplicativeAttention,
    SinePositionEncoding,
    fast_paths,
)

pytestmark = [
    pytest.mark.slow,
    # TensorFlow's interpreter warns of the one that will take its place.
    pytest.mark.filterwarnings("ignore"),
]

QUERY, MEMORY = ("query", (None, 7)), ("memory", (None, 11))
EVERY_LENGTH = {
    "additive": (lambda: AdditiveAttention(13), [QUERY, MEMORY]),
    "multiplicative": (lambda: MultiplicativeAttention("general"), [QUERY, MEMORY]),
    "sparsemax": (
        lambda: MultiplicativeAttention("general", distribution="sparsemax"),
        [QUERY, MEMORY],
    ),
    "location": (lambda: LocationAttention(17), [QUERY, MEMORY]),
    "local": (lambda: LocalAttention(MultiplicativeAttention("general"), 2), [QUERY, MEMORY]),
    "predictive": (
        lambda: LocalAttention(MultiplicativeAttention("general"), 2, predictive=True),
        [QUERY, MEMORY],
    ),
    "heads": (lambda: AdditiveAttention(22, num_heads=11), [QUERY, MEMORY]),
    "pooling": (lambda: AttentionPooling(5), [QUERY]),
    "positions": (SinePositionEncoding, [("memory", (None, 6))]),
}
IN_TURN = {
    "coverage": (lambda: CoverageAttention(5), [QUERY, MEMORY]),
    "recurrent": (
        lambda: AttentionRNN(keras.layers.GRUCell(5), MultiplicativeAttention("general")),
        [QUERY, MEMORY],
    ),
    "hoisted": (lambda: HoistedRNN(keras.layers.GRUCell(5)), [QUERY]),
}


def made(layer, inputs):
    inputs = [keras.Input(shape, name=name) for name, shape in inputs]
    return keras.Model(inputs, layer(*inputs))


def converted(model, path):
    """A function from inputs by name to the answer of LiteRT without TensorFlow's operations."""
    import tensorflow as tf

    builtin = {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]}
    with fast_paths(False):
        model.export(str(path), format="litert", verbose=False, target_spec=builtin)
    run = tf.lite.Interpreter(str(path)).get_signature_runner()
    return lambda inputs: next(iter(run(**inputs).values()))


@pytest.mark.parametrize("name", EVERY_LENGTH)
def test_what_attends_to_all_at_once_runs_at_every_length(rng, tmp_path, name):
    layer, inputs = EVERY_LENGTH[name]
    model = made(layer(), inputs)
    run = converted(model, tmp_path / "model.tflite")
    for batch, *lengths in ((3, 2, 5), (2, 5, 13), (1, 1, 2), (2, 3, 1)):
        given = {
            key: rng.normal(size=(batch, length, shape[-1])).astype("float32")
            for (key, shape), length in zip(inputs, lengths, strict=False)
        }
        expected = np.asarray(model(given))
        np.testing.assert_allclose(run(given), expected, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("name", IN_TURN)
def test_loops_are_refused_without_operations_of_tensorflow(tmp_path, name):
    layer, inputs = IN_TURN[name]
    with pytest.raises(Exception, match="TensorListReserve"):
        converted(made(layer(), inputs), tmp_path / "model.tflite")
