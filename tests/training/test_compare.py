import argparse
import itertools
import json

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from tests.training.conftest import tiny_config
from training import study
from training.command.errors import UserError
from training.data import corpus
from training.data.pair_files import Split
from training.data.splits import load_split
from training.score import metrics
from training.studies import compare
from training.studies.compare import Difference


def texts(rng, references, errors):
    """References with a share of their words replaced."""
    words = ["le", "la", "un", "une", "chat", "chien", "pomme", "mange", "voit", "dort"]
    return [
        " ".join(rng.choice(words) if rng.random() < errors else word for word in text.split())
        for text in references
    ]


@pytest.fixture
def references(rng):
    words = ["le", "la", "un", "une", "chat", "chien", "pomme", "mange", "voit", "dort"]
    return [" ".join(rng.choice(words, rng.integers(5, 12))) for _ in range(211)]


@pytest.mark.parametrize("errors", [0.30, 0.5])
def test_one_run_a_side_is_judged_as_sacrebleu_does(rng, references, errors):
    ours, theirs = texts(rng, references, 0.3), texts(rng, references, errors)
    sides = [
        metrics.bleu_statistics(side, [[r] for r in references])[None] for side in (ours, theirs)
    ]
    found = compare.compare(*sides, metrics.bleu_of, samples=1000, seed=1)
    systems = [("theirs", theirs), ("ours", ours)]
    results = [
        PairedTest(systems, {"BLEU": BLEU()}, [references], test_type=kind, n_samples=1000)()[1]
        for kind in ("ar", "bs")
    ]
    expected, own = (result["BLEU"][1] for result in results)
    assert found.scores[0][0] == pytest.approx(expected.score, abs=1e-6)
    assert found.p == pytest.approx(expected.p_value, abs=0.05)
    assert found.is_chance == (expected.p_value >= 0.05)
    assert found.low < found.difference < found.high
    # The bootstrap's p-value is small where 0 is not in the interval.
    assert (own.p_value < 0.05) == (not found.low <= 0 <= found.high)


def test_seeds_that_differ_widen_the_interval(rng, references):
    good, bad = ([texts(rng, references, e) for e in errors] for errors in ((0.2, 0.5), (0.3, 0.4)))
    gold = [[r] for r in references]
    ours, theirs = (
        np.stack([metrics.bleu_statistics(seed, gold) for seed in side]) for side in (good, bad)
    )
    one = compare.compare(ours[:1], theirs[:1], metrics.bleu_of, 300, 0)
    two = compare.compare(ours, theirs, metrics.bleu_of, 300, 0)
    assert not one.is_chance
    assert two.is_chance
    assert two.high - two.low > 2 * (one.high - one.low)


def test_a_side_against_itself_is_chance(rng, references):
    found = [metrics.bleu_statistics(texts(rng, references, 0.3), [[r] for r in references])]
    same = compare.compare(np.stack(found), np.stack(found), metrics.bleu_of, 50, 0)
    assert (same.difference, same.low, same.high) == (0, 0, 0)
    assert same.p == 1
    assert same.is_chance


@pytest.mark.parametrize(("wrong", "count"), [((), 7), ((0, 3, 4, 9), 10), ((1, 2, 5, 6, 8), 11)])
def test_the_probability_is_that_of_all_exchanges(wrong, count):
    """One side errs in some sentences, the other never: each exchange of the errors is counted."""
    ours, theirs = np.zeros((1, count, 2)), np.ones((1, count, 2)) * (0, 1)
    ours[0, :, 1] = 1
    ours[0, list(wrong), 0] = 1
    differences = [
        abs(sum(side if n in wrong else 0 for n, side in enumerate(sides)))
        for sides in itertools.product((1, -1), repeat=count)
    ]
    exact = np.mean([difference >= len(wrong) for difference in differences])
    found = compare.compare(ours, theirs, metrics.ratio, 4000, 0)
    assert found.difference == pytest.approx(len(wrong) / count)
    assert found.p == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("errors", [[0, 1], [1, 0]])
def test_every_run_counts_alike_where_a_side_has_fewer(errors):
    """Of one sentence the exchange is all or none of it: each difference is as large."""
    ours, theirs = np.array([[[x, 1]] for x in errors]), np.array([[[0, 1]]] * 3)
    found = compare.compare(ours, theirs, metrics.ratio, 100, 0)
    assert found.difference == 0.5
    assert found.p == 1


def test_fewer_errors_are_better():
    errors = Difference(([5.0, 5.2], [6.0, 6.3]), -1.05, -1.6, -0.4, 0.001)
    assert "--run is better" in compare._summary("per", errors, False, 100)["verdict"]
    assert "--run is worse" in compare._summary("bleu", errors, True, 100)["verdict"]


def test_the_study_ends_in_a_verdict(tiny_run, tmp_path, monkeypatch, capsys):
    sources = ["She eats.", "He sleeps."] * 10
    split = Split(sources, [["Elle mange."], ["Il dort."]] * 10)
    monkeypatch.setattr(compare, "load_split", lambda *_, **__: (split, {}))
    path = str(tiny_run.path)
    command = ["compare", "--run", path, "--against", path, path, "--samples", "20"]
    study.main([*command, "--output", str(tmp_path)])
    *_, verdict, last = capsys.readouterr().out.splitlines()
    assert verdict.startswith("Chance may explain the difference: BLEU")
    found = json.loads(last)["bleu"]
    assert found["difference"] == 0
    assert (len(found["run"]), len(found["against"])) == (1, 2)
    assert (tmp_path / "compare.csv").read_text().count("\n") == 4


def test_sentences_of_files_are_those_that_training_left_out(tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"word {n}\twort {n}\n" for n in range(211)))
    config = tiny_config(f"data=tsv:{file}", "dev=0.1")
    options = argparse.Namespace(data=None, split="dev", limit=None)
    found, whole = compare._load(config, options), corpus.load(f"tsv:{file}", "dev")
    assert 5 < len(found.sources) < 50
    assert len(whole.sources) == 211
    kept = load_split(config, "train")[0]
    assert sorted([*found.sources, *kept.sources]) == sorted(whole.sources)


def test_sides_of_other_sentences_are_refused(rng):
    with pytest.raises(ValueError, match="same sentences"):
        compare.compare(rng.random((1, 5, 2)), rng.random((1, 7, 2)), metrics.ratio, 5, 0)


def test_a_run_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(UserError, match="not a run"):
        study.main(["compare", "--run", str(tmp_path), "--against", str(tmp_path)])
