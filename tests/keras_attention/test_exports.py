"""Models exported to ONNX, LiteRT or from JAX say what they say here, at lengths not traced."""

from pathlib import Path

import keras
import numpy as np
import pytest

import keras_attention as ka
from tests.keras_attention import pages, zoo
from tests.keras_attention.helpers import array, assert_close, normal

# Exporters warn of one another, and of parts of themselves.
pytestmark = pytest.mark.filterwarnings("ignore")
BACKEND = keras.backend.backend()
from_tensorflow, from_jax, from_torch = (
    pytest.mark.skipif(name != BACKEND, reason=f"exports from {name}")
    for name in ("tensorflow", "jax", "torch")
)


def opened(path):
    """A function from inputs to what ONNX Runtime says of a file."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    names = [x.name for x in session.get_inputs()]
    return lambda inputs: session.run(None, dict(zip(names, inputs, strict=True)))


def exported(model, inputs, path):
    """A function from inputs to what ONNX Runtime says of the model."""
    model(inputs if len(inputs) > 1 else inputs[0])
    model.export(str(path), format="onnx", verbose=False)
    return opened(path)


def agrees(run, model, inputs, atol=3e-6):
    expected = keras.tree.flatten(array(model(inputs if len(inputs) > 1 else inputs[0])))
    for n, (ours, wanted) in enumerate(zip(run(inputs), expected, strict=True)):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=atol, err_msg=f"output {n}")


def widths(name):
    return [6] if name == "positions" else [shape[-1] for shape in zoo.shapes(name)]


def model_of(name, *lengths):
    """A model of the layer's first output, for inputs of these lengths, None if unknown."""
    if name == "pointer":
        shapes = (None, 7), (None, 5), (None, None), (None,)
        inputs = [keras.Input(s, dtype="int32" if len(s) == 1 else "float32") for s in shapes]
        return keras.Model(inputs, ka.PointerGenerator()(*inputs))
    sizes = enumerate(zip(lengths, widths(name), strict=False))
    inputs = [keras.Input(size, name=f"{name}_{n}".replace(" ", "_")) for n, size in sizes]
    if name == "positions":
        return keras.Model(inputs, ka.SinePositionEncoding()(*inputs))
    return keras.Model(inputs, zoo.call(name, zoo.LAYERS[name](), inputs)[0])


def arrays(rng, name, batch, *lengths):
    if name == "pointer":
        steps, places = lengths
        weights = rng.dirichlet(np.ones(places), size=(batch, steps)).astype("float32")
        ids = rng.integers(0, 5 + places, size=(batch, places)).astype("int32")
        return [normal(rng, batch, steps, 7), normal(rng, batch, steps, 5), weights, ids]
    return [normal(rng, batch, *size) for size in zip(lengths, widths(name), strict=False)]


TAKING_STEPS = ("coverage", "location_sensitive", "monotonic", "chunkwise")
TAKING_STEPS += ("rnn luong", "rnn heads", "hoisted")


@from_torch
@pytest.mark.parametrize(
    "name",
    ["additive", "general entmax", "location", "local_p", "pooling", "pointer", *TAKING_STEPS],
)
def test_every_length_is_exported_but_what_goes_step_by_step_needs_known_steps(rng, tmp_path, name):
    steps, model = None, model_of(name, None, None)
    if name in TAKING_STEPS:
        model(arrays(rng, name, 3, 2, 3))
        told = r"expected a known number of steps .* Received: an unkn"
        with pytest.raises(ValueError, match=told):
            model.export(str(tmp_path / "open.onnx"), format="onnx", verbose=False)
        steps, model = 3, model_of(name, 3, None)
    run = exported(model, arrays(rng, name, 3, steps or 2, 3), tmp_path / "model.onnx")
    for batch, count, length in ((3, 5, 3), (2, 1, 7), (3, 2, 1)):
        sizes = (3, steps) if steps else (batch, count)
        agrees(run, model, arrays(rng, name, *sizes, length))


@from_torch
def test_a_search_takes_all_steps_whatever_the_traced_input_took(rng, tmp_path):
    import torch

    size, end = 7, 2

    class Search(torch.nn.Module):
        def __init__(self, limited):
            super().__init__()
            self.limited = limited

        def forward(self, start):
            table = torch.log_softmax(torch.arange(size * size).reshape(size, size) % 5 * 0.7, -1)
            return ka.greedy_search(
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
    run = opened(path)
    for start, ids in zip(starts, expected, strict=True):
        (result,) = run([start.numpy()])
        assert result.shape == (1, 7)
        np.testing.assert_array_equal(result[:, : ids.shape[1]], ids)
        assert not result[:, ids.shape[1] :].any()
    with pytest.raises(ValueError, match="takes max_length steps, and expected a number"):
        torch.onnx.export(Search(True), (first,), path, input_names=["start"], dynamo=False)


@pytest.mark.slow
@from_tensorflow
def test_a_float32_copy_of_a_mixed_bfloat16_model_is_exported(rng, tmp_path, set_policy):
    """The block of the guide: ONNX Runtime rejects the model that was trained."""
    page = Path(__file__).parents[2] / "docs/guides/layers.md"
    (block,) = [x for x in pages.blocks(page) if "mixed_bfloat16" in x]
    names = pages.run(block, page.name)
    inputs = [normal(rng, 2, 3, 5), normal(rng, 2, 7, 6)]
    run = exported(names["twin"], inputs, tmp_path / "twin.onnx")
    agrees(run, names["twin"], inputs)
    assert_close(run(inputs)[0], array(names["trained"](inputs)), 0.1)


@pytest.mark.slow
@from_tensorflow
def test_layers_are_exported_from_tensorflow_for_every_length_and_mask(rng, tmp_path):
    """One model of all layers: the exporter takes its seconds once."""
    pytest.importorskip("tf2onnx", reason="pip install tf2onnx, which the extra dev has")
    steps, places = keras.Input((None,), dtype="bool"), keras.Input((None,), dtype="bool")
    symbols, outputs = [steps, places], []
    for name in zoo.LAYERS:
        inputs = [keras.Input((None,) * (len(x) - 1) + x[-1:]) for x in zoo.shapes(name)]
        masks = zip(zoo.masks(name), [places] if len(inputs) == 1 else [steps, places], strict=True)
        outputs += zoo.call(name, zoo.LAYERS[name](), inputs, **{key: x for key, x in masks if key})
        symbols += inputs
    sequence = keras.Input((None, 6))
    weights = keras.ops.softmax(sequence @ keras.ops.swapaxes(sequence, 1, 2))
    ids = keras.Input((None,), dtype="int32")
    outputs.append(ka.SinePositionEncoding()(sequence, mask=places))
    outputs.append(ka.PointerGenerator()(sequence, 2 * sequence, weights, ids))
    model = keras.Model([*symbols, sequence, ids], outputs)

    def inputs_of(batch, count, length):
        allowed = [np.arange(n) < rng.integers(1, n + 1, (batch, 1)) for n in (count, length)]
        allowed[1][0] = False  # nothing to attend to
        sizes = {zoo.TQ: count, zoo.TV: length}
        forms = [shape for name in zoo.LAYERS for shape in zoo.shapes(name)]
        drawn = [normal(rng, batch, *(sizes[n] for n in x[:-1]), x[-1]) for x in forms]
        ids = rng.integers(0, 6 + length, (batch, length), "int32")
        return [*allowed, *drawn, normal(rng, batch, length, 6), ids]

    run = exported(model, inputs_of(2, 3, 5), tmp_path / "model.onnx")
    for sizes in ((2, 3, 5), (3, 1, 7), (1, 4, 2)):
        agrees(run, model, inputs_of(*sizes), 1e-6)


def listener():
    """Listen, Attend and Spell: a pyramid, then a decoder that feeds back its context."""
    states, said = keras.Input((None, 6), name="sound"), keras.Input((None, 5), name="said")
    sound = states
    for _ in range(2):
        states = keras.layers.Reshape((-1, 2 * states.shape[-1]))(states)
        layer = keras.layers.LSTM(4, return_sequences=True)
        states = keras.layers.Bidirectional(layer)(states)
    cell, attention = keras.layers.LSTMCell(7), ka.MultiplicativeAttention("general")
    decoder = ka.AttentionRNN(cell, attention, order="luong", input_feeding=True)
    return keras.Model([sound, said], decoder(said, states))


def block(page, word):
    """The names of the first block of a page that has this word."""
    page = Path(__file__).parents[2] / "docs" / page
    return pages.run(next(x for x in pages.blocks(page) if word in x), page)


def hierarchy(sentences=2, words=5):
    """Hierarchical attention, as the guide to exports has it for ONNX."""
    names = block("guides/recipes.md", "TimeDistributed")
    document = keras.Input((sentences, words), dtype="int32")
    flat = keras.ops.reshape(document, (-1, words))
    vectors = keras.ops.reshape(names["sentence"](flat), (-1, sentences, 8))
    some = keras.ops.any(document != 0, axis=-1)
    summary = ka.AttentionPooling(8)(vectors, mask=some)
    return keras.Model(document, keras.layers.Dense(2)(summary))


@pytest.mark.slow
@from_tensorflow
@pytest.mark.parametrize("name", ["LAS", "Tacotron 2", "HAN"])
def test_models_of_papers_are_exported_for_every_length(name, rng, tmp_path):
    pytest.importorskip("tf2onnx", reason="pip install tf2onnx, which the extra dev has")
    model = {
        "LAS": listener,
        "Tacotron 2": lambda: block("papers.md", "tacotron =")["tacotron"],
        "HAN": hierarchy,
    }[name]()

    def inputs_of(batch, count, length):
        if name == "HAN":
            words = rng.integers(1, 20, (batch, 2, 5)).astype("int32")
            words[0, :, 1:] = words[-1, 1] = 0
            return [words]
        sizes = (4 * length, count) if name == "LAS" else (length, count)
        pairs = zip(sizes, model.inputs, strict=True)
        return [normal(rng, batch, size, x.shape[-1]) for size, x in pairs]

    run = exported(model, inputs_of(2, 3, 5), tmp_path / "model.onnx")
    for sizes in ((2, 3, 5), (3, 1, 7), (1, 4, 2)):
        agrees(run, model, inputs_of(*sizes), 1e-5)


# LiteRT, by its own operations alone.


def converted(model, path):
    """A function from inputs to the answer of LiteRT without TensorFlow's operations."""
    import tensorflow as tf

    builtin = {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]}
    with ka.fast_paths(False):
        model.export(str(path), format="litert", verbose=False, target_spec=builtin)
    run = tf.lite.Interpreter(str(path)).get_signature_runner()
    names = [x.name for x in model.inputs]
    return lambda inputs: [*run(**dict(zip(names, inputs, strict=True))).values()]


AT_ONCE = ("additive", "normalized_additive", "general", "general entmax", "location", "local_m")
AT_ONCE += ("local_p", "pooling", "positions")


@pytest.mark.slow
@from_tensorflow
def test_what_attends_to_all_at_once_runs_in_litert_at_every_length(rng, tmp_path):
    models = [model_of(name, None, None) for name in AT_ONCE]
    model = keras.Model([x for one in models for x in one.inputs], [x.output for x in models])
    run = converted(model, tmp_path / "model.tflite")
    for sizes in ((3, 2, 5), (2, 5, 7), (1, 1, 2), (2, 3, 1)):
        agrees(run, model, [x for name in AT_ONCE for x in arrays(rng, name, *sizes)])


@from_jax
@pytest.mark.parametrize("name", zoo.thinned(n for n in zoo.LAYERS if n != "hoisted"))
def test_sizes_may_be_unknown_when_jax_exports(rng, name):
    import jax
    from jax import export

    layer, shapes = zoo.built(name), zoo.shapes(name)
    batch, *lengths = export.symbolic_shape("b, t, s")
    free = [(batch, *lengths[n : n + len(x) - 1], x[-1]) for n, x in enumerate(shapes)]
    found = export.export(jax.jit(lambda *inputs: zoo.call(name, layer, inputs)))(
        *[jax.ShapeDtypeStruct(shape, "float32") for shape in free]
    )
    inputs = [x[:, :2] if x.ndim == 3 else x for x in zoo.arrays(name, rng, 3)]
    assert_close(list(found.call(*inputs)), array(zoo.call(name, layer, inputs)))
