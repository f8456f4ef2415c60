import json

import numpy as np
import pytest

from lab import order
from lab.__main__ import main
from tests.lab.conftest import assert_kept, read_table
from tests.training.sources.test_events import random_histories


def area(labels, scores):
    """The share of pairs, one of each label, in which the positive has the higher score."""
    above = scores[labels == 1][:, None] - scores[labels == 0]
    return np.mean((above > 0) + 0.5 * (above == 0))


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
    assert float(rows["published"]["auc"]) == pytest.approx(area(data.labels, published), rel=1e-5)
    folds = [json.loads((tmp_path / "folds" / f"0-{n}.json").read_text())["value"] for n in (0, 1)]
    for name in order.VARIANTS:
        said = [probability for fold in folds for probability in fold[name]]
        assert len(said) == 29
        assert all(0 < probability < 1 for probability in said)
        assert float(rows[name]["auc_low"]) <= float(rows[name]["auc_high"])
    assert (tmp_path / "calibration.png").stat().st_size > 5_000
    assert_kept(command, tmp_path / "order.csv", monkeypatch, order.Learner, "fit")
