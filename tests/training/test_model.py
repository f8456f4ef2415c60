"""Models and their searches, and both as XLA compiles them for a GPU."""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from training.command.errors import ConfigError
from training.config.schema import Config, load_preset, override
from training.data.tokens.store import END_ID, START_ID
from training.decode.search import force_decode, search
from training.decode.settings import SearchSettings
from training.decode.texts import make_nbest
from training.fit._optimizer import TokenCrossentropy, compile_model, configure_keras
from training.model.seq2seq import build_model, build_seq2seq

SOURCE_VOCAB, TARGET_VOCAB = 17, 19


def build(seed=0, **changes):
    keras.utils.set_random_seed(seed)
    sizes = {"encoder_units": 5, "decoder_units": 10}  # dot scores need equal widths
    sizes |= {"embedding_size": 7, "readout_units": 7, "attention_units": 11, "dropout": 0.3}
    config = Config(**{**sizes, **changes})
    model = build_seq2seq(config, SOURCE_VOCAB, TARGET_VOCAB)
    for weight in model.trainable_weights:  # far from the start, where all outputs are alike
        weight.assign(keras.random.normal(weight.shape, stddev=0.6))
    return model


def ids(rng, batch, length, vocabulary):
    return rng.integers(4, vocabulary, (batch, length)).astype("int32")


VARIANTS = [
    # Every mechanism goes through a search in tests/serving/portable/write/test_onnx_graphs.py.
    *({"attention": attention} for attention in ("none", "local_p", "location_sensitive")),
    {"encoder": "lstm", "decoder": "lstm", "encoder_layers": 2, "decoder_layers": 2},
    {"encoder": "simple_rnn", "decoder": "simple_rnn", "bidirectional": False},
    {"attention": "general", "order": "luong", "input_feeding": True, "tie_embeddings": True},
    {"readout": "maxout", "order": "luong", "input_feeding": True},
    {"attention": "general", "attention_heads": 2, "distribution": "sparsemax"},
    {"attention": "coverage", "coverage_loss": 0.5},
    {"attention": "hard_monotonic", "order": "luong", "decoder": "lstm"},
]


@pytest.mark.parametrize(
    "variant", VARIANTS, ids=lambda variant: "-".join(map(str, variant.values()))
)
def test_search_says_what_the_training_model_finds_most_probable(variant):
    """The model over whole sequences and the search step by step are one computation."""
    model = build(**variant)
    rng = np.random.default_rng(3)
    source = ids(rng, 3, 6, SOURCE_VOCAB)
    source[1, 4:] = 0
    options = {"max_length": 9, "return_attention_weights": True}
    found = search([model], source, SearchSettings(beam_width=1), **options)
    said, lengths = np.array(found.ids)[:, 0], np.array(found.lengths)[:, 0]
    target = np.concatenate([np.full((3, 1), START_ID), said[:, :-1]], axis=1).astype("int32")
    logits = np.array(model({"source": source, "target": target}, training=False))
    assert logits.shape == (3, said.shape[1], TARGET_VOCAB)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    there = np.arange(said.shape[1]) < lengths[:, None]
    np.testing.assert_array_equal(said[there], logits.argmax(-1)[there])
    assert not (said[there & (np.arange(said.shape[1]) < lengths[:, None] - 1)] == END_ID).any()
    total = np.where(there, log_probs.max(-1), 0).sum(-1)
    assert_allclose(np.array(found.scores)[:, 0], total / ((5 + lengths) / 6), rtol=1e-4, atol=1e-5)
    if variant.get("attention") == "none":
        assert found.attention_weights.shape[-1] == 1  # the decoder sees one vector
    else:
        forced = np.array(force_decode([model], source, target))
        for b in range(3):
            weights = np.array(found.attention_weights)[b, 0, : lengths[b]]
            assert_allclose(weights, forced[b, : lengths[b]], atol=1e-5)
            # A mechanism that moves forward may pass the end, and a window's edges count less.
            if variant.get("attention") in ("local_p", "monotonic", "chunkwise"):
                assert (weights.sum(-1) < 1 + 1e-5).all()
            else:
                assert_allclose(weights.sum(-1), 1, atol=1e-5)
        assert not np.array(found.attention_weights)[1, 0, :, 4:].any()


FEEDING = {"order": "luong", "input_feeding": True}


@pytest.mark.parametrize("variant", [FEEDING, {"coverage_loss": 0.5}, VARIANTS[-1]], ids=str)
def test_an_empty_row_changes_neither_loss_nor_gradient(variant):
    model = build(**variant, dropout=0.0)
    rng, results = np.random.default_rng(3), []
    source, labels = ids(rng, 3, 6, SOURCE_VOCAB), ids(rng, 3, 5, TARGET_VOCAB)
    for empty in (0, 2):
        source, labels = (np.pad(x, ((0, empty), (0, 0))) for x in (source, labels))
        target = np.pad(labels, ((0, 0), (1, 0)), constant_values=START_ID)[:, :-1]
        target[3:] = 0
        with tf.GradientTape() as tape:
            logits = model({"source": source, "target": target}, training=True)
            loss = TokenCrossentropy(0.1)(labels, logits) + sum(model.losses)
        gradients = tape.gradient(loss, [x.value for x in model.trainable_weights])
        results.append([loss, *map(tf.convert_to_tensor, gradients)])
    for alone, beside in zip(*results, strict=True):
        assert_allclose(beside, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attention", ["none", "additive"])
def test_padding_the_source_changes_nothing(attention):
    model = build(attention=attention)
    rng = np.random.default_rng(4)
    source, target = ids(rng, 2, 5, SOURCE_VOCAB), ids(rng, 2, 3, TARGET_VOCAB)
    padded = np.pad(source, [(0, 0), (0, 4)])
    answers = [model({"source": each, "target": target}) for each in (source, padded)]
    assert_allclose(*answers, atol=1e-5)


def test_the_loss_for_looking_twice_is_added_to_that_of_the_tokens():
    model = build(attention="coverage", coverage_loss=3.0, **FEEDING)
    rng = np.random.default_rng(8)
    source, target = ids(rng, 3, 5, SOURCE_VOCAB), ids(rng, 3, 4, TARGET_VOCAB)
    source[1, 3:], target[2, 2:] = 0, 0
    model({"source": source, "target": target}, training=False)
    (added,) = model.losses
    weights = np.array(force_decode([model], source, target), "float64")
    expected = []
    for row, said in zip(weights, target != 0, strict=True):
        row = row[said]
        seen = np.cumsum(row, axis=0) - row
        expected.append(np.minimum(row, seen).sum(-1).mean())
    assert_allclose(added, 3 * np.mean(expected), rtol=1e-5)
    assert expected[0] > 0.01


def test_an_ensemble_averages_probabilities():
    models = [build(seed) for seed in (1, 2)]
    source = ids(np.random.default_rng(5), 1, 4, SOURCE_VOCAB)
    found = search(models, source, SearchSettings(beam_width=1, length_penalty=0.0), max_length=1)
    first = {"source": source, "target": np.array([[START_ID]], "int32")}
    mean = np.mean([np.array(keras.ops.softmax(model(first)))[0, 0] for model in models], axis=0)
    assert int(found.ids[0, 0, 0]) == mean.argmax()
    assert_allclose(found.scores[0, 0], np.log(mean.max()), rtol=1e-5)


def test_with_consistency_a_model_answers_twice_in_training_alone(tmp_path):
    model, plain = build(r_drop=1.0, dropout=0.5, **FEEDING), build(seed=1, **FEEDING)
    rng = np.random.default_rng(11)
    batch = {"source": ids(rng, 3, 5, SOURCE_VOCAB), "target": ids(rng, 3, 7, TARGET_VOCAB)}
    batch["source"][1, 3:], batch["target"][1, 4:] = 0, 0
    first, second = np.split(np.array(model(batch, training=True)), 2)
    assert first.shape == second.shape == (3, 7, TARGET_VOCAB)
    assert abs(first - second).max() > 0.1  # dropout differs
    still = build(r_drop=1.0, dropout=0.0, **FEEDING)
    model.save_weights(tmp_path / "a.weights.h5")
    still.load_weights(tmp_path / "a.weights.h5")
    plain.load_weights(tmp_path / "a.weights.h5")  # a run is used without it
    expected = np.array(plain(batch, training=False))
    assert_allclose(model(batch, training=False), expected, atol=1e-5)
    for answer in np.split(np.array(still(batch, training=True)), 2):
        assert_allclose(answer, expected, atol=1e-5)


def test_tied_embeddings_have_no_output_layer():
    tied, apart = build(tie_embeddings=True), build()
    assert apart.count_params() - tied.count_params() == (7 + 1) * TARGET_VOCAB


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("attention=additiv", "attention needs one of none, additive, normalized_additive"),
        ("attention_options=half_width=3", "half_width"),
        ("distribution=hardmax", "distribution needs one of softmax"),
        ("attention=dot decoder_units=5", "dot: MultiplicativeAttention expected query"),
        ("attention=general attention_heads=3", "a width that num_heads=3 divides"),
    ],
)
def test_a_mechanism_that_there_is_not_is_refused_where_it_is_built(setting, said):
    with pytest.raises(ConfigError, match=said):
        build_model(override(Config(), setting.split()), 9, 11)


BATCH, VOCABULARY = 5, 61
PRESETS = ("tatoeba-en-fr", "cmudict", "digits")
SMALL = {"decoder_units": 11, "embedding_size": 13, "attention_units": 17, "readout_units": 13}
OTHERS = {
    **{"encoder": "simple_rnn", "encoder_layers": 2, "encoder_units": 7, "bidirectional": False},
    **{"decoder": "lstm", "decoder_layers": 2, "order": "luong", "input_feeding": True},
    **{"attention": "location_sensitive", "gate": True, "readout": "maxout"},
}
CONFIGS = {  # of each preset its architecture; learning rates as they are
    "tatoeba-en-fr": {**SMALL, "encoder_units": 7},
    "cmudict": {**SMALL, "encoder_units": 7},
    "digits": {**SMALL, "convolutions": "3:2x2 5:2x2 7k1:1x1", "max_target_length": 7},
    "stacked, deep, gated, of one way": {**SMALL, **OTHERS},
}


def train(name, jit_compile, steps, dropout=0.0):
    """Return the losses of a small model of a preset, for sentences of one pair of lengths.

    XLA compiles for each pair, which takes most of the time: one preset has multiples of the steps
    of an iteration, the others lengths below and between them.
    """
    lengths = (8, 4) if name == "tatoeba-en-fr" else (3, 7)
    keras.utils.clear_session()
    config = load_preset(name) if name in PRESETS else Config()
    settings = {**CONFIGS[name], "batch_size": BATCH, "dropout": dropout, "warmup_steps": 3}
    config = replace(config, **settings, jit_compile=jit_compile)
    configure_keras(config)
    model = build_model(config, VOCABULARY, VOCABULARY)
    compile_model(model, config, steps)
    rng, losses = np.random.default_rng(7), []
    for _ in range(steps):
        drawn = (rng.integers(END_ID + 1, VOCABULARY, (BATCH, length)) for length in lengths)
        source, target = (ids.astype("int32") for ids in drawn)
        source[1, -1:] = target[2, -1:] = 0  # padding
        if config.source == "image":
            source = rng.integers(0, 256, (BATCH, 32, 72, 1)).astype("uint8")
        inputs = {x.name: target if x.name == "target" else source for x in model.inputs}
        losses.append(float(model.train_on_batch(inputs, target)))
    return np.array(losses)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_losses_and_dropout_are_those_of_the_plain_loop(monkeypatch, name):
    steps = 20 if name in PRESETS else 7
    dropout = 0.2 if name == "cmudict" else 0.0  # XLA draws other numbers than the graph
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "cpu")
    plain = train(name, dropout > 0, steps, dropout)
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "gpu")
    np.testing.assert_allclose(train(name, True, steps, dropout), plain, rtol=1e-4)
    if name in PRESETS:
        assert plain[-2] < plain[0]


TEXTS = ["a green apple", "", "is", "we see", *["she eats " * 5 + "a pear"] * 7, "I see him " * 20]
MOST = {"beam_width": 5, "num_results": 3, "coverage_penalty": 0.3, "max_source_length": 40}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"beam_width": 1}, {**MOST, "replaces_unknown": True}])
def test_translations_are_those_of_the_graph(monkeypatch, terse_run, settings):
    results = []
    for device in ("cpu", "gpu"):
        monkeypatch.setenv("KERAS_ATTENTION_DEVICE", device)
        results.append(make_nbest([terse_run], SearchSettings(**settings))(TEXTS))
    for expected, translations in zip(*results, strict=True):
        assert [x.text for x in translations] == [x.text for x in expected]
        scores = [x.score for x in expected]
        assert [x.score for x in translations] == pytest.approx(scores, rel=1e-4)
