"""The blocks of guides and docstrings run as they stand, and do what they say."""

import inspect
import os
import re
import textwrap
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_attention
from keras_attention import AdditiveAttention, AttentionPooling, AttentionRNN, backend
from tests.keras_attention import pages
from tests.keras_attention.helpers import array, assert_close, normal, randomize

# How many models read sequences that may be padded.
WITH_PADDING = {
    "own-model.md": 5,
    "recipes.md": 8,
    "../questions.md": 2,
    "from-addons.md": 1,
    "from-multihead.md": 1,
}
GUIDES = Path(__file__).parents[2] / "docs" / "guides"
# Models of guides learn for minutes; elsewhere they take a few steps.
WHOLE = keras.backend.backend() == "tensorflow" and "EVERY_GUIDE" in os.environ


def run(guide):
    """Run all blocks of a guide; return what is there after each. Padding must change nothing."""
    found, names, models = [], {}, {}
    for block in pages.blocks(GUIDES / guide):
        names = pages.run(block, guide, {} if re.match("import (keras|numpy)", block) else names)
        found.append(names)
        models |= {id(x): x for x in names.values() if isinstance(x, keras.Model)}
    checked = pages.assert_padding_changes_nothing(models)
    assert checked >= WITH_PADDING.get(guide, 0), f"{checked} models of {guide}"
    return found


def run_to_learn(guide, folder):
    """Run a guide whose models learn for minutes."""
    fit = keras.Model.fit

    def fit_briefly(model, *arguments, **options):
        return fit(model, *arguments, **options | {"epochs": 1, "steps_per_epoch": 3})

    with pytest.MonkeyPatch.context() as patch:
        if not WHOLE:
            patch.setattr(keras.Model, "fit", fit_briefly)
        patch.chdir(folder)
        return run(guide)


@pytest.mark.slow
def test_models_of_ones_own_learn(tmp_path):
    *_, loaded, saved = run_to_learn("own-model.md", tmp_path)
    if not WHOLE:
        return
    assert loaded["right"] > 0.9
    answer, text = loaded["answers"][0].split(), loaded["english"][0].split()
    first = loaded["weights"][: len(answer), : len(text)].argmax(axis=1)
    assert (first == np.arange(len(text))[::-1]).mean() > 0.5  # the last is said first
    assert list(saved["spoken"]) == [b"trois deux un", b"huit neuf"]


@pytest.mark.slow
def test_models_of_the_recipes_learn(tmp_path):
    classifier, documents, forecast, _, _, copier, search, loop = run_to_learn(
        "recipes.md", tmp_path
    )
    assert documents["seen"][0, 2] == 0
    if not WHOLE:
        return
    losses = loop["losses"]
    assert copier["copied"] > 0.9
    assert search["right"] > 0.9
    texts, found = classifier["texts"], classifier["found"]
    assert classifier["accuracy"] > 0.9
    with_it = (texts == 7).sum(axis=1) == 1
    assert (texts[with_it, found[with_it].argmax(axis=1)] == 7).mean() > 0.9
    assert forecast["loss"] < 0.2 * forecast["series"][:, 24:].var()
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_decoder_of_addons_writes_numbers_backwards_and_takes_old_weights(tmp_path):
    names = run_to_learn("from-addons.md", tmp_path)
    if WHOLE:
        assert np.mean(names[3]["right"]) > 0.5
        first = names[3]["looked"][:, 0].argmax(-1)
        lengths = (names[3]["test_source"] != 0).sum(-1)
        assert (first == lengths - 1).mean() > 0.5  # what is written first was read last
        padded = names[3]["search"](np.pad(names[3]["test_source"], [[0, 0], [0, 2]]))
        assert (array(padded.ids)[:, 0] == names[3]["ids"]).all()
    arrays, old = names[4]["arrays"], names[4]["old"]
    kernel = arrays["_attention_mechanisms/0/memory_layer/kernel"]
    found = [array(weight) for weight in old.weights]
    assert any(
        weight.shape == kernel.shape and np.allclose(weight, kernel.T, atol=1e-6)
        for weight in found
    )


@pytest.mark.slow
def test_monotonic_attention_of_the_questions_learns_to_go_on():
    """Of a decoder that copies six vectors, the mean position that a step attends to."""
    (block,) = (x for x in pages.blocks(GUIDES / "../questions.md") if "Monotonic" in x)
    memory = np.random.default_rng(1).normal(size=(64, 6, 5)).astype("float32")
    before = np.pad(memory, [[0, 0], [1, 0], [0, 0]])[:, :-1]
    source, shown = keras.Input((None, 5)), keras.Input((None, 5))
    vectors, weights = pages.run(block, "questions.md")["decoder"](shown, source)
    model = keras.Model([shown, source], keras.layers.Dense(5)(vectors))
    model.compile(keras.optimizers.Adam(0.02), "mse")
    model.fit([before, memory], memory, epochs=30, verbose=0)
    seen = keras.Model([shown, source], weights).predict([before, memory], verbose=0)
    places = (seen @ np.arange(6)).mean(0) / seen.sum(-1).mean(0)
    assert places[-1] > places[0] + 1


def pooled_model():
    states = keras.Input((None, 6))
    return keras.Model(states, AttentionPooling(4)(keras.layers.Dense(6)(states)))


def test_models_are_cloned_quantized_and_take_lora():
    model, inputs = pooled_model(), np.ones((2, 3, 6), "float32")
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    assert_close(copy(inputs), array(model(inputs)))
    model.layers[1].enable_lora(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        copy.quantize("int8")
    assert any("AttentionPooling does not" in str(each.message) for each in caught)
    assert_close(copy(inputs), array(model(inputs)), 0.05)


def test_the_answers_to_questions_are_right(rng):
    ragged, _, _, _, *others = run("../questions.md")
    finished, prefix, mass = others
    assert not np.isin(array(prefix["going_on"].ids)[:, :, 0], [0, 7]).any()
    masses, kept = array(mass["mass"]), array(mass["kept"])
    assert kept[:, 0].all()
    assert (np.where(kept[:, :-1], masses[:, :-1], 0).sum(-1) < 1).all()
    assert (np.diff(masses) <= 0).all()
    weights = array(ragged["weights"])  # (2, 3, 4)
    assert_close(weights.sum(-1), np.array([[1, 1, 1], [1, 1, 0]]))
    states = normal(rng, 2, 5, 6)
    inputs = [states, np.arange(5) < np.array([[5], [3]])]
    pooled, scores = finished["explained"].predict(inputs, verbose=0)
    assert_close(pooled, finished["finished"].predict(inputs, verbose=0), 1e-4)
    assert_close((scores[..., None] * states).sum(1), pooled, 1e-4)


@pytest.mark.tensorflow
def test_layers_give_the_same_after_the_move():
    """What a guide names `before…` is what it names `after…`."""
    multihead, further = run("from-multihead.md")
    assert [x.shape for x in further["model"].outputs] == [(None, None, 50), (None, None, None)]
    assert_close(array(multihead["weights"]), array(multihead["weights_before"]), 1e-4)
    guides = run("from-keras-attention.md")
    for names in (multihead, *guides):
        moved = [name for name in names if name.startswith("before")]
        assert len(moved) >= (1 if names is multihead else 2)
        for name in moved:
            after = array(names[name.replace("before", "after")])
            assert after.std() > 0.01
            assert_close(after, array(names[name]), 1e-4)


@pytest.mark.tensorflow
def test_scheduled_sampling_of_the_migration_page_goes_from_forced_to_own_tokens():
    *_, names = run("../migration.md")
    forced, stepped = array(names["forced"]), array(names["scheduled"](0.0))
    np.testing.assert_allclose(stepped, forced, rtol=1e-5, atol=1e-5)
    # Each further token read is the one that was written before.
    own = array(names["scheduled"](1.0))
    read = np.concatenate([names["target"][:, :1], np.argmax(own, axis=-1)[:, :-1]], axis=1)
    again = names["decoder"](names["embedding"](read), names["encoded"], memory_mask=names["mask"])
    np.testing.assert_allclose(own, array(names["output"](again)), rtol=1e-5, atol=1e-5)


def test_every_name_of_the_tables_of_migration_exists():
    page = (GUIDES.parent / "migration.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `") and "|" in line]
    assert len(rows) > 20
    new = " ".join(row.split(" | ")[1] for row in rows)
    names = re.findall(r"\b([A-Z]\w+Attention|\w+_search|AttentionRNN|\w+Pooling)\b", new)
    assert set(names) <= PUBLIC.keys()


def test_the_ideas_behind_the_speed_change_no_result(monkeypatch):
    calls = []
    monkeypatch.setattr(backend, "additive", lambda *arguments: calls.append(arguments))
    first, second = run("fast.md")  # it compares by itself
    assert (first["context"].shape, second["at_once"].shape) == ((2, 3, 6), (2, 5, 12))
    assert calls  # outside `fast_paths(False)`


def models_that_attend(rng):
    """Three kinds of models by the name of the layer that attends, with inputs and its mask."""
    words, target = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    states = keras.layers.Embedding(9, 6)(words)
    shown = keras.layers.Embedding(9, 5)(target)
    source = np.array([[3, 1, 4, 0, 0], [1, 5, 2, 6, 0]], "int32")
    read = np.array([[2, 6, 3], [5, 3, 0]], "int32")
    pooled = AttentionPooling(4, name="pooling")(states, mask=words != 0)
    yield "pooling", keras.Model(words, keras.layers.Dense(2)(pooled)), [source], None
    context = AdditiveAttention(4, name="mechanism")(
        states, states, query_mask=words != 0, value_mask=words != 0
    )
    yield "mechanism", keras.Model(words, context), [source], source
    cell = keras.layers.LSTMCell(7)
    decoder = AttentionRNN(cell, AdditiveAttention(4), return_state=True, name="decoder")
    # The mask of the memory is made of the words, not of the memory.
    outputs, state = decoder(shown, states, memory_mask=words != 0, inputs_mask=target != 0)
    last = keras.layers.Concatenate()(state.cell)
    yield "decoder", keras.Model([words, target], [outputs, last]), [source, read], read


def test_the_weights_of_a_finished_model_are_those_that_it_computes_with(rng):
    for block in pages.blocks(GUIDES / "../questions.md"):
        if "def explain" in block:
            explain = pages.run(block, "questions.md")["explain"]
    for name, model, inputs, rows in models_that_attend(rng):
        randomize(model, rng)
        given = inputs if len(inputs) > 1 else inputs[0]
        *found, weights = array(explain(model, name)(given))
        assert_close(found, keras.tree.flatten(array(model(given))))
        assert not np.moveaxis(weights, -1, 1)[inputs[0] == 0].any()
        sums = weights.sum(-1)
        assert_close(sums, np.ones_like(sums) if rows is None else (rows != 0).astype("float32"))


# Docstrings: the examples of public names run, and have the shapes of their comments.

PUBLIC = {name: getattr(keras_attention, name) for name in keras_attention.__all__}
LAYERS = {n for n, t in PUBLIC.items() if inspect.isclass(t) and issubclass(t, keras.Layer)}
# They are called as `Attention`, whose example is theirs.
LAYERS -= {"AdditiveAttention", "MultiplicativeAttention", "LocationAttention"}
LAYERS -= {"LocationSensitiveAttention"}


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", [*sorted(LAYERS), "beam_search", "plot_attention"])
def test_a_docstrings_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = re.search(r"Example:\n\s*```python\n(.*?)```", inspect.getdoc(PUBLIC[name]), re.DOTALL)
    assert found, f"{name} has no example"
    code = textwrap.dedent(found[1])
    names = pages.run(code, f"the example of {name}", {"keras": keras, **PUBLIC})
    for line in code.splitlines():  # such as `a, b = …  # (2, 3), (4,)`
        made, _, said = line.partition("  # (")
        targets = [target.strip() for target in made.partition(" = ")[0].split(", ")]
        shapes = re.findall(r"\(([\d, ]+)\)", "(" + said) if said else []
        for target, shape in zip(targets, shapes, strict=False):
            expected = tuple(int(size) for size in shape.split(",") if size.strip())
            assert tuple(names[target].shape) == expected, line
