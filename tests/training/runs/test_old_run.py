"""A run of commit fe9a10e, with what that commit made of it: see `fixtures/old_run`.

It was trained for an epoch of two on `pairs.tsv`; `expected.json` has its translations and scores,
and the history after the second epoch.
"""

import json
import shutil
from pathlib import Path

import pytest

from training import evaluate

FIXTURE = Path(__file__).parents[2] / "fixtures" / "old_run"
EXPECTED = json.loads((FIXTURE / "expected.json").read_text(encoding="utf-8"))


def test_it_translates_and_scores_as_it_did(tmp_path, monkeypatch, capsys):
    shutil.copytree(FIXTURE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    words = ["--run", "run", "--data", "tsv:pairs.tsv", "--beam-width", "2"]
    evaluate.main([*words, "--hypotheses", "out.txt"])
    said = (tmp_path / "out.txt").read_text(encoding="utf-8").splitlines()
    assert said[: len(EXPECTED["sources"])] == EXPECTED["translations"]
    scores = json.loads(capsys.readouterr().out.splitlines()[-1])
    for key, value in EXPECTED["evaluation"].items():
        assert scores[key] == pytest.approx(value)
