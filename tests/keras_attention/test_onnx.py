"""Models exported from PyTorch to ONNX say in ONNX Runtime what they say here."""

import keras
import numpy as np
import pytest

from keras_attention import (
    AdditiveAttention,
    AttentionRNN,
    LayerNormGRUCell,
    LayerNormLSTMCell,
    MonotonicAttention,
    MonotonicChunkwiseAttention,
    MultiplicativeAttention,
)

pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="exports from PyTorch")

LAYERS = {
    "additive": lambda: AdditiveAttention(13),
    "multiplicative": lambda: MultiplicativeAttention("general"),
    "monotonic": lambda: MonotonicAttention(AdditiveAttention(13)),
    "chunkwise": lambda: MonotonicChunkwiseAttention(AdditiveAttention(13), AdditiveAttention(3)),
    "attention RNN": lambda: AttentionRNN(LayerNormGRUCell(13), AdditiveAttention(5)),
}
CELLS = {"GRU": LayerNormGRUCell, "LSTM": LayerNormLSTMCell}


def holds(model, rng, path):
    import onnxruntime

    inputs = [rng.normal(size=(2, *x.shape[1:])).astype("float32") for x in model.inputs]
    expected = model(inputs if len(inputs) > 1 else inputs[0]).detach().numpy()
    model.export(str(path), format="onnx", verbose=False)
    session = onnxruntime.InferenceSession(str(path))
    feeds = {x.name: array for x, array in zip(session.get_inputs(), inputs, strict=True)}
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, atol=2e-6)


@pytest.mark.parametrize("name", LAYERS)
def test_attention_is_exported(rng, tmp_path, name):
    query, memory = keras.Input((3, 7)), keras.Input((5, 11))
    model = keras.Model([query, memory], LAYERS[name]()(query, memory))
    holds(model, rng, tmp_path / "model.onnx")


@pytest.mark.parametrize("name", CELLS)
def test_cells_with_layer_normalisation_are_exported(rng, tmp_path, name):
    inputs = keras.Input((3, 7))
    model = keras.Model(inputs, keras.layers.RNN(CELLS[name](13))(inputs))
    holds(model, rng, tmp_path / "model.onnx")
