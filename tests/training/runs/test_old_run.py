"""A run of commit fe9a10e, with what that commit made of it: see `fixtures/old_run`.

It was trained for an epoch of two on `pairs.tsv`; `expected.json` has its translations and scores,
and the history after the second epoch.
"""

import json
import shutil
from pathlib import Path

import pytest

from training import evaluate, translate
from training import train as script
from training.command.errors import UserError

FIXTURE = Path(__file__).parents[2] / "fixtures" / "old_run"
EXPECTED = json.loads((FIXTURE / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copytree(FIXTURE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_translates_and_scores_as_it_did(folder, capsys):
    (folder / "in.txt").write_text("\n".join(EXPECTED["sources"]))
    translate.main(["--run", "run", "--beam-width", "2", "in.txt"])
    assert capsys.readouterr().out.splitlines() == EXPECTED["translations"]
    evaluate.main(["--run", "run", "--data", "tsv:pairs.tsv", "--beam-width", "2"])
    scores = json.loads(capsys.readouterr().out.splitlines()[-1])
    for key, value in EXPECTED["evaluation"].items():
        assert scores[key] == pytest.approx(value)


def test_it_goes_on_as_it_would_have_then_and_from_then_on_knows_its_corpus(folder):
    script.main(["--resume", "--output", "run"])
    history = json.loads((folder / "run" / "history.json").read_text())
    for record, expected in zip(history, EXPECTED["resumed"], strict=True):
        for key, value in expected.items():
            assert record[key] == pytest.approx(value, rel=1e-4), key
    assert "best.weights.h5" in json.loads((folder / "run" / "digests.json").read_text())
    with (folder / "pairs.tsv").open("a") as file:
        file.write("one more\tun de plus\n")
    with pytest.raises(UserError, match=r"no longer has the sentences .*: --force"):
        script.main(["--resume", "--output", "run"])
    script.main(["--resume", "--output", "run", "--force"])
    script.main(["--resume", "--output", "run"])
