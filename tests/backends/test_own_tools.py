"""Layers in tools of JAX and PyTorch: `vmap`, `pmap`, `DataParallel`, `DataLoader` and more."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_attention import AdditiveAttention, AttentionRNN
from tests.backends.test_distributed import ended, on_jax, started
from tests.keras_attention.helpers import array, assert_close, normal

on_torch = pytest.mark.skipif(keras.backend.backend() != "torch", reason="needs PyTorch")
B, T, S, UNITS = 4, 3, 5, 7


def decoder(rng, units=UNITS):
    """A built `AttentionRNN`, its inputs and its memory."""
    layer = AttentionRNN(keras.layers.LSTMCell(units), AdditiveAttention(units), units=units)
    inputs = normal(rng, B, T, units), normal(rng, B, S, units)
    layer(*inputs)
    return layer, *inputs


@on_jax
def test_vmap_of_a_decoder_is_the_decoder_of_each_part(rng):
    import jax

    layer, inputs, memory = decoder(rng)
    parts = [x.reshape(2, B // 2, *x.shape[1:]) for x in (inputs, memory)]
    weights = [weight.value for weight in layer.trainable_variables]
    seeds = [variable.value for variable in layer.non_trainable_variables]  # of Keras's cell

    def loss(weights, inputs, memory):
        states, _ = layer.stateless_call(weights, seeds, inputs, memory)
        return (states**2).sum()

    values, gradients = jax.vmap(jax.value_and_grad(loss), in_axes=(None, 0, 0))(weights, *parts)
    for n in range(2):
        value, gradient = jax.value_and_grad(loss)(weights, parts[0][n], parts[1][n])
        assert_close([values[n], *(g[n] for g in gradients)], [array(value), *array(gradient)])


DEVICES = """
import json, sys
import jax, keras, numpy as np
from tests.backends.test_own_tools import decoder
from keras_attention import AttentionPooling

assert len(jax.devices()) == 2
rng = np.random.default_rng(5)
layer, inputs, memory = decoder(rng)
owners = layer.trainable_variables, layer.non_trainable_variables
values = [[variable.value for variable in some] for some in owners]

def run(inputs, memory):
    return layer.stateless_call(*values, inputs, memory)[0]

parts = [x.reshape(2, len(x) // 2, *x.shape[1:]) for x in (inputs, memory)]
each = np.concatenate(jax.pmap(run)(*parts))
found = {"pmap": float(abs(each - run(inputs, memory)).max())}

def train():
    keras.utils.set_random_seed(1)
    x, y = keras.Input((None, 7)), keras.Input((None, 7))
    states = decoder(np.random.default_rng(5))[0](x, y)
    model = keras.Model([x, y], keras.layers.Dense(1)(AttentionPooling(3)(states)))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    labels = inputs[:, 0, :1]
    losses = model.fit([inputs, memory], labels, batch_size=4, epochs=3, verbose=0)
    return losses.history["loss"], model

found["one"], _ = train()
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
found["two"], model = train()
found["devices"] = len(model.trainable_variables[0].value.sharding.device_set)
print(json.dumps(found))
"""


@on_jax
def test_pmap_and_data_parallel_on_two_devices():
    ((status, text, errors),) = ended(started(DEVICES, "", devices=2))
    assert status == 0, errors
    found = json.loads(text.splitlines()[-1])
    assert found["pmap"] < 1e-6
    assert found["devices"] == 2
    assert found["one"][2] < found["one"][0]
    assert found["two"] == pytest.approx(found["one"], rel=1e-4)


SERVE = """
import sys
import numpy as np, tensorflow as tf
inputs, memory, expected = (np.load(f"{sys.argv[1]}/{n}.npy") for n in range(3))
model = tf.saved_model.load(f"{sys.argv[1]}/model")
for shared in (5, 2):  # the memory's length is open
    found = model.serve((inputs, memory[:, :shared]))
    assert found.shape == expected.shape
    if shared == 5:
        np.testing.assert_allclose(found, expected, atol=1e-5)
"""


@pytest.mark.slow
@on_jax
@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_a_saved_model_from_jax_runs_in_tensorflow(rng, tmp_path):
    layer, inputs, memory = decoder(rng)
    symbols = keras.Input((None, UNITS)), keras.Input((None, UNITS))
    model = keras.Model(symbols, layer(*symbols))
    for n, x in enumerate((inputs, memory, array(model([inputs, memory])))):
        np.save(tmp_path / f"{n}.npy", x)
    model.export(str(tmp_path / "model"), verbose=False)
    subprocess.run(
        [sys.executable, "-c", SERVE, str(tmp_path)],
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
        check=True,
    )


@on_torch
def test_batches_of_a_data_loader_train_as_arrays(rng):
    import torch

    layer, inputs, memory = decoder(rng)
    symbols = keras.Input((None, UNITS)), keras.Input((None, UNITS))
    model = keras.Model(symbols, layer(*symbols))
    labels, first, histories = normal(rng, B, T, UNITS), model.get_weights(), []

    def joined(rows):
        x, y, z = (torch.tensor(np.stack(each)) for each in zip(*rows, strict=True))
        return (x, y), z

    rows = [*zip(inputs, memory, labels, strict=True)]
    loader = torch.utils.data.DataLoader(rows, batch_size=2, collate_fn=joined)
    for data in ({"x": [inputs, memory], "y": labels, "batch_size": 2}, {"x": loader}):
        model.set_weights(first)
        model.compile(keras.optimizers.SGD(0.3), "mse")
        histories.append(model.fit(**data, epochs=2, shuffle=False, verbose=0).history["loss"])
    assert histories[0][1] < histories[0][0]
    assert histories[1] == pytest.approx(histories[0], rel=1e-5)


@on_torch
@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_compiled_and_exported_a_decoder_has_the_same_values_and_gradients(rng):
    import torch

    layer, *arrays = decoder(rng)
    tensors = [torch.tensor(x) for x in arrays]

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, inputs, memory):
            return self.layer(inputs, memory)

    def gradients(function):
        layer.zero_grad()
        (function(*tensors) ** 2).sum().backward()
        return [weight.value.grad.clone() for weight in layer.trainable_variables]

    module = Module()
    expected, exported = gradients(module), torch.export.export(module, tuple(tensors)).module()
    assert all(gradient.any() for gradient in expected)
    assert_close(exported(*tensors), array(layer(*tensors)))
    assert_close(gradients(torch.compile(module, backend="aot_eager")), array(expected), 1e-5)
