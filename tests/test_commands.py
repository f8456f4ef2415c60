"""What holds for every command: help, one line for a mistake, nothing written, the backend."""

import ast
import contextlib
import importlib
import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from serving.commands import COMMANDS
from training.cli import main_guard

ROOT = Path(__file__).parents[1]
RUN = ROOT / "tests" / "fixtures" / "old_run" / "run"
MODULES = sorted(module for module, _ in COMMANDS.values())
WITHOUT_TENSORFLOW = {  # they run on any backend, or import it when they know what for
    "serving.batch",
    "serving.client",
    "serving.demo",
    "serving.page",
    "serving.predict",
    "serving.read",
    "serving.server",
    "serving.tasks",
    "training.phrasebook",
    "training.pictures",
    "training.presets",
    "training.train_arrays",
}
# What a user may get wrong, by command; RUN is a trained run, NEW a place for results.
MISTAKES = [
    ("training.train", ["--preset", "nothing", "--output", "NEW"], "unknown preset 'nothing'"),
    ("training.train", ["--data", "tsv:/no.tsv", "--output", "NEW"], "Cannot read /no.tsv"),
    ("training.train", ["--preset", "cmudict", "--set", "clip_norm=-1"], "clip_norm expected more"),
    ("training.train", ["--what"], "unrecognized arguments: --what"),
    ("training.prepare", ["--preset", "nothing", "--output", "NEW"], "unknown preset 'nothing'"),
    ("training.prepare", ["--output", "NEW"], "say what to train with --preset"),
    ("training.train_arrays", ["NEW"], "is not prepared"),
    ("training.evaluate", ["--run", "NEW"], "is not a run"),
    ("training.evaluate", ["--run", "RUN", "--length-penalty", "-1"], "at least 0, not -1"),
    ("training.evaluate", ["--run", "RUN", "--output", "NEW/a.json"], "there is no directory"),
    ("training.evaluate", ["--run", "RUN", "--hypotheses", "RUN"], "it is a directory"),
    ("training.evaluate", ["--run", "RUN", "--data", "tsv:/no.tsv"], "Cannot read /no.tsv"),
    ("training.translate", ["--run", "NEW"], "is not a run"),
    ("training.translate", [], "required: --run"),
    ("training.translate", ["--run", "RUN", "/no.txt"], "No such file or directory: /no.txt"),
    ("training.phrasebook", ["--pair", "en-xx"], "en-xx"),
    ("training.presets", ["--what"], "unrecognized arguments: --what"),
    ("training.study", ["nothing"], "invalid choice: 'nothing'"),
    ("serving.export", ["--run", "NEW", "--output", "NEW"], "is not a run"),
    ("serving.export", ["--run", "RUN", "--output", "NEW", "--length-penalty", "-1"], "-1"),
]


def filled(words, run, new):
    names = {"RUN": str(run), "NEW": str(new)}
    return [word.replace("RUN", names["RUN"]).replace("NEW", names["NEW"]) for word in words]


def module_of(name):
    path = ROOT.joinpath(*name.split("."))
    return importlib.import_module(f"{name}.__main__" if path.is_dir() else name)


def fails(name, words, capsys):
    """Run a command that fails; return what it says, which is one line and no trace."""
    with pytest.raises(SystemExit) as ended:
        main_guard(lambda: module_of(name).main(words))
    said = capsys.readouterr().err
    if isinstance(ended.value.code, str):  # which Python prints, and exits with status 1
        said = ended.value.code
    else:
        assert ended.value.code != 0
    last = said.strip().splitlines()[-1]
    assert "error: " in last
    assert "Traceback" not in said
    return last


@pytest.mark.parametrize("name", MODULES)
def test_help_says_what_the_command_does(name, capsys):
    with pytest.raises(SystemExit) as ended:
        module_of(name).main(["--help"])
    assert ended.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 5


@pytest.mark.parametrize(("name", "words", "said"), MISTAKES)
def test_a_mistake_is_one_line_and_leaves_nothing_behind(
    name, words, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in RUN.rglob("*")}
    assert said in fails(name, filled(words, RUN, tmp_path / "new"), capsys)
    assert list(tmp_path.iterdir()) == []
    assert {path: path.stat().st_mtime_ns for path in RUN.rglob("*")} == before


@pytest.mark.parametrize("name", ["training.evaluate", "training.translate", "serving.export"])
@pytest.mark.parametrize("damaged", ["config.toml", "source.tokenizer", "best.weights.h5"])
def test_a_damaged_run_is_one_line_that_names_the_file(name, damaged, tmp_path, capsys):
    run = shutil.copytree(RUN, tmp_path / "run")
    content = (run / damaged).read_bytes()
    (run / damaged).write_bytes(content[: len(content) // 2])
    words = ["--run", str(run), *(["--output", str(tmp_path / "m")] if "export" in name else [])]
    assert str(run) in fails(name, words, capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_commands_that_need_tensorflow_import_what_chooses_it_first():
    for name in set(MODULES) - WITHOUT_TENSORFLOW:
        path = Path(module_of(name).__file__)
        imported = [
            node
            for node in ast.parse(path.read_text(encoding="utf-8")).body
            if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        names = [node.names[0].name for node in imported if isinstance(node, ast.Import)]
        assert {"training.quiet", "training.extras"} & set(names), name


def test_on_another_backend_a_command_says_that_it_runs_on_tensorflow_and_does(tmp_path):
    """The bar goes to standard error, which is a terminal; lines stay lines; nothing is logged."""
    (tmp_path / "in.txt").write_text("He sleeps.\n\nShe eats.\n")
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "training.translate", "--run", str(RUN), str(tmp_path / "in.txt")],
        env={**os.environ, "KERAS_BACKEND": "jax", "TF_CPP_MIN_LOG_LEVEL": "3", "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        check=True,
        text=True,
    )
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while more := os.read(ours, 100_000):
            said += more
    os.close(ours)
    said = said.decode()
    assert done.stdout.count("\n") == 3
    assert done.stdout.split("\n")[1] == ""
    assert "\x1b" not in done.stdout
    assert said.startswith("note: this command runs on TensorFlow, not on jax")
    assert "lines" in said  # the bar
    assert "LOG(INFO)" not in said


def test_presets_and_corpora_are_listed(capsys):
    from training.presets.__main__ import main

    main([])
    listed = capsys.readouterr().out
    for text in ("tatoeba-en-fr", "160,575 pairs", "BLEU 49.3 on dev", "alibi-en-fr"):
        assert text in listed
    main(["--json"])
    found = json.loads(capsys.readouterr().out)
    assert {"presets", "corpora"} == found.keys()
