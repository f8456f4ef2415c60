"""Words that no vocabulary holds: copied, or replaced by the source words that were looked at."""

import dataclasses
import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from serving.check._version import check_version
from serving.client._clients import Translator
from serving.export._version import export
from tests.serving.conftest import serving
from tests.training.conftest import tiny_config, untrained, without_steps
from training.command.errors import UserError
from training.config.schema import Config
from training.data.tokens._token_ids import hide_names, shared_words, tokenize_to_copy
from training.data.tokens.store import END_ID, START_ID, UNK_ID
from training.data.tokens.tokenizers import VocabularyTokenizer, load_tokenizer
from training.decode.search import bound_of, check_search, force_decode, search
from training.decode.settings import SearchSettings
from training.decode.texts import make_nbest, make_translator, replace_unknown, say_cut
from training.fit._train import resume, train
from training.runs._start import prepare_run
from training.runs.checkpoints import save_best
from training.runs.run import load_run
from training.sources.text._source import TextSource

SOURCE = VocabularyTokenizer("words", ["▁the", "▁sees", "▁Paris", "."], copies=True)
TARGET = VocabularyTokenizer("words", ["▁la", "▁voit", ".", "▁Paris"])
SIZE = 8  # of both, special ids included


def test_a_word_that_is_not_in_the_vocabulary_has_the_id_of_its_first_place():
    texts = ["Zo sees Zo the Mi.", "", "Paris sees"]
    ids = SOURCE.tokenize(tf.constant(texts)).to_list()
    assert ids == [[SIZE, 5, SIZE, 4, SIZE + 4, 7], [], [6, 5]]
    assert SOURCE.tokenize(tf.constant([""])).to_list() == [[]]
    assert SOURCE.tokenize(tf.constant([], tf.string)).to_list() == []
    words = SOURCE.split(tf.constant(texts)).to_tensor()
    padded = SOURCE.tokenize(tf.constant(texts)).to_tensor()
    assert SOURCE.tokens(padded, words).numpy()[0].tolist() == words.numpy()[0].tolist()
    assert SOURCE.tokens(padded).numpy()[0, 0] == b"<unk>"


def test_a_target_is_labelled_with_the_places_of_what_it_copies(tmp_path):
    sources, targets = ["Zo sees Mi Zo", "the Mi"], ["Mi voit Zo la Ko.", "Mi Mi"]
    labels = tokenize_to_copy(sources, targets, [SOURCE, TARGET], 9)
    first, second = labels.padded().tolist()
    assert first == [SIZE + 2, 5, SIZE, 4, 1, 6]
    assert second == [SIZE + 1, SIZE + 1, 0, 0, 0, 0]
    cut = tokenize_to_copy(sources, targets, [SOURCE, TARGET], 1)
    assert cut.padded().tolist() == [[1, 5, SIZE, 4, 1, 6], [1, 1, 0, 0, 0, 0]]
    words = SOURCE.split(tf.constant(sources)).to_tensor()
    said = TARGET.detokenize(tf.constant(labels.padded()), words).numpy()
    assert [text.decode() for text in said] == ["Mi voit Zo la.", "Mi Mi"]
    SOURCE.save(tmp_path / "a.tokenizer")
    assert load_tokenizer(tmp_path / "a.tokenizer").copies


def test_words_of_both_vocabularies_are_found_in_both():
    assert shared_words(SOURCE, TARGET).tolist() == [-1, -1, -1, -1, -1, -1, 7, 6]


def test_more_hypotheses_than_words_are_one_clear_line():
    run = SimpleNamespace(path="run", config=Config(**SETTINGS), target_tokenizer=TARGET)
    with pytest.raises(UserError, match=r"--beam-width needs at most 8, but it is 9"):
        check_search(SearchSettings(beam_width=9), [run])


def test_a_prepared_run_knows_the_words_of_both_sides(tmp_path):
    words = ("source_tokenizer=words", "target_tokenizer=words", "copy=true", "average_epochs=0")
    prepare_run(tiny_config(*words), tmp_path)
    with without_steps():
        resume(tmp_path)
    run = load_run(tmp_path)
    source, target = (x.state()["tokens"] for x in (run.source_tokenizer, run.target_tokenizer))
    table = run.model.get_layer("source_words").words.numpy()
    read = {source[i - 4]: target[j - 4] for i, j in enumerate(table) if j >= 0}
    assert read == {word: word for word in {*source} & {*target}} != {}


def names_task(rng, count, known=None):
    """Who gives how many to whom: their order changes; `known` names, or always others."""

    def name():
        new = (rng.choice(list("BKLMNRTZ")) + rng.choice(list("aeiou")) for _ in range(3))
        return rng.choice(known) if known else "".join(new)

    pairs = []
    for _ in range(count):
        giver, taker = name(), name()
        number = rng.choice([1200, 35000, 777000]) if known else rng.integers(1000, 10**6)
        form = rng.integers(3)
        source = [
            f"{giver} gives {number} pears to {taker}.",
            f"{taker} gets {number} pears from {giver}.",
            f"the pears, {number}, go from {giver} to {taker}.",
        ][form]
        pairs.append((source, f"à {taker} {giver} donne {number} poires."))
    return pairs


WORDS = {"source_tokenizer": "words", "target_tokenizer": "words", "copy": True, "order": "luong"}
FEW = {"source_vocab_size": 16, "target_vocab_size": 9}  # à, donne, poires and the full stop
SIZES = {"encoder_units": 24, "decoder_units": 32, "embedding_size": 16, "readout_units": 16}
STEPS = {"batch_size": 50, "learning_rate": 2e-2, "warmup_steps": 20, "epochs": 2, "dropout": 0.0}
SETTINGS = {**WORDS, **FEW, **SIZES, **STEPS, "attention_units": 24, "max_dev_translations": 50}


@pytest.fixture(scope="module")
def copying_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copying")
    pairs = names_task(np.random.default_rng(1), 2000)
    data = folder / "names.tsv"
    data.write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    train(Config(data=f"tsv:{data}", **SETTINGS), folder / "run")
    return load_run(folder / "run")


@pytest.mark.slow
def test_names_and_numbers_that_were_never_seen_are_copied(copying_run):
    pairs = names_task(np.random.default_rng(2), 100)
    translate = make_translator([copying_run], SearchSettings(beam_width=3))
    found = translate([source for source, _ in pairs])
    right = [text == target for text, (_, target) in zip(found, pairs, strict=True)]
    assert np.mean(right) > 0.9
    assert translate([""]) == [""]


@pytest.mark.slow
def test_a_search_that_xla_compiles_for_a_gpu_copies_the_same(copying_run, monkeypatch):
    sources = [source for source, _ in names_task(np.random.default_rng(2), 7)]
    expected = make_translator([copying_run], SearchSettings(beam_width=3))(sources)
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "gpu")
    assert make_translator([copying_run], SearchSettings(beam_width=3))(sources) == expected


def test_what_is_hidden_are_names_and_numbers_of_both_sides():
    sources = ["Tom, I saw Tom and 2 of Ann", "the train of Zoë", "A 7", "I, Bob"] * 50
    targets = ["Ann a vu Tom (2) et Tom", "le train de Zoe", "7 A", "I, bob"] * 50
    sources = [f"{source}. {i}x" for i, source in enumerate(sources)]
    targets = [f"{target}. y{i}" for i, target in enumerate(targets)]
    found = [hide_names(*pair, 0.5, 3) for pair in zip(sources, targets, strict=True)]
    hidden = [pair[0] != source for pair, source in zip(found, sources, strict=True)]
    assert hidden == [pair[1] != target for pair, target in zip(found, targets, strict=True)]
    assert not any(hidden[i] for i in range(200) if i % 4 in (1, 3))
    assert 30 < sum(hidden) < 70
    for (source, target), was in zip(found, hidden, strict=True):
        if was and "saw" in source:
            a, b, c = source[0], source[15], source[20]
            assert source.startswith(f"{a}, I saw {a} and {b} of {c}.")
            assert target.startswith(f"{c} a vu {a} ({b}) et {a}.")
            assert len({a, b, c}) == 3
            assert all(unicodedata.category(x) == "Co" for x in (a, b, c))
    assert [hide_names(*pair, 0.5, 3) for pair in zip(sources, targets, strict=True)] == found
    assert hide_names(sources[0], targets[0], 0.0, 3) == (sources[0], targets[0])


@pytest.mark.slow
def test_the_search_gives_what_the_model_computes_for_whole_sequences(copying_run):
    (source, _), *_ = names_task(np.random.default_rng(3), 1)
    model = copying_run.model
    ids = copying_run.source_tokenizer.tokenize(tf.constant([source])).to_tensor().numpy()
    greedy = SearchSettings(beam_width=1, length_penalty=0.0)
    found = search([model], ids, greedy, return_attention_weights=True)
    said = np.array(found.ids)[:, 0]
    assert (said >= copying_run.target_tokenizer.vocab_size).sum() == 3
    target = np.concatenate([[[2]], said[:, :-1]], axis=1).astype("int32")
    log_probs = np.array(model({"source": ids, "target": target}, training=False))
    assert log_probs.argmax(-1).tolist() == said.tolist()
    np.testing.assert_allclose(log_probs.max(-1).sum(), float(found.scores[0, 0]), rtol=1e-4)
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1, rtol=1e-4)
    assert force_decode([model], ids, target % 9).shape == (1, said.shape[1], ids.shape[1])


@pytest.mark.slow
def test_a_served_model_copies(copying_run, tmp_path):
    settings = {"beam_width": 3, "num_results": 2, "max_source_length": 23}
    version = export([copying_run], tmp_path / "names", **settings)
    assert check_version(version) == []
    pairs = names_task(np.random.default_rng(4), 20)
    sources = [source for source, _ in pairs]
    expected = make_translator([copying_run], SearchSettings(beam_width=3))(sources)
    with (
        serving(base=tmp_path / "names") as server,
        Translator(f"localhost:{server.port}", "names") as client,
    ):
        assert [found.text for found in client.translate(sources)] == expected
        found = client.align(sources[:1])[0]
        copied = set(found.target_tokens) - {"▁à", "▁donne", "▁poires", "."}
        assert copied <= set(found.source_tokens)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Its vocabularies hold few words. With random weights it looks everywhere."""
    folder = tmp_path_factory.mktemp("unknown")
    rng = np.random.default_rng(1)
    data = folder / "names.tsv"
    data.write_text("".join("\t".join(pair) + "\n" for pair in names_task(rng, 120)))
    run = untrained(Config(data=f"tsv:{data}", **{**SETTINGS, "copy": False}), folder / "run")
    for weight in run.model.weights:
        weight.assign(rng.normal(size=weight.shape))
    bias = run.model.get_layer("output").bias
    bias.assign(bias + 3.0 * (np.arange(run.target_tokenizer.vocab_size) == UNK_ID))
    save_best(run.files, run.model)
    return load_run(folder / "run")


def expected(run, text, ids):
    """The text of `ids` with each unknown word looked up by a second pass of the decoder."""
    words = [word.decode() for word in run.source_tokenizer.split(tf.constant([text])).to_list()[0]]
    source = run.source_tokenizer.tokenize(tf.constant([text])).to_tensor()
    (weights,) = np.array(force_decode([run.model], source, np.array([[START_ID, *ids[:-1]]])))
    tokens = []
    for token, row in zip(ids, weights, strict=True):
        if token == END_ID:
            break
        known = run.target_tokenizer.tokens(tf.constant([token])).numpy()[0].decode()
        tokens.append(words[int(np.argmax(row))] if token == UNK_ID else known)
    return "".join(tokens).replace("▁", " ").strip()


@pytest.mark.slow
def test_an_unknown_word_is_the_one_that_was_looked_at(run):
    sources = [source for source, _ in names_task(np.random.default_rng(2), 5)]
    asked = SearchSettings(beam_width=3, num_results=2)
    replacing = dataclasses.replace(asked, replaces_unknown=True)
    found, plain = (make_nbest([run], each)([*sources, ""]) for each in (replacing, asked))
    unknown, looked = 0, set()
    for text, replaced, kept in zip(sources, found, plain, strict=False):
        source = run.source_tokenizer.tokenize(tf.constant([text])).to_tensor()
        said = np.array(search([run.model], source, asked, bound=bound_of([run])).ids)[0]
        unknown += (said == UNK_ID).sum()
        looked |= set(" ".join(one.text for one in replaced).split()) & set(text.split())
        assert [one.text for one in replaced] == [expected(run, text, ids) for ids in said]
        assert [one.score for one in replaced] == pytest.approx([one.score for one in kept])
    assert unknown > 5
    assert len(looked) > 3, looked
    assert [one.text for one in found[-1]] == ["", ""]


def test_places_without_weight_are_not_looked_at():
    ids = np.array([[UNK_ID, 5, UNK_ID, UNK_ID]])
    weights = np.array([[[0.1, 0.7, 0.2], [0.1, 0.7, 0.2], [0.0, 0.0, 0.0], [0.4, 0.3, 0.3]]])
    assert replace_unknown(ids, weights, 9).numpy().tolist() == [[10, 5, UNK_ID, 9]]


ATTEND, WHOLE = "needs runs that attend to a text. .*, ", "needs words, .* but it is .*, "


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attention": "none"}, f"{ATTEND}attention = none"),
        ({"source": "image"}, f"{ATTEND}source = image"),
        ({"target_tokenizer": "characters"}, f"{WHOLE}words and characters"),
        ({"source_tokenizer": "sentencepiece"}, f"{WHOLE}sentencepiece and words"),
    ],
)
def test_runs_without_what_it_takes_are_refused(run, changes, said, tmp_path):
    config = type("Changed", (), {**dataclasses.asdict(run.config), **changes})
    letters = VocabularyTokenizer("characters", ["a", "b"])
    other = dataclasses.replace(run, config=config, target=letters)
    with pytest.raises(UserError, match=f"--replace-unknown {said}"):
        SearchSettings(replaces_unknown=True).check([run, other])
    with pytest.raises(UserError, match=f"--replace-unknown {said}"):
        export([other], tmp_path / "new" / "model", replaces_unknown=True)
    assert not (tmp_path / "new").exists()


def test_texts_that_are_cut_or_have_unseen_letters_are_counted(capsys):
    letters = VocabularyTokenizer("letters", ["a", "b", "c", " "])
    source = TextSource(letters)
    read = SimpleNamespace(source=source, source_tokenizer=letters)
    say_cut(read, ["ab", "a☺b☺ж", "aaaa", "AB", "☺"], SearchSettings(max_source_length=3))
    cut, unseen = capsys.readouterr().err.splitlines()
    assert cut == "Warning: 2 of 5 texts have more than 3 tokens, and the end is cut off"
    said = "Warning: 2 of 5 texts have letters that training never saw (☺ ж). Do not"
    assert unseen.startswith(said)
    say_cut(read, ["ab", "AB"], SearchSettings(max_source_length=3))
    assert capsys.readouterr().err == ""
