"""Old names of commands and options of clients: they work, after a line that names the new one."""

import subprocess
import sys

import pytest

from serving import predict, read
from serving.client.__main__ import main
from serving.export import __main__ as export


@pytest.mark.parametrize(
    ("words", "notes"),
    [
        (["translate", "TEXT"], []),
        (["translate", "--show-scores", "TEXT"], []),
        (["TEXT"], ["python -m serving.client is now python -m serving.client translate"]),
        (["translate", "--scores", "TEXT"], ["--scores is now --show-scores"]),
        (["translate", "--score", "a\tb"], ["--score is now --score-pairs"]),
        (["translate", "--split", "--", "--text"], []),
    ],
)
def test_old_names_answer_after_a_note(words, notes, shared_server, capsys):
    common = ["--target", f"localhost:{shared_server.port}", "--model", "upper"]
    first, rest = (words[:1], words[1:]) if words[0] == "translate" else ([], words)
    status = main([*first, *common, *rest])
    out, err = capsys.readouterr()
    if "--score" in words:
        assert "score" in err.splitlines()[-1]  # this model has no such signature
    else:
        assert (status, out.strip().split("\t")[-1]) == (0, words[-1].upper())
    assert [line for line in err.splitlines() if line.startswith("note: ")] == [
        f"note: {note}" for note in notes
    ]


@pytest.mark.parametrize("old", [read, predict])
def test_commands_that_had_a_module_of_their_own_name_the_new_one(old, capsys):
    assert old.main(["--model", "m", "--target", "localhost:1", "/no"]) == 1
    name = old.__name__.removeprefix("serving.")
    note, error = capsys.readouterr().err.splitlines()
    assert note == f"note: python -m serving.{name} is now python -m serving.client {name}"
    assert "/no" in error


def test_the_client_lists_its_commands():
    words = [sys.executable, "-m", "serving.client"]
    for more, status in (["--help"], 0), ([], 2):
        done = subprocess.run([*words, *more], capture_output=True, text=True, check=False)
        assert done.returncode == status
        assert [line.split()[0] for line in done.stdout.splitlines()[-3:]] == [
            "translate",
            "read",
            "predict",
        ]


def test_an_option_of_the_export_names_the_new_one(capsys):
    with pytest.raises(SystemExit):
        export.main(["--run", "r", "--output", "o", "--no-tables"])
    note, error = capsys.readouterr().err.splitlines()
    assert note == "note: --no-tables is now --small"
    assert "--small needs --format onnx" in error
