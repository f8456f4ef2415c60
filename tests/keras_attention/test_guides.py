"""The blocks of the guides run as they stand, and do what they say."""

import re
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AdditiveAttention, AttentionPooling, backend
from tests.keras_attention.padding import assert_padding_changes_nothing

# How many models read sequences that may be padded.
WITH_PADDING = {
    "own-model.md": 8,
    "../questions.md": 2,
    "from-addons.md": 1,
    "from-multihead.md": 1,
}
GUIDES = Path(__file__).parents[2] / "docs" / "guides"
BACKEND = keras.backend.backend()


def learns(test):
    """Mark a test of models that learn for minutes; other backends take a few steps alone."""
    return pytest.mark.slow(pytest.mark.tensorflow(test))


def run(guide):
    """Run all blocks of a guide; return what is there after each. Padding must change nothing."""
    found, names, models = [], {}, {}
    text = (GUIDES / guide).read_text(encoding="utf-8")
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        names = {} if re.match("import (keras|numpy)", block) else dict(names)
        exec(compile(block, guide, "exec"), names)
        found.append(names)
        models |= {id(x): x for x in names.values() if isinstance(x, keras.Model)}
    checked = assert_padding_changes_nothing(models)
    assert checked >= WITH_PADDING.get(guide, 0), f"{checked} models of {guide}"
    return found


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    fit = keras.Model.fit

    def fit_briefly(model, *arguments, **options):
        return fit(model, *arguments, **options | {"epochs": 1, "steps_per_epoch": 3})

    with pytest.MonkeyPatch.context() as patch:
        if BACKEND != "tensorflow":
            patch.setattr(keras.Model, "fit", fit_briefly)
        patch.chdir(tmp_path_factory.mktemp("own-model"))
        return run("own-model.md")


@learns
def test_the_decoder_learns_and_writes_what_it_has_not_lost_by_saving(names):
    loaded = names[1]
    assert loaded["right"] > 0.9
    answer, text = loaded["answers"][0].split(), loaded["english"][0].split()
    first = loaded["weights"][: len(answer), : len(text)].argmax(axis=1)
    assert (first == np.arange(len(text))[::-1]).mean() > 0.5  # the last is said first
    inputs = [loaded["sources"][:7], loaded["targets"][:7, :-1]]
    forced = names[0]["looking"].predict(inputs, verbose=0)
    np.testing.assert_allclose(
        forced[0, : len(answer)], loaded["weights"][: len(answer)], atol=1e-3
    )


@learns
def test_a_saved_model_takes_strings_and_gives_strings(names):
    assert list(names[2]["spoken"]) == [b"trois deux un", b"huit neuf"]
    texts = names[2]["english"][:5]
    spoken = names[2]["loaded"].serve(names[2]["tf"].constant(texts))["translation"].numpy()
    assert [text.decode() for text in spoken] == names[2]["answers"][:5]


@learns
def test_the_classifier_learns_and_its_weights_leave_out_the_padding(names):
    texts, found = names[3]["texts"], names[3]["found"]
    assert names[3]["accuracy"] > 0.9
    assert not found[texts == 0].any()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-4)
    with_it = (texts == 7).sum(axis=1) == 1
    assert (texts[with_it, found[with_it].argmax(axis=1)] == 7).mean() > 0.9


@pytest.mark.slow
def test_padded_sentences_have_no_weight_in_a_document(names):
    short = names[4]["reader"].predict(names[4]["short"], verbose=0)
    np.testing.assert_allclose(names[4]["label"], short[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(names[4]["seen"], np.pad(short[1], [[0, 0], [0, 1]]), atol=1e-5)


@learns
def test_the_forecast_goes_on_from_itself(names):
    series, forecast = names[6]["series"], names[6]["forecast"]
    variance = series[:, 24:].var()
    assert names[5]["loss"] < 0.2 * variance
    assert forecast.shape == (5, 6, 1)
    shown = names[6]["forecaster"].predict([series[:5, :24], series[:5, 23:29]], verbose=0)
    np.testing.assert_allclose(forecast[:, 0], shown[:, 0], rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_the_reader_weighs_the_cells_of_a_grid(names):
    assert names[7]["logits"].shape == (2, 3, 12)
    np.testing.assert_allclose(names[7]["where"].sum(axis=(2, 3)), 1, rtol=1e-4)


@learns
def test_the_loop_of_ones_own_trains(names):
    losses = names[8]["losses"]
    assert len(losses) == 8
    assert losses[-1] < 0.5 * losses[0]


@learns
def test_the_decoder_of_addons_writes_numbers_backwards_and_takes_old_weights():
    names = run("from-addons.md")
    assert np.mean(names[3]["right"]) > 0.5
    first = names[3]["looked"][:, 0].argmax(-1)
    lengths = (names[3]["test_source"] != 0).sum(-1)
    assert (first == lengths - 1).mean() > 0.5  # what is written first was read last
    padded = names[3]["search"](np.pad(names[3]["test_source"], [[0, 0], [0, 2]]))
    assert (ops.convert_to_numpy(padded.ids)[:, 0] == names[3]["ids"]).all()
    arrays, old = names[4]["arrays"], names[4]["old"]
    kernel = arrays["_attention_mechanisms/0/memory_layer/kernel"]
    found = [ops.convert_to_numpy(weight) for weight in old.weights]
    assert any(
        weight.shape == kernel.shape and np.allclose(weight, kernel.T, atol=1e-6)
        for weight in found
    )


def test_the_answers_to_questions_are_right():
    ragged, sequential, tagger, monotonic, finished, two, halves, prefix, memories, copies = run(
        "../questions.md"
    )
    assert not np.isin(ops.convert_to_numpy(prefix["going_on"].ids)[:, :, 0], [0, 7]).any()
    assert [one.shape[-1] for one in memories["two_memories"].outputs] == [16, 24]
    np.testing.assert_allclose(*map(ops.convert_to_numpy, copies["answers"]), rtol=1e-5)
    assert "int8" in str(copies["copy"].layers[1].kernel.dtype)
    assert "float32" in str(copies["copy"].layers[-1].kernel.dtype)
    weights = ops.convert_to_numpy(ragged["weights"])  # (2, 3, 4)
    np.testing.assert_allclose(weights.sum(-1), [[1, 1, 1], [1, 1, 0]], atol=1e-5)
    assert not weights[0, :, 2:].any()
    assert sequential["model"].output_shape == (None, 1)
    assert tagger["tagger"].output_shape == (None, None, 4)
    assert monotonic["place"][-1] > monotonic["place"][0] + 1
    assert monotonic["seen"].sum(-1).max() <= 1 + 1e-5
    states = np.random.default_rng(0).normal(size=(2, 5, 6)).astype("float32")
    inputs = [states, np.arange(5) < np.array([[5], [3]])]
    pooled, scores = finished["explained"].predict(inputs, verbose=0)
    np.testing.assert_allclose(
        pooled, finished["finished"].predict(inputs, verbose=0), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose((scores[..., None] * states).sum(1), pooled, rtol=1e-4, atol=1e-5)
    assert set(two["history"]) >= {"loss"}
    parts = (ops.convert_to_numpy(halves[name]) for name in ("first", "second"))
    together = ops.convert_to_numpy(halves["together"])
    np.testing.assert_allclose(np.concatenate([*parts], axis=1), together, rtol=1e-4, atol=1e-5)


def test_the_short_answers_to_questions_are_right():
    """What the page says without a block."""
    rows = np.random.default_rng(1).normal(size=(2, 5, 6)).astype("float32")
    mask = np.arange(5) < np.array([[5], [3]])
    one = AdditiveAttention(4)(rows, rows[:, :1], return_attention_scores=True)[1]
    np.testing.assert_array_equal(ops.convert_to_numpy(one), np.ones((2, 5, 1)))  # all are 1
    for row in (rows[:, 0, :, None], rows[:, 0, None]):  # a row of numbers
        places = AttentionPooling(4)(row, return_attention_scores=True)[1]
        assert places.shape == row.shape[:2]
    ids = np.array([[3, 4, 0], [5, 0, 0]])
    embedded = keras.layers.Embedding(9, 6, mask_zero=True)(ids)
    weights = AdditiveAttention(4)(embedded, embedded, return_attention_scores=True)[1]
    assert not ops.convert_to_numpy(weights)[1, :, 1:].any()  # mask_zero is honoured
    pooling = AttentionPooling(4)
    pooled = ops.convert_to_numpy(pooling(rows, mask=mask))  # and not the last step, of padding
    noisy = np.where(mask[..., None], rows, 7)
    np.testing.assert_allclose(ops.convert_to_numpy(pooling(noisy, mask=mask)), pooled, atol=1e-5)
    half = AdditiveAttention(4, dtype="mixed_bfloat16")(rows, rows)
    assert keras.backend.standardize_dtype(half.dtype) == "bfloat16"
    document = np.array([[[3, 4], [0, 0]]])
    assert np.any(document != 0, axis=-1).tolist() == [[True, False]]  # the mask of sentences
    with pytest.raises((TypeError, ValueError)):
        AdditiveAttention(ops.ones((2, 3)))  # tensors go into the call


WORDS = """padding|mask_zero|variable|ragged|2-D|hierarchical|strings|Bahdanau|Luong|many-to-one
tagger|query|all 1|AttentionWrapper|monotonic|pointer|coverage|mixed precision|heat map|guided
inference|beam search|scheduled sampling|stateful|Unknown layer|SavedModel|REST|ONNX|blank lines"""


@pytest.mark.parametrize("word", WORDS.replace("\n", "|").split("|"))
def test_the_words_of_questions_lead_to_a_heading_that_is_there(word):
    text = (GUIDES.parent / "questions.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("|") and word in line]
    assert rows
    anchors = {
        re.sub(r"[^a-z ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"## (.+)", text)
    }
    for row in rows:
        assert re.search(r"\(#([a-z-]+)\)", row)[1] in anchors


@pytest.mark.tensorflow
def test_the_layers_of_keras_give_the_same_after_the_move():
    names, further = run("from-multihead.md")
    before, after = (ops.convert_to_numpy(names[name]) for name in ("before", "after"))
    assert before.std() > 0.01
    np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)
    pairs = ops.convert_to_numpy(names["weights_before"]), ops.convert_to_numpy(names["weights"])
    np.testing.assert_allclose(*pairs, rtol=1e-4, atol=1e-5)
    assert [one.shape for one in further["model"].outputs] == [(None, None, 50), (None, None, None)]


@pytest.mark.tensorflow
def test_layers_of_pypi_give_the_same_after_the_move():
    for guide in ("from-keras-attention.md", "from-keras-self-attention.md"):
        (names,) = run(guide)
        moved = [name for name in names if name.startswith("before")]
        assert len(moved) > 1
        for name in moved:
            after = ops.convert_to_numpy(names[name.replace("before", "after")])
            assert after.std() > 0.01
            before = ops.convert_to_numpy(names[name])
            np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)


@pytest.mark.tensorflow
def test_the_decoder_of_opennmt_trains_and_searches():
    (names,) = run("from-opennmt.md")
    assert names["logits"].shape == (3, 4, 11)
    assert names["found"].ids.shape[:2] == (3, 1)
    assert (ops.convert_to_numpy(names["found"].lengths) <= 9).all()


def test_the_ideas_behind_the_speed_change_no_result(monkeypatch):
    results, additive = [], backend.additive
    monkeypatch.setattr(backend, "additive", lambda *x: results.append(additive(*x)) or results[-1])
    first, second, third = run("fast.md")  # each compares by itself
    assert first["plain"].shape == (5, 3)
    assert second["fast"].shape == (8, 48, 48)
    assert results[0] is not None  # the fast form; the plain one does not ask for it
    assert third["at_once"].shape == (2, 5, 12)
