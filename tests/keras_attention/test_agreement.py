"""The backends agree: every layer gives what was recorded on TensorFlow, from the same weights.

To record, on purpose, what is new or has changed: `python -m tests.keras_attention.test_agreement`.
"""

import json

import keras
import numpy as np
import pytest

from tests.keras_attention import zoo
from tests.keras_attention.helpers import array, assert_close, weight_gradients, weighted_sum


def results(name):
    """The layer's outputs, and the gradients of its weights, each as a flat array by name."""
    layer, inputs, rng = zoo.recorded(name)
    outputs = [array(x) for x in zoo.call(name, layer, inputs)]
    upstream = rng.normal(size=outputs[0].shape).astype("float32")
    found = {str(n): x.ravel() for n, x in enumerate(outputs)}
    if layer.trainable_weights:
        slopes = weight_gradients(
            layer, lambda: weighted_sum(zoo.call(name, layer, inputs)[0], upstream)
        )
        for path, slope in slopes.items():
            found[path.split("/", 1)[1]] = slope.ravel()[:7]
    return found


def assert_recorded(found, expected):
    assert len(found) == len(expected), "python -m tests.keras_attention.test_agreement records it"
    for (key, x), wanted in zip(found.items(), expected.values(), strict=True):
        assert_close(x, np.array(wanted), 1e-5 if key.isdigit() else 1e-4)


@pytest.mark.parametrize("name", zoo.LAYERS)
def test_outputs_and_gradients_are_those_recorded(name):
    assert_recorded(results(name), json.loads(zoo.GOLD.read_text()).get(name, {}))


if __name__ == "__main__":
    assert keras.backend.backend() == "tensorflow"
    before, record = json.loads(zoo.GOLD.read_text()), {}
    for name in zoo.LAYERS:
        found = results(name)
        record[name] = before.get(name, {})
        try:
            assert_recorded(found, record[name])
        except AssertionError:
            record[name] = {key: [float(f"{x:.7g}") for x in xs] for key, xs in found.items()}
    lines = (f"{json.dumps(name)}: {json.dumps(values)}" for name, values in record.items())
    zoo.GOLD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
