"""Models exported from TensorFlow to LiteRT run by its own operations, at lengths not traced."""

import keras
import numpy as np
import pytest

from keras_attention import SinePositionEncoding, fast_paths
from tests.keras_attention import zoo

pytestmark = [
    pytest.mark.slow,
    # TensorFlow's interpreter warns of the one that will take its place.
    pytest.mark.filterwarnings("ignore"),
]

EVERY_LENGTH = ("additive", "normalized_additive", "general", "general entmax", "location")
EVERY_LENGTH += ("local_m", "local_p", "pooling", "positions")
IN_TURN = ("coverage", "rnn bahdanau", "hoisted")


def made(name):
    """A model of a layer, and the widths of its inputs by name."""
    positions = name == "positions"
    shapes = [(None, 6)] if positions else zoo.shapes(name)
    layer = SinePositionEncoding() if positions else zoo.LAYERS[name]()
    inputs = [keras.Input((None, shape[-1]), name=f"input_{n}") for n, shape in enumerate(shapes)]
    model = keras.Model(inputs, zoo.call(name, layer, inputs)[0])
    return model, {x.name: x.shape[-1] for x in inputs}


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
    model, widths = made(name)
    run = converted(model, tmp_path / "model.tflite")
    for batch, *lengths in ((3, 2, 5), (2, 5, 7), (1, 1, 2), (2, 3, 1)):
        inputs = {
            key: rng.normal(size=(batch, length, width)).astype("float32")
            for (key, width), length in zip(widths.items(), lengths, strict=False)
        }
        np.testing.assert_allclose(run(inputs), np.asarray(model(inputs)), rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("name", IN_TURN)
def test_loops_are_refused_without_operations_of_tensorflow(tmp_path, name):
    with pytest.raises(Exception, match="TensorListReserve"):
        converted(made(name)[0], tmp_path / "model.tflite")
