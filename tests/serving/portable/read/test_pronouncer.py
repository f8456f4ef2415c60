"""A pronouncer runs a beam only where greedy search may miss the best answer."""

import itertools
import types

import numpy as np
import pytest

from serving.portable.read._model import Result
from serving.portable.read._pronouncer import Pronouncer
from tests.serving.conftest import respelled


@pytest.fixture(scope="module")
def model(onnx_translator, tmp_path_factory):
    """A pronouncer of nonsense."""
    folder = tmp_path_factory.mktemp("pronouncer") / "1"
    letters = "abcdefghijklmnopqrstuvwxyz" + "".join(map(chr, range(0x400, 0x500)))
    return respelled(
        onnx_translator, folder, letters=letters, symbols=[f"p{n}" for n in range(1000)]
    )


def test_a_beam_runs_only_for_words_whose_greedy_answer_may_not_be_the_best(model, monkeypatch):
    words = ["cat", "zebra", "yn", "hen", "caffi", "colonel", "a", "readings"]
    beam = {word: each[0] for word, each in Pronouncer(model).pronounce(words)}
    first = Pronouncer(model)
    first._width = 1
    greedy = {word: each[0] for word, each in first.pronounce(words)}
    differ = [word for word in words if beam[word].phones != greedy[word].phones]
    assert differ
    for sure in (lambda letters: letters % 2 == 0, lambda letters: letters % 2 == 1):
        monkeypatch.setattr(
            Pronouncer, "_is_best", lambda self, _, letters, sure=sure: sure(letters)
        )
        found = {word: each[0] for word, each in Pronouncer(model).pronounce(words)}
        for word in words:
            expected = (greedy if sure(len(word)) else beam)[word]
            assert found[word].phones == expected.phones, word
            assert found[word].log_prob == pytest.approx(expected.log_prob, abs=1e-4)


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
