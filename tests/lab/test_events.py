"""Studies of outcomes: baselines, and what the order of events adds."""

import json
import math

import numpy as np
import pytest

from lab import baselines, order
from lab.__main__ import main
from lab.baselines import BASELINES, last_known, mayo_risk
from tests.lab.conftest import assert_kept, read_table
from tests.training.sources.test_events import random_histories
from training.command.errors import UserError
from training.config.schema import load_preset
from training.sources.events import _data as events


@pytest.mark.parametrize("fit", BASELINES.values(), ids=BASELINES)
def test_baselines_of_too_few_ids_are_refused(fit):
    x, labels = np.arange(6.0)[:, None], np.array([0, 1, 0, 0, 0, 0])
    with pytest.raises(UserError, match=r"baselines expected 3 ids to train on\. Received: 2"):
        fit(x, labels, np.array(list("aaabbb")))
    with pytest.raises(UserError, match=r"baselines expected both outcomes.*: 1 of 6 examples"):
        fit(x, labels, np.array(list("aabbcc")))


def test_last_known_values_are_those_of_a_loop():
    data = random_histories()
    found = last_known(data)
    for row, (start, end) in enumerate(zip(data.starts, data.ends, strict=True)):
        known = [math.nan] * 3
        for event in data.values[start:end]:
            known = [k if np.isnan(v) else v for k, v in zip(known, event, strict=True)]
        known[1] = math.log(known[1]) if not np.isnan(known[1]) else math.nan
        wanted = [*known, *np.isnan(data.values[end - 1]), data.times[end - 1]]
        np.testing.assert_allclose(found[row, :-1], wanted, rtol=1e-5)
        assert found[row, -1] == pytest.approx(math.log(end - start))


def test_the_mayo_score_is_its_formula(monkeypatch):
    values = {"bili": "2.0", "albumin": "3.5", "protime": "11", "edema": "0.5", "stage": "3"}
    values |= dict.fromkeys(("ast", "alk.phos", "platelet", "ascites", "hepato", "spiders"), "1")
    values |= {"chol": "", "sex": "f", "age": "50", "id": "1", "day": "0"}
    data = events._pbcseq([{**values, "futime": "1000", "status": "2"}])
    expected = 0.04 * 50 + 0.87 * math.log(2) - 2.53 * math.log(3.5) + 2.38 * math.log(11) + 0.43
    assert mayo_risk(data) == pytest.approx([expected])


def test_the_study_ends_in_a_table(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    load_preset("nafld").save(tmp_path / "run" / "config.toml")
    train, test = random_histories(count=31, inputs=2), random_histories(count=29, inputs=2)
    monkeypatch.setattr(baselines.events, "load_training", lambda *_: (train, test))
    monkeypatch.setattr(baselines.events, "load", lambda *_, **__: test)
    command = ["baselines", "--run", str(tmp_path / "run"), "--output", str(tmp_path / "study")]
    main(command)
    rows = read_table(tmp_path / "study" / "baselines.csv")
    assert [row["model"] for row in rows] == list(BASELINES)
    for row in rows:
        assert float(row["auc_low"]) <= float(row["auc"]) <= float(row["auc_high"])
    load_preset("cmudict").save(tmp_path / "run" / "config.toml")
    with pytest.raises(UserError, match="expected source = events"):
        main(command)


def test_the_order_study_ends_in_a_table_and_trains_once(tmp_path, monkeypatch, rng):
    data = random_histories(count=29, inputs=2)
    published = rng.normal(size=29)
    monkeypatch.setattr(order, "published", lambda *_: {"published": published})
    monkeypatch.setattr(order.events, "load", lambda *_: data)
    few = ("attention", "last_state", "attention_read_shuffled")
    monkeypatch.setattr(order, "VARIANTS", {name: order.VARIANTS[name] for name in few})
    for name, value in {"REPEATS": 1, "FOLDS": 2, "SAMPLES": 11, "EPOCHS": (1,)}.items():
        monkeypatch.setattr(order, name, value)
    command = ["order", "--output", str(tmp_path)]
    for setting in ("encoder_units=3", "attention_units=3", "batch_size=7"):
        command += ["--set", setting]
    main(command)
    rows = {row["model"]: row for row in read_table(tmp_path / "order.csv")}
    assert list(rows)[-3:] == ["logistic_regression", "boosted_trees", "published"]
    assert rows.keys() > order.VARIANTS.keys()
    # The share of pairs, one of each label, in which the positive has the higher score
    above = published[data.labels == 1][:, None] - published[data.labels == 0]
    assert float(rows["published"]["auc"]) == pytest.approx(np.mean(above > 0), rel=1e-5)
    folds = [json.loads((tmp_path / "folds" / f"0-{n}.json").read_text())["value"] for n in (0, 1)]
    for name in order.VARIANTS:
        said = [probability for fold in folds for probability in fold[name]]
        assert len(said) == 29
        assert all(0 < probability < 1 for probability in said)
        assert float(rows[name]["auc_low"]) <= float(rows[name]["auc_high"])
    assert (tmp_path / "calibration.png").stat().st_size > 5_000
    assert_kept(command, tmp_path / "order.csv", monkeypatch, order.Learner, "fit")
