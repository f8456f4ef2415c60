"""Models exported from PyTorch to ONNX say in ONNX Runtime what they say here."""

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
    LocationSensitiveAttention,
    MonotonicAttention,
    MonotonicChunkwiseAttention,
    MultiplicativeAttention,
    PointerGenerator,
    greedy_search,
)

pytestmark = [
    pytest.mark.skipif(keras.backend.backend() != "torch", reason="exports from PyTorch"),
    # PyTorch's exporters warn of one another, and of parts of themselves.
    pytest.mark.filterwarnings("ignore"),
]


def exported(model, inputs, path):
    """A function from inputs to what ONNX Runtime says of the model."""
    import onnxruntime

    model(inputs if len(inputs) > 1 else inputs[0])
    model.export(str(path), format="onnx", verbose=False)
    session = onnxruntime.InferenceSession(str(path))
    names = [x.name for x in session.get_inputs()]
    return lambda inputs: session.run(None, dict(zip(names, inputs, strict=True)))[0]


def agrees(run, model, inputs):
    expected = model(inputs if len(inputs) > 1 else inputs[0]).detach().numpy()
    np.testing.assert_allclose(run(inputs), expected, atol=2e-6)


# Lengths that are not known, tried at others than the one that Keras traces, which is 1.

OPEN = {
    "additive": lambda: AdditiveAttention(13),
    "multiplicative": lambda: MultiplicativeAttention("general"),
    "location": lambda: LocationAttention(17),
    "local": lambda: LocalAttention(MultiplicativeAttention("general"), 2, predictive=True),
}
IN_TURN = {
    "coverage": lambda: CoverageAttention(5),
    "location-sensitive": lambda: LocationSensitiveAttention(5, filters=2, kernel_size=3),
    "monotonic": lambda: MonotonicAttention(AdditiveAttention(5)),
    "chunkwise": lambda: MonotonicChunkwiseAttention(AdditiveAttention(5), AdditiveAttention(3)),
    "recurrent": lambda: AttentionRNN(keras.layers.GRUCell(5), AdditiveAttention(3)),
    "last of recurrent": lambda: AttentionRNN(
        keras.layers.GRUCell(5), AdditiveAttention(3), order="luong", return_sequences=False
    ),
}


def pair(rng, steps, length, batch=2):
    sizes = (batch, steps, 7), (batch, length, 11)
    return [rng.normal(size=size).astype("float32") for size in sizes]


def attending(layer, steps):
    query, memory = keras.Input((steps, 7)), keras.Input((None, 11))
    return keras.Model([query, memory], layer(query, memory))


@pytest.mark.parametrize("name", OPEN)
def test_attention_to_all_at_once_is_exported_for_every_length(rng, tmp_path, name):
    model = attending(OPEN[name](), None)
    run = exported(model, pair(rng, 2, 3), tmp_path / "model.onnx")
    for sizes in ((5, 3), (1, 13), (2, 1)):
        agrees(run, model, pair(rng, *sizes, batch=3))


@pytest.mark.parametrize("name", IN_TURN)
def test_what_goes_step_by_step_needs_known_steps_and_takes_every_memory(rng, tmp_path, name):
    model = attending(IN_TURN[name](), None)
    model(pair(rng, 2, 3))
    with pytest.raises(ValueError, match=r"expected a known number of steps .* Received: an unkn"):
        model.export(str(tmp_path / "open.onnx"), format="onnx", verbose=False)
    for steps in (1, 3):
        model = attending(IN_TURN[name](), steps)
        run = exported(model, pair(rng, steps, 3), tmp_path / f"{steps}.onnx")
        for length in (1, 5, 13):
            agrees(run, model, pair(rng, steps, length, batch=3))


def test_other_layers_are_exported_for_every_length_or_refused(rng, tmp_path):
    value = keras.Input((None, 7))
    model = keras.Model(value, AttentionPooling(5)(value))
    run = exported(model, pair(rng, 2, 1)[:1], tmp_path / "model.onnx")
    agrees(run, model, pair(rng, 5, 1)[:1])
    model = keras.Model(value, HoistedRNN(keras.layers.GRUCell(5))(value))
    model(pair(rng, 2, 1)[0])
    with pytest.raises(ValueError, match="HoistedRNN expected a known number of steps"):
        model.export(str(tmp_path / "open.onnx"), format="onnx", verbose=False)


def test_a_pointer_generator_is_exported_for_every_length(rng, tmp_path):
    shapes = (None, 7), (None, 5), (None, None), (None,)
    symbols = [keras.Input(s, dtype="int32" if len(s) == 1 else "float32") for s in shapes]
    model = keras.Model(symbols, PointerGenerator()(*symbols))

    def inputs(batch, steps, places):
        features, logits = (rng.normal(size=(batch, steps, n)).astype("float32") for n in (7, 5))
        weights = rng.dirichlet(np.ones(places), size=(batch, steps)).astype("float32")
        ids = rng.integers(0, 5 + places, size=(batch, places)).astype("int32")
        return [features, logits, weights, ids]

    run = exported(model, inputs(2, 3, 5), tmp_path / "model.onnx")
    for sizes in ((3, 5, 7), (1, 1, 2)):
        agrees(run, model, inputs(*sizes))


def test_a_search_takes_all_steps_whatever_the_traced_input_took(rng, tmp_path):
    import onnxruntime
    import torch

    size, end = 7, 2

    class Search(torch.nn.Module):
        def __init__(self, limited):
            super().__init__()
            self.limited = limited

        def forward(self, start):
            table = torch.log_softmax(torch.arange(size * size).reshape(size, size) % 5 * 0.7, -1)
            return greedy_search(
                lambda tokens, state: (table[tokens.long()], None, state),
                (),
                batch_size=start.shape[0],
                start_id=start,
                end_id=end,
                max_length=start * 0 + 5 if self.limited else 7,
                return_attention_weights=False,
            ).ids

    starts = [torch.tensor([n], dtype=torch.int32) for n in range(size)]
    expected = [Search(False)(start).numpy() for start in starts]
    counts = [ids.shape[1] for ids in expected]
    assert min(counts) < max(counts)
    path = str(tmp_path / "search.onnx")
    first = starts[int(np.argmin(counts))]
    torch.onnx.export(Search(False), (first,), path, input_names=["start"], dynamo=False)
    session = onnxruntime.InferenceSession(path)
    for start, ids in zip(starts, expected, strict=True):
        result = session.run(None, {"start": start.numpy()})[0]
        assert result.shape == (1, 7)
        np.testing.assert_array_equal(result[:, : ids.shape[1]], ids)
        assert not result[:, ids.shape[1] :].any()
    with pytest.raises(ValueError, match="takes max_length steps, and expected a number"):
        torch.onnx.export(Search(True), (first,), path, input_names=["start"], dynamo=False)
