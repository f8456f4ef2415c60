"""Graphs of all kinds of model against the Keras model that they are made of."""

import numpy as np
import pytest

from tests.serving.javascript import NODE
from tests.serving.onnx_models import (
    SOURCE,
    TARGET,
    Graphs,
    assert_same,
    assert_same_rows,
    expected,
    in_node,
    losing_model,
    random_ids,
    random_model,
)
from training.config._keys import ATTENTIONS

MODELS = {
    "gru, additive": "attention=additive",
    "lstm, general": "encoder=lstm decoder=lstm attention=general",
    "rnn, dot": "encoder=simple_rnn decoder=simple_rnn attention=dot decoder_units=10",
    "scaled dot of two heads": "attention=scaled_dot attention_heads=2 decoder_units=10",
    "additive of two heads": "attention=normalized_additive attention_heads=2",
    "bahdanau, deep, fed, gated": "order=bahdanau readout=maxout input_feeding=true gate=true",
    "luong, deep, fed": "readout=maxout input_feeding=true",
    "luong, fed": "input_feeding=true",
    "two layers, one way": "encoder_layers=2 decoder_layers=2 bidirectional=false decoder=lstm",
    "tied": "encoder=gru decoder=lstm tie_embeddings=true",
    "without attention": "attention=none order=bahdanau",
    "location": "attention=location",
    "local-m": "attention=local_m attention_options=half_width=2 order=bahdanau",
    "local-p of two heads": (
        "attention=local_p attention_options=half_width=2 attention_heads=2 decoder_units=10"
    ),
    "location-sensitive": (
        "attention=location_sensitive attention_options=filters=3,kernel_size=4"
    ),
    "coverage": "attention=coverage order=bahdanau",
    "monotonic": "attention=monotonic",
    "chunkwise": "attention=chunkwise attention_options=chunk_size=3,mode=hard",
    "monotonic of two heads": "attention=monotonic attention_heads=2",
    "chunkwise of two heads": (
        "attention=chunkwise attention_options=chunk_size=3 attention_heads=2 order=bahdanau"
    ),
    "hard monotonic": "attention=hard_monotonic decoder=lstm",
    "sparsemax": "distribution=sparsemax",
    "entmax": "distribution=entmax15 attention=general",
}


_TRIED = set(" ".join(MODELS.values()).split())
MODELS |= {x: f"attention={x}" for x in ATTENTIONS if f"attention={x}" not in _TRIED}


@pytest.mark.parametrize("name", MODELS)
def test_a_search_finds_what_the_model_finds(name, tmp_path):
    config, model = random_model(*MODELS[name].split())
    graphs = Graphs(config, model, tmp_path)
    ids = random_ids(3, 5)
    wanted = expected(model, ids, 3, 2, penalty=0.8)
    assert_same(graphs.search(ids, 3, 2, penalty=0.8), wanted)
    if NODE:
        assert_same_rows(in_node(graphs, ids, 3, 2, 0.8), wanted)


COPYING = (
    *("copy=true", "source_tokenizer=words", "target_tokenizer=words"),
    *("concat_pairs=0", "label_smoothing=0"),
)


def copying_model(*settings, seed=3):
    """A model that copies; some words of the source are in both vocabularies."""
    config, model = random_model(*COPYING, *settings, seed=seed)
    words = np.full(SOURCE, -1)
    words[4:SOURCE:3] = np.arange(TARGET - len(words[4:SOURCE:3]), TARGET)
    model.get_layer("source_words").words.assign(words)
    return config, model


def ids_to_copy(rows, length):
    """Ids, of which a half stand in their source alone: SOURCE and the first such place."""
    ids = random_ids(rows, length)
    for row in ids:
        for place in np.flatnonzero(row)[::2]:
            same = np.flatnonzero(row == row[place])
            row[place] = SOURCE + same[0] if place == same[0] else row[same[0]]
    return ids


@pytest.mark.parametrize("settings", [(), ("attention_heads=2", "attention=normalized_additive")])
def test_words_of_the_source_are_copied(settings, tmp_path):
    config, model = copying_model(*settings)
    graphs = Graphs(config, model, tmp_path)
    ids = ids_to_copy(5, 7)
    for width, results in ((1, 1), (3, 2)):
        wanted = expected(model, ids, width, results)
        assert_same(graphs.search(ids, width, results), wanted)
        assert (wanted[0] >= TARGET).any()


def test_an_ensemble_finds_what_its_models_find_together(tmp_path):
    config, model = random_model()
    other = random_model("encoder=lstm", "decoder=lstm", "attention=coverage", seed=5)
    graphs = Graphs(config, model, tmp_path, others=[other])
    ids = random_ids(5, 7)
    wanted = expected(model, ids, 3, 2, others=[other[1]])
    assert_same(graphs.search(ids, 3, 2), wanted)
    if NODE:
        assert_same_rows(in_node(graphs, ids, 3, 2), wanted)
    assert not np.allclose(wanted[2], expected(model, ids, 3, 2)[2], atol=1e-2)


@pytest.mark.parametrize(
    "settings", [[], ["encoder=lstm", "decoder=lstm", "attention=general", "readout=maxout"]]
)
def test_in_eight_bits_no_row_depends_on_the_others(settings, tmp_path):
    config, model = random_model(*settings)
    graphs = Graphs(config, model, tmp_path, bits=8)
    ids = random_ids(7, 6)
    together = graphs.search(ids, 3)
    close = expected(model, ids, 3)
    assert np.abs(together["scores"] - close[2]).mean() < 0.2
    if NODE:  # a last bit may turn a rounding
        names = ("found", "lengths", "scores", "weights", "log_probs")
        assert_same_rows(in_node(graphs, ids, 3, 1), [together[name] for name in names], 0.02)
    for number, row in enumerate(ids):
        alone = graphs.search(row[None], 3)
        time = alone["found"].shape[2]
        np.testing.assert_array_equal(alone["found"][0], together["found"][number, :, :time])
        np.testing.assert_array_equal(alone["scores"][0], together["scores"][number])


@pytest.mark.parametrize("bits", [32, 8])
def test_a_vocabulary_too_large_for_a_table_is_multiplied(bits, tmp_path, monkeypatch):
    config, model = random_model("readout=maxout", "input_feeding=true")
    found = []
    for most in (0, 2**25):
        monkeypatch.setattr("serving.portable.write._products.TABLE", most)
        (tmp_path / str(most)).mkdir()
        graphs = Graphs(config, model, tmp_path / str(most), bits)
        made = graphs.run("encoder", ids=random_ids(3, 5))
        before = {name: made[name] for name in graphs.about["memory"] + graphs.about["state"]}
        found.append(graphs.run("step", tokens=np.array([5, 6, 22]), **before)["log_probs"])
    steps = [(tmp_path / str(most) / "step.onnx").stat().st_size for most in (0, 2**25)]
    assert steps[0] != steps[1]
    np.testing.assert_allclose(*found, atol=1e-4 if bits == 32 else 0.3)


def test_what_has_ended_stays_among_the_results(tmp_path):
    config, model, ids = losing_model()
    graphs = Graphs(config, model, tmp_path)
    for results in (1, 3):
        assert_same(graphs.search(ids, 4, results), expected(model, ids, 4, results))
    if NODE:
        assert_same_rows(in_node(graphs, ids, 4, 3), expected(model, ids, 4, 3))
