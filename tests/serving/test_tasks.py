import contextlib
import dataclasses

import pytest

from serving import tasks
from serving.client import Alignment
from serving.demo import stages
from training.command.errors import UserError
from training.config.load import load_preset, override


@pytest.mark.parametrize("name", sorted(tasks.TASKS))
def test_a_demo_goes_through_all_stages(name, monkeypatch, tmp_path, capsys):
    reached = []

    def command(module, *arguments):
        reached.append(module)
        if module == "training.evaluate":
            (tmp_path / "evaluation.json").write_text('{"exact": 12.5, "auc": 0.9, "per": 3.0}')

    @contextlib.contextmanager
    def server(model, path, log):
        reached.append(model)
        yield "localhost:1"

    asked = []
    task = tasks.TASKS[name]
    monkeypatch.setattr(stages, "command", command)
    monkeypatch.setattr(stages, "server", server)
    demo = dataclasses.replace(task, ask=lambda *arguments: asked.append(arguments))
    monkeypatch.setitem(tasks.TASKS, name, demo)
    tasks.main([name, "--output", str(tmp_path), "--seed", "5"])
    wanted = ["training.train", "training.evaluate", "serving.export", "serving.check", name]
    assert reached == wanted
    assert asked == [("localhost:1", tmp_path, 5)]
    assert "[5/5]" in capsys.readouterr().out
    override(load_preset(task.preset), task.settings)


def test_each_phone_has_the_letter_that_was_looked_at_most_under_it():
    weights = ((0.7, 0.2, 0.1), (0.1, 0.3, 0.6))
    shown = tasks.letters_under_phones(Alignment("CH AY1", ("a", "b", "c"), ("CH", "AY1"), weights))
    assert [row.split() for row in shown.splitlines()] == [["CH", "AY1"], ["a", "c"]]
    assert [len(row) for row in shown.splitlines()] == [13, 11]
    assert shown.splitlines()[1].index("c") == shown.splitlines()[0].index("AY1")


def test_a_demo_leaves_what_it_did_not_make(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match=r"holds thesis\.tex, which the demo did not make"):
        tasks.main(["digits", "--output", str(tmp_path)])
