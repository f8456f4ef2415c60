"""The backends agree: every layer gives what was recorded on TensorFlow, from the same weights.

To record anew, on purpose: `python -m tests.keras_attention.test_agreement`.
"""

import json
import zlib
from pathlib import Path

import keras
import numpy as np
import pytest

from tests.keras_attention import zoo
from tests.keras_attention.helpers import array, assert_close, weight_gradients, weighted_sum

GOLD = Path(__file__).with_name("gold.json")


def results(name):
    """The layer's outputs, and the gradients of its weights, each as a flat array by name."""
    layer, rng = zoo.LAYERS[name](), np.random.default_rng(zlib.crc32(name.encode()))
    inputs = zoo.arrays(name, rng)
    outputs = zoo.call(name, layer, inputs)
    zoo.fixed_weights(layer)
    upstream = rng.normal(size=outputs[0].shape).astype("float32")
    found = {str(n): array(x).ravel() for n, x in enumerate(zoo.call(name, layer, inputs))}
    if layer.trainable_weights:
        slopes = weight_gradients(
            layer, lambda: weighted_sum(zoo.call(name, layer, inputs)[0], upstream)
        )
        for path, slope in slopes.items():
            found[path.split("/", 1)[1]] = slope.ravel()[:7]
    return found


@pytest.mark.parametrize("name", zoo.LAYERS)
def test_outputs_and_gradients_are_those_recorded(name):
    expected, found = json.loads(GOLD.read_text())[name], results(name)
    assert len(found) == len(expected)
    for (key, x), wanted in zip(found.items(), expected.values(), strict=True):
        assert_close(x, np.array(wanted), 1e-5 if key.isdigit() else 1e-4)


if __name__ == "__main__":
    assert keras.backend.backend() == "tensorflow"
    record = {
        name: {key: [float(f"{x:.7g}") for x in xs] for key, xs in results(name).items()}
        for name in zoo.LAYERS
    }
    lines = (f"{json.dumps(name)}: {json.dumps(values)}" for name, values in record.items())
    GOLD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
