import numpy as np
import pytest

from tests.training.sources.test_events import random_histories
from training.command.errors import UserError
from training.decode.labels import Prediction
from training.metrics import auc
from training.score import _labels as scores
from training.score._labels import evaluate_labels


def pairs_in_order(labels, values):
    """The AUC as the share of pairs of a 1 and a 0 that stand in the right order."""
    ones, zeros = values[labels == 1], values[labels == 0]
    return np.mean([(one > zero) + 0.5 * (one == zero) for one in ones for zero in zeros])


def test_auc_is_the_share_of_pairs_in_order():
    rng = np.random.default_rng(0)
    labels = (rng.random(53) < 0.3).astype(float)
    values = rng.integers(0, 9, 53) + labels
    assert auc(labels, values) == pytest.approx(pairs_in_order(labels, values))
    assert auc(np.ones(3), np.arange(3)) == 0.5


def test_cross_entropy_of_certain_and_of_even_chances():
    labels = np.array([0.0, 1.0])
    assert scores.cross_entropy(labels, np.array([0.5, 0.5])) == pytest.approx(np.log(2))
    assert scores.cross_entropy(labels, labels) < 1e-6


def test_calibration_is_perfect_where_as_much_comes_true_as_is_said():
    rng = np.random.default_rng(1)
    said = rng.random(20_000)
    labels = (rng.random(20_000) < said).astype(float)
    assert scores.calibration_error(labels, said) < 0.02
    assert scores.calibration_error(labels, said * 0) == pytest.approx(labels.mean(), abs=1e-6)


def test_people_are_resampled_whole_and_samples_are_paired():
    rng = np.random.default_rng(2)
    people = np.repeat(np.arange(40), 5)
    labels = np.repeat((np.arange(40) % 2).astype(float), 5)  # all of one person alike
    values = labels + rng.normal(0, 1.0, 40).repeat(5)
    seen = []

    def score(chosen, said):
        counts = np.unique(said, return_counts=True)[1]
        seen.append((counts % 5 == 0).all())
        return auc(chosen, said)

    options = {"samples": 60}
    twice = {"a": values, "b": 2 * values}
    found = scores.bootstrap_people(people, labels, twice, score, **options)
    assert all(seen)
    np.testing.assert_allclose(found["a"], found["b"])
    low, high = scores.interval(found["a"])
    alone = scores.bootstrap_people(np.arange(200), labels, {"a": values}, auc, **options)
    assert high - low > 1.5 * np.subtract(*scores.interval(alone["a"])[::-1])


def test_of_one_outcome_there_is_no_auc_and_no_interval(monkeypatch, capsys):
    data, quarters = random_histories(), Prediction(np.full(7, 0.25), None)
    data.labels[:] = 0
    monkeypatch.setattr(scores, "make_predictor", lambda runs: lambda data: quarters)
    found = evaluate_labels([], data)
    assert not found.keys() & {"auc", "auprc"}
    assert found["cross_entropy"] == pytest.approx(-np.log(0.75))
    assert "AUC and AUPRC are undefined" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"--bootstrap needs .*, but 0 of 7 examples came true"):
        evaluate_labels([], data, bootstrap=True)
