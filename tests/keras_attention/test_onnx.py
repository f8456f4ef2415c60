"""Models exported to ONNX say in ONNX Runtime what they say here."""

import keras
import numpy as np
import pytest

from keras_attention import PointerGenerator, SinePositionEncoding, greedy_search
from tests.keras_attention import zoo

# Exporters warn of one another, and of parts of themselves.
pytestmark = pytest.mark.filterwarnings("ignore")
BACKEND = keras.backend.backend()
from_torch = pytest.mark.skipif(BACKEND != "torch", reason="exports from PyTorch")


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
AT_ONCE = ("additive", "general entmax", "location", "local_p")
IN_TURN = ("coverage", "location_sensitive", "monotonic", "chunkwise", "rnn luong", "rnn heads")


def pair(rng, name, steps, length, batch=3):
    lengths = zip((steps, length), zoo.widths(name), strict=True)
    return [rng.normal(size=(batch, *size)).astype("float32") for size in lengths]


def attending(name, steps):
    query, memory = zoo.widths(name)
    inputs = [keras.Input((steps, query)), keras.Input((None, memory))]
    return keras.Model(inputs, zoo.call(name, zoo.LAYERS[name](), inputs)[0])


@from_torch
@pytest.mark.parametrize("name", AT_ONCE)
def test_attention_to_all_at_once_is_exported_for_every_length(rng, tmp_path, name):
    model = attending(name, None)
    run = exported(model, pair(rng, name, 2, 3), tmp_path / "model.onnx")
    for sizes in ((5, 3), (1, 7), (2, 1)):
        agrees(run, model, pair(rng, name, *sizes))


@from_torch
@pytest.mark.parametrize("name", IN_TURN)
def test_what_goes_step_by_step_needs_known_steps_and_takes_every_memory(rng, tmp_path, name):
    model = attending(name, None)
    model(pair(rng, name, 2, 3))
    with pytest.raises(ValueError, match=r"expected a known number of steps .* Received: an unkn"):
        model.export(str(tmp_path / "open.onnx"), format="onnx", verbose=False)
    for steps in (1, 3):
        model = attending(name, steps)
        run = exported(model, pair(rng, name, steps, 3), tmp_path / f"{steps}.onnx")
        for length in (1, 5, 13):
            agrees(run, model, pair(rng, name, steps, length))


@from_torch
@pytest.mark.parametrize("name", ["pooling", "hoisted"])
def test_layers_of_one_sequence_are_exported_for_every_length_or_refused(rng, tmp_path, name):
    _, width = zoo.widths(name)
    value = keras.Input((None, width))
    model = keras.Model(value, zoo.LAYERS[name]()(value))
    first, other = (rng.normal(size=(2, n, width)).astype("float32") for n in (2, 5))
    model(first)
    if name == "pooling":
        agrees(exported(model, [first], tmp_path / "model.onnx"), model, [other])
        return
    with pytest.raises(ValueError, match="HoistedRNN expected a known number of steps"):
        model.export(str(tmp_path / "open.onnx"), format="onnx", verbose=False)


@from_torch
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


@from_torch
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


@pytest.mark.skipif(BACKEND != "tensorflow", reason="exports from TensorFlow")
@pytest.mark.parametrize(
    "chosen",
    [["additive", "rnn heads"], pytest.param([*zoo.LAYERS], marks=pytest.mark.slow)],
    ids=len,
)
def test_layers_are_exported_from_tensorflow_for_every_length_and_mask(rng, tmp_path, chosen):
    """One model of several layers: the exporter takes its seconds once."""
    pytest.importorskip("tf2onnx", reason="pip install tf2onnx, which the extra dev has")
    import onnxruntime

    steps, places = keras.Input((None,), dtype="bool"), keras.Input((None,), dtype="bool")
    symbols, outputs, names = [steps, places], [], []
    for name in chosen:
        inputs = [keras.Input((None,) * (len(x) - 1) + x[-1:]) for x in zoo.shapes(name)]
        masks = zip(zoo.masks(name), [places] if len(inputs) == 1 else [steps, places], strict=True)
        found = zoo.call(name, zoo.LAYERS[name](), inputs, **{key: x for key, x in masks if key})
        symbols, outputs = [*symbols, *inputs], [*outputs, *found]
        names += [name] * len(found)
    sequence = keras.Input((None, 6))
    weights = keras.ops.softmax(sequence @ keras.ops.swapaxes(sequence, 1, 2))
    ids = keras.Input((None,), dtype="int32")
    outputs += [
        SinePositionEncoding()(sequence, mask=places),
        PointerGenerator()(sequence, 2 * sequence, weights, ids),
    ]
    model = keras.Model([*symbols, sequence, ids], outputs)

    def inputs_of(batch, count, length):
        allowed = [np.arange(n) < rng.integers(1, n + 1, (batch, 1)) for n in (count, length)]
        allowed[1][0] = False  # nothing to attend to
        sizes = {zoo.TQ: count, zoo.TV: length}
        drawn = [
            rng.normal(size=(batch, *(sizes[n] for n in shape[:-1]), shape[-1])).astype("float32")
            for name in chosen
            for shape in zoo.shapes(name)
        ]
        last = rng.normal(size=(batch, length, 6)).astype("float32")
        return [*allowed, *drawn, last, rng.integers(0, 6 + length, (batch, length), "int32")]

    model(inputs_of(2, 3, 5))
    path = str(tmp_path / "model.onnx")
    model.export(path, format="onnx", verbose=False)
    session = onnxruntime.InferenceSession(path)
    for sizes in ((2, 3, 5), (3, 1, 7), (1, 4, 2)):
        inputs = inputs_of(*sizes)
        by_name = zip([x.name for x in session.get_inputs()], inputs, strict=True)
        found, expected = session.run(None, dict(by_name)), model(inputs)
        for name, ours, wanted in zip(
            [*names, "positions", "pointer"], found, expected, strict=True
        ):
            np.testing.assert_allclose(ours, wanted, atol=1e-6, err_msg=f"{name} {sizes}")
