"""The encoder of images."""

from __future__ import annotations

import keras
import numpy as np

from serving.export.onnx.cells import array
from serving.export.onnx.encoder import Encoded, Encoder
from serving.export.onnx.graph import Graph, Value
from serving.export.onnx.products import Products
from training.config.schema import Config


class ImageEncoder(Encoder):
    """Reads pixels, uint8 `(B, H, W, C)`, by convolutions in float32."""

    def __init__(self, config: Config, model: keras.Model, bits: int) -> None:
        super().__init__(config, model, bits)
        self._shape = self._model.input.shape[1:]
        self._longest = float(config.max_target_length)
        layers = self._model.layers
        norms = [each for each in layers if isinstance(each, keras.layers.BatchNormalization)]
        convolutions = [each for each in layers if isinstance(each, keras.layers.Conv2D)]
        self._convolutions = [_folded(*pair) for pair in zip(convolutions, norms, strict=True)]
        self._pools = [_pool_after(layers, norm) for norm in norms]
        positions = self._model.get_layer("positions")
        height, width = positions.output.shape[1:3]
        made = positions(np.zeros((1, height, width, 0), "float32"))
        self._positions = np.asarray(made).reshape(1, height * width, -1)

    def input(self, g: Graph) -> Value:
        """Add pixels."""
        return g.input("pixels", "uint8", "B", *self._shape)

    def limits(self, g: Graph, source: Value) -> Value:
        """Return the most tokens of a text, float32 `(B, 1)`: the run's `max_target_length`."""
        return g.expand(self._longest, g.size(source, 0), 1)

    def __call__(self, g: Graph, times: Products, source: Value) -> Encoded:
        """Read pixels."""
        batch = g.size(source, 0)
        flat = g.reshape(g.cast(source, "float32"), 0, -1)
        flat = flat - g.over("ReduceMean", flat, 1, keep=True)
        deviation = g("Sqrt", g.over("ReduceMean", flat * flat, 1, keep=True))
        x = g.reshape(flat / g("Max", deviation, 1.0), 0, *self._shape)
        x = g("Transpose", x, perm=[0, 3, 1, 2])
        for (kernel, bias), pool in zip(self._convolutions, self._pools, strict=True):
            # Keras pads an even kernel more at the end.
            pads = [(size - 1) // 2 for size in kernel.shape[2:]]
            pads += [size // 2 for size in kernel.shape[2:]]
            x = g("Relu", g("Conv", x, kernel, bias, pads=pads))
            if pool:
                x = g("MaxPool", x, kernel_shape=pool, strides=pool)
        x = g("Transpose", x, perm=[0, 2, 3, 1])
        _, places, dim = self._positions.shape
        x = g.reshape(x, 0, places, -1)
        memory = g.concat([x, g.expand(self._positions, batch, places, dim)], axis=2)
        mask = g.expand(g.constant(np.ones((1, 1, 1), bool)), batch, 1, places)
        return self.encoded(g, times, memory, mask, g.over("ReduceMean", memory, 1))


def _folded(
    convolution: keras.layers.Conv2D, norm: keras.layers.BatchNormalization
) -> tuple[np.ndarray, np.ndarray]:
    """Return kernel `(out, in, h, w)` and bias of a convolution with the normalisation after it."""
    scale = array(norm.gamma) / np.sqrt(array(norm.moving_variance) + norm.epsilon)
    bias = array(norm.beta) - array(norm.moving_mean) * scale
    return (array(convolution.kernel) * scale).transpose(3, 2, 0, 1), bias


def _pool_after(layers: list[keras.Layer], norm: keras.Layer) -> list[int]:
    """Return what is pooled after a normalisation and its activation; nothing where none is."""
    after = layers[layers.index(norm) + 2]
    return list(after.pool_size) if isinstance(after, keras.layers.MaxPooling2D) else []
