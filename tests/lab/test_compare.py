import json

import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from lab import compare
from lab.__main__ import main
from training.data.read._sentences import Split

WORDS = ["le", "la", "un", "une", "chat", "chien", "pomme", "mange", "voit", "dort"]


def texts(rng, references, errors):
    """References with a share of their words replaced."""
    return [
        " ".join(rng.choice(WORDS) if rng.random() < errors else word for word in text.split())
        for text in references
    ]


@pytest.fixture
def references(rng):
    return [" ".join(rng.choice(WORDS, rng.integers(5, 12))) for _ in range(211)]


@pytest.mark.parametrize("errors", [0.30, 0.5])
def test_bleu_is_judged_as_sacrebleu_does(rng, references, errors):
    systems = [("first", texts(rng, references, errors)), ("other", texts(rng, references, 0.3))]
    test = PairedTest(systems, {"BLEU": BLEU()}, [references], "ar", n_samples=1000)
    _, expected = test()[1]["BLEU"]
    gold = [[text, text.upper()][: 1 + number % 2] for number, text in enumerate(references)]
    first, row = compare.compare("bleu", systems, gold, samples=1000)
    assert row["value"] == pytest.approx(expected.score, abs=1e-4)
    assert row["p"] == pytest.approx(expected.p_value, abs=1e-4)
    assert (row["verdict"] == "better") == (errors == 0.5)
    assert (first["run"], first["p"], first["verdict"]) == ("first", None, "")


def test_fewer_errors_and_more_matches_are_better():
    gold = [["a b"], ["c d"], ["e"]] * 41
    right, wrong = ([text for (text,) in gold], ["a x", "c d", "x"] * 41)
    for first, other, verdict in ((wrong, right, "better"), (right, wrong, "worse")):
        rows = compare.compare("symbols", [("1", first), ("2", other)], gold, samples=100)
        assert [row["score"] for row in rows] == ["PER", "PER", "WER", "WER"]
        assert {row["verdict"] for row in rows if row["run"] == "2"} == {verdict}
        rows = compare.compare("exact", [("1", first), ("2", other)], gold, samples=100)
        assert rows[1]["verdict"] == verdict


def test_the_study_ends_in_a_verdict(tiny_run, tmp_path, monkeypatch, capsys):
    split = Split(["She eats.", "He sleeps."] * 10, [["Elle mange."], ["Il dort."]] * 10)
    monkeypatch.setattr(compare, "load_split", lambda *_, **__: (split, {}))
    path = str(tiny_run.path)
    main(["compare", "--run", path, "--against", path, "--output", str(tmp_path)])
    _, row = json.loads(capsys.readouterr().out.splitlines()[-1])["compared"]
    assert (row["score"], row["p"], row["verdict"]) == ("BLEU", 1, "chance may explain it")
    assert (tmp_path / "compare.csv").read_text().count("\n") == 3
