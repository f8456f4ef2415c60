"""The study of SIGMORPHON's languages, on made words of one."""

import json
import random

import pytest
import scipy.stats

from lab import shared, sigmorphon
from lab.__main__ import main
from tests.lab.conftest import read_table
from tests.training.conftest import untrained
from tests.training.data.files import write
from training.runs.run import load_run

TINY = [
    *("encoder_units=7", "decoder_units=11", "embedding_size=5", "attention_units=3"),
    *("readout_units=13", "epochs=2", "average_epochs=0"),
]


@pytest.fixture
def words(tmp_path, monkeypatch):
    """Words of Welsh that are said as they are spelled."""
    rng = random.Random(3)
    folder = tmp_path / "data" / "g2p-sigmorphon2021"
    for split, count in (("train", 211), ("dev", 23)):
        made = ("".join(rng.choices("abc", k=rng.randrange(1, 4))) for _ in range(count))
        write(folder / f"wel_sw_{split}.tsv", [(word, " ".join(word)) for word in made])
    monkeypatch.setenv("KERAS_ATTENTION_DATA", str(tmp_path / "data"))


def test_each_language_has_a_baseline():
    # Of the ten languages of medium; the contest's table says 9.35.
    published = {"high": 45.13, "medium": 9.31, "low": 22.4}
    for subtask, mean in published.items():
        rates = [sigmorphon.BASELINE[language] for language in sigmorphon.LANGUAGES[subtask]]
        assert sum(rates) / len(rates) == pytest.approx(mean)


@pytest.mark.parametrize(("wrong", "count"), [(0, 7), (3, 101), (100, 100)])
def test_the_interval_is_wilsons(wrong, count):
    expected = scipy.stats.binomtest(wrong, count).proportion_ci(method="wilson")
    found = sigmorphon.wilson_interval(100 * wrong / count, count)
    assert found == pytest.approx((100 * expected.low, 100 * expected.high), abs=1e-6)


def test_the_table_has_the_words_that_are_wrong_and_nothing_is_learned_twice(
    words, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(shared, "train", untrained)
    output = tmp_path / "study"
    command = ["sigmorphon", "--subtask", "low", "--languages", "wel_sw", "--seeds", "2"]
    command += ["--output", str(output), *(part for key in TINY for part in ("--set", key))]
    main(command)
    language, mean = read_table(output / "sigmorphon.csv")
    assert (language["language"], mean["language"]) == ("wel_sw", "mean")
    assert float(language["baseline"]) == 16.0
    assert float(language["minutes"]) > 0
    assert float(language["from"]) < float(language["ensemble"]) <= float(language["to"])
    wrong = []
    for name in ("wel_sw-1", "wel_sw-2", "wel_sw-ensemble"):
        said = json.loads((output / "said" / f"{name}.json").read_text())["value"]
        rows = (tmp_path / "data/g2p-sigmorphon2021/wel_sw_dev.tsv").read_text().splitlines()
        by_word = dict(row.split("\t") for row in rows)  # a word that is there twice is one
        wrong.append(100 * sum(a != b for a, b in zip(said, by_word.values(), strict=True)))
    expected = [rate / len(by_word) for rate in wrong]
    assert float(language["mean"]) == pytest.approx(sum(expected[:2]) / 2, rel=1e-4)
    assert float(language["ensemble"]) == pytest.approx(expected[2], rel=1e-4)
    assert load_run(output / "runs" / "wel_sw-2").config.seed == 2
    weights = (output / "runs" / "wel_sw-1" / "best.weights.h5").stat().st_mtime_ns
    capsys.readouterr()
    main(command)
    assert "wel_sw-1: trained already" in capsys.readouterr().out
    assert (output / "runs" / "wel_sw-1" / "best.weights.h5").stat().st_mtime_ns == weights
