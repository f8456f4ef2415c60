"""Words that the vocabulary lacks, replaced by the source words that were looked at."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from serving.export._version import export
from tests.training.conftest import untrained
from tests.training.test_copying import SETTINGS, names_task
from training.command.errors import UserError
from training.config.schema import Config
from training.data.tokens.store import END_ID, START_ID, UNK_ID
from training.data.tokens.tokenizers import VocabularyTokenizer
from training.decode.search import bound_of, force_decode, search
from training.decode.settings import SearchSettings
from training.decode.texts import make_nbest, replace_unknown, say_cut
from training.runs.checkpoints import save_best
from training.runs.run import load_run
from training.sources.text._source import TextSource


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
    found = make_nbest([run], SearchSettings(beam_width=3, num_results=2, replaces_unknown=True))(
        [*sources, ""]
    )
    plain = make_nbest([run], SearchSettings(beam_width=3, num_results=2))([*sources, ""])
    unknown, looked = 0, set()
    for text, replaced, kept in zip(sources, found, plain, strict=False):
        source = run.source_tokenizer.tokenize(tf.constant([text])).to_tensor()
        asked = SearchSettings(beam_width=3, num_results=2)
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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attention": "none"}, "needs runs that attend to a text. .*, attention = none"),
        ({"source": "image"}, "needs runs that attend to a text. .*, source = image"),
        (
            {"target_tokenizer": "characters"},
            "needs words, .* as the tokenizer of both sides, but it is .*, words and characters",
        ),
        (
            {"source_tokenizer": "sentencepiece", "target_tokenizer": "sentencepiece"},
            "needs words, .* but it is .*, sentencepiece and sentencepiece",
        ),
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
    assert unseen.startswith(
        "Warning: 2 of 5 texts have letters that training never saw (☺ ж). Do not"
    )
    say_cut(read, ["ab", "AB"], SearchSettings(max_source_length=3))
    assert capsys.readouterr().err == ""
