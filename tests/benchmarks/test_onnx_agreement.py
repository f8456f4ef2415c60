"""The benchmark of ONNX exports beside SavedModels, with tiny models of each kind."""

import json
from pathlib import Path

import pytest

from serving.export.version import export
from tests.serving.conftest import event_run, image_run  # noqa: F401 - fixtures
from training.data.pair_files import Split
from training.runs.run import load_run

ROOT = Path(__file__).parents[2]
OLD = ROOT / "tests" / "fixtures" / "old_run" / "run"
SEARCH = {"beam_width": 2, "length_penalty": 1.0}
SETTINGS = {
    "text": {**SEARCH, "num_results": 1, "max_source_length": 9},
    "image": SEARCH,
    "events": {},
}


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", SETTINGS)
def test_exports_of_one_run_agree(kind, tmp_path, monkeypatch, request, capsys):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import onnx_agreement

    run = load_run(OLD) if kind == "text" else request.getfixturevalue(f"{kind.rstrip('s')}_run")
    given = Split(["He sleeps.", "She eats."], [["Il dort."], ["Elle mange."]])
    monkeypatch.setattr("training.data.splits.load_split", lambda *_, **more: (given, {}))
    saved = export([run], tmp_path / "saved", **SETTINGS[kind])
    onnx = export([run], tmp_path / "onnx", form="onnx", **SETTINGS[kind])
    words = ["--run", str(run.path), "--savedmodel", str(saved), "--onnx", str(onnx)]
    split = "test" if kind == "events" else "dev"
    onnx_agreement.main([*words, "--limit", "9", "--split", split])
    (row,) = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"].values()
    assert row["same"] == row["examples"] > 1
    assert row["number_difference"] < 1e-4
    assert row["weight_difference"] < 1e-4
    measures = {"text": {"bleu"}, "image": {"exact", "cer"}, "events": {"auc", "accuracy"}}[kind]
    for name in measures:
        assert row[name] == row[f"{name}_of_saved_model"]
        assert row[f"{name}_difference"] == [0, 0]


def test_differences_are_of_answers_that_are_the_same(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import numpy as np
    from onnx_agreement import Answer, compare

    wanted = [Answer("a", 1.0, np.ones((3, 5))), Answer("b", 2.0, np.ones((2, 2)))]
    found = [Answer("a", 1.25, np.full((2, 3), 0.5)), Answer("c", 9.0, np.zeros((2, 2)))]
    assert compare(found, wanted) == {
        "examples": 2,
        "same": 1,
        "number_difference": 0.25,
        "weight_difference": 0.5,
    }


def test_chinese_is_scored_as_evaluate_scores_it(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import numpy as np
    from onnx_agreement import Answer, quality

    from training.score.metrics import score

    texts, references = ["她在吃一个苹果。", "他睡觉。"], [["她在吃一个绿苹果。"], ["他在睡觉。"]]
    answers = [Answer(text, 0.0, np.zeros(0)) for text in texts]
    found = quality("bleu-zh", references, [answers, answers], 0)
    wanted = score("bleu-zh", texts, references)["bleu"]
    assert found["bleu"] == found["bleu_of_saved_model"] == round(wanted, 2) > 20
