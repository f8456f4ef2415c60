"""Pronouncers: when a beam runs, tags of languages before words ("[cy] ysgol"), cut answers."""

import itertools
import json
import shutil
import types

import numpy as np
import pytest

from serving.portable.read import LocalTranslator
from serving.portable.read import _pronouncer as pronouncers
from serving.portable.read._model import Result, tokens_of
from serving.portable.read._pronouncer import Pronouncer
from tests.serving.conftest import pronouncer


def test_a_beam_runs_only_for_words_whose_greedy_answer_may_not_be_the_best(model, monkeypatch):
    words = ["cat", "zebra", "yn", "hen", "caffi", "colonel", "a", "readings"]
    beam = {word: each[0] for word, each in Pronouncer(model).pronounce(words)}
    first = Pronouncer(model)
    first._width = 1
    greedy = {word: each[0] for word, each in first.pronounce(words)}
    assert any(beam[word].phones != greedy[word].phones for word in words)
    for sure in (lambda letters: letters % 2 == 0, lambda letters: letters % 2 == 1):
        monkeypatch.setattr(
            Pronouncer, "_is_best", lambda self, _, letters, sure=sure: sure(letters)
        )
        for word, (found, *_) in Pronouncer(model).pronounce(words):
            expected = (greedy if sure(len(word)) else beam)[word]
            assert found.phones == expected.phones, word
            assert found.log_prob == pytest.approx(expected.log_prob, abs=1e-4)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_an_answer_that_is_called_the_best_is_the_best_of_all(penalty):
    rng, end, bound = np.random.default_rng(11), 3, 5
    sure = 0
    for _ in range(300):
        sharp = rng.choice([1.0, 3.0, 6.0])
        steps = {}  # a distribution over "end" and two phones for each start of an answer

        def log_probs(start, steps=steps, sharp=sharp):
            if start not in steps:
                logits = sharp * rng.normal(size=3)
                steps[start] = logits - np.log(np.exp(logits).sum())
            return steps[start]

        def norm(length):
            return ((5 + length) / 6) ** penalty

        whole = {}  # the score of each answer
        for length in range(bound):
            for start in itertools.product((0, 1), repeat=length):
                total = sum(log_probs(start[:n])[start[n]] for n in range(length))
                if length < bound - 1:
                    whole[start] = (total + log_probs(start)[2]) / norm(length + 1)
                else:  # the bound ends an answer
                    for last in range(3):
                        whole[*start, last] = (total + log_probs(start)[last]) / norm(bound)
        answer, gains = (), []
        while len(gains) < bound and 2 not in answer:
            gains.append(log_probs(answer).max())
            answer += (int(log_probs(answer).argmax()),)
        score = np.array([sum(gains) / norm(len(gains))])
        result = Result(np.full((1, 1), end), np.array([gains]), score, np.zeros((1, 1, 1)))
        model = types.SimpleNamespace(_bound=(0, bound), _penalty=penalty)
        model._norm = lambda length, model=model: Pronouncer._norm(model, length)
        if Pronouncer._is_best(model, result, 7):
            sure += 1
            best = max(whole, key=whole.get)
            assert best == (answer[:-1] if answer[-1] == 2 and len(answer) < bound else answer)
    assert 30 < sure < 270


def test_a_word_whose_best_answer_is_silence_has_the_next(model, monkeypatch):
    ((_, (best, second)),) = Pronouncer(model).pronounce(["cat"], 2)

    def silent(tokenizer, ids):
        tokens = tokens_of(tokenizer, ids)
        return () if tokens == best.phones else tokens

    monkeypatch.setattr(pronouncers, "tokens_of", silent)
    ((_, answers),) = Pronouncer(model).pronounce(["cat"])
    assert [answer.phones for answer in answers] == [second.phones]


# Tags

TAG = {"open": 4, "close": 5, "space": 6, "longest": 5}


@pytest.fixture(scope="module")
def untagged(onnx_translator, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tags") / "1"
    return pronouncer(onnx_translator, folder, "'", first="[] ", max_source_length=40)


@pytest.fixture
def tagged(untagged, tmp_path):
    """Makes a copy of the pronouncer, whose training words are said to have tags."""

    def make(fewest=0.0, **tag):
        folder = tmp_path / "1"
        shutil.copytree(untagged, folder, dirs_exist_ok=True)
        manifest = json.loads((untagged / "manifest.json").read_text())
        spelling = {"whole": 12, "window": 12, "context": 3, "fewest": fewest}
        manifest["spelling"] = {**spelling, **({"tag": tag} if tag else {})}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        return folder

    return make


def test_the_command_reads_words_with_the_tag_and_writes_them_without(tagged, run, listed):
    model, words = tagged(**TAG), ["cat", "donaudampfschifffahrt"]
    answers = LocalTranslator(model).translate([f"[cy] {word}" for word in words])
    wanted = [f"{word}\t{x.text}" for word, x in zip(words, answers, strict=True)]
    form = "--local", model, "--format", "tsv"
    assert run("\n".join(words), *form, "--tag", "cy") == (0, wanted, "")
    assert run("\n".join(words), *form)[1] != wanted
    found = run("\n".join(words), *form, "--tag", "cy", *listed("cat p1 p2"))
    assert found == (0, ["cat\tp1 p2", wanted[1]], "")
    status, lines, err = run("cat", "--local", tagged(), "--format", "tsv", "--tag", "cy")
    assert (status, lines, err.count("\n"), err[:7]) == (1, [], 1, "error: ")
    assert "expected a model of words with tags, such as [cy]" in err


def test_a_tag_is_written_as_in_training_and_its_letters_need_no_phones(tagged):
    assert Pronouncer(tagged(**TAG), tag="cy").spelled("‘Ysgol’") == "[cy] Ysgol"
    assert (
        Pronouncer(tagged(**TAG | {"space": 0, "longest": 4}), tag="cy").spelled("ysgol")
        == "[cy]ysgol"
    )
    assert Pronouncer(tagged(**TAG)).spelled("ysgol") == "ysgol"
    model = tagged(0.5, **TAG)
    for count, cut in ((2, True), (3, False)):  # of 7 letters, at least 3.5 with the end
        assert Pronouncer(model).is_cut("[cy] abcdefg", ["p1"] * count) is cut
    assert Pronouncer(tagged(0.5)).is_cut("[cy] abcdefg", ["p1"] * 3)
    with pytest.raises(ValueError, match=r"spelling\.tag\.close"):
        Pronouncer(tagged(open=4, space=6, longest=5))


def test_a_word_that_lacks_phones_is_named(tagged, run):
    (best,) = (each for _, (each,) in Pronouncer(tagged()).pronounce(["cat"]))
    told = "Warning: fewer phones for their letters than nearly all words of training have: cat\n"
    for fewest, said in ((len(best.phones) / 3, ""), ((len(best.phones) + 1) / 3, told)):
        _, lines, err = run("cat", "--local", tagged(fewest), "--format", "tsv")
        assert (len(lines), err) == (1, said)
