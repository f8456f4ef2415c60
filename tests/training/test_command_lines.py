"""Ctrl-C ends with 130 and how to go on; streams may be closed or without letters."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from training import translate
from training.command.options import main_guard

RUN = Path(__file__).parents[1] / "fixtures" / "old_run" / "run"


def run(*words, program=sys.executable, **variables):
    environment = {**os.environ, **variables}
    return subprocess.run([program, *words], capture_output=True, text=True, env=environment)


def test_an_interrupted_command_ends_with_130(monkeypatch, capsys):
    interrupted = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("training.runs.run.load_translators", interrupted)
    with pytest.raises(SystemExit) as ended:
        main_guard(lambda: translate.main(["--run", str(RUN)]))
    assert ended.value.code == 130
    assert capsys.readouterr().err.endswith("\nInterrupted.\n")


@pytest.mark.parametrize(
    "command", ["training.train", "serving.client read", "serving.export", "serving.commands"]
)
def test_a_command_that_is_interrupted_while_it_is_imported_has_no_trace(command, tmp_path):
    (tmp_path / "argparse.py").write_text("raise KeyboardInterrupt")
    (tmp_path / "difflib.py").write_text("raise KeyboardInterrupt")
    done = run(
        "-m", *command.split(), PYTHONPATH=f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"
    )
    assert (done.returncode, done.stderr) == (130, "\nInterrupted.\n")


@pytest.mark.parametrize(
    ("begun", "said"),
    [
        (True, "continue with python -m training.train --resume --output 'a run'"),
        (False, "the run had not started. Give the same command again"),
    ],
)
def test_an_interrupted_training_says_how_to_go_on(begun, said, tmp_path, monkeypatch, capsys):
    def interrupted(config, output, init=None, processes=None):
        output.mkdir()
        if begun:
            config.save(output / "config.toml")
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("training.fit._train.train", interrupted)
    train = importlib.import_module("training.train")
    with pytest.raises(SystemExit) as ended:
        main_guard(lambda: train.main(["--preset", "cmudict", "--output", "a run"]))
    assert ended.value.code == 130
    assert capsys.readouterr().err == f"\nInterrupted: {said}\n"


def test_a_resumed_run_has_no_preset_beside_its_place(tmp_path, monkeypatch, capsys):
    """A preset alone names the place; nothing else of it is read."""
    train = importlib.import_module("training.train")
    gone_on = []
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RUN, "runs/cmudict")
    monkeypatch.setattr("training.fit._train.resume", lambda path, *more: gone_on.append(path))
    monkeypatch.setattr(train, "summary", lambda files: {})
    train.main(["--resume", "--preset", "cmudict"])
    assert [str(path) for path in gone_on] == ["runs/cmudict"]


def test_a_closed_standard_output_and_error_end_no_command(tmp_path):
    file = tmp_path / "said"
    code = (
        "from training.command.options import main_guard\n"
        "def main():\n"
        f"    with open({str(file)!r}, 'w') as file:\n"
        "        print('out'); import os; os.write(1, b'1'); os.write(2, b'2')\n"
        "        file.write('kept')\n"
        "main_guard(main)"
    )
    done = run("-c", 'exec "$0" -c "$1" >&- 2>&-', sys.executable, code, program="bash")
    assert done.returncode == 0
    assert file.read_text() == "kept"


def test_a_full_disk_under_the_standard_output_is_one_line():
    words = ("-c", 'exec "$0" -m training.phrasebook > /dev/full', sys.executable)
    done = run(*words, program="bash")
    assert done.returncode == 1
    assert done.stderr.startswith("error: No space left on device: standard output. Free some")
    assert done.stderr.count("\n") == 1


def test_letters_without_an_encoding_are_escaped():
    phrasebook = ("-m", "training.phrasebook", "--pair", "en-zh", "--count")
    done = run(*phrasebook, "3", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "\\u" in done.stdout
    done = run(*phrasebook, "é", PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert "\\xe9" in done.stderr
    assert "Traceback" not in done.stderr
