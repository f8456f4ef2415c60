"""Ctrl-C, closed streams, programs that are kept, and logs of native code."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from training import train, translate
from training.command.native import GPU_FLAGS, keep_programs, start_tensorflow, without_native_log
from training.command.options import main_guard

RUN = Path(__file__).parents[2] / "fixtures" / "old_run" / "run"


def run(*words, program=sys.executable, **variables):
    environment = {**os.environ, **variables}
    return subprocess.run([program, *words], capture_output=True, text=True, env=environment)


def interrupted(main, words, capsys):
    """What a command that is interrupted prints on standard error."""
    with pytest.raises(SystemExit) as ended:
        main_guard(lambda: main(words))
    assert ended.value.code == 130
    return capsys.readouterr().err


def test_an_interrupted_command_ends_with_130(monkeypatch, capsys):
    stopped = Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("training.runs.run.load_translators", stopped)
    assert interrupted(translate.main, ["--run", str(RUN)], capsys).endswith("\nInterrupted.\n")


@pytest.mark.parametrize(
    "command", ["training.train", "serving.client read", "serving.export", "serving.commands"]
)
def test_a_command_that_is_interrupted_while_it_is_imported_has_no_trace(command, tmp_path):
    for name in ("argparse", "difflib"):
        (tmp_path / f"{name}.py").write_text("raise KeyboardInterrupt")
    path = f"{tmp_path}{os.pathsep}{Path(__file__).parents[3]}"
    done = run("-m", *command.split(), PYTHONPATH=path)
    assert (done.returncode, done.stderr) == (130, "\nInterrupted.\n")


@pytest.mark.parametrize(
    ("begun", "said"),
    [
        (True, "continue with python -m training.train --resume --output 'a run'"),
        (False, "the run had not started. Give the same command again"),
    ],
)
def test_an_interrupted_training_says_how_to_go_on(begun, said, tmp_path, monkeypatch, capsys):
    def stopped(config, output, init=None, processes=None):
        output.mkdir()
        if begun:
            config.save(output / "config.toml")
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("training.fit._train.train", stopped)
    words = ["--preset", "cmudict", "--output", "a run"]
    assert interrupted(train.main, words, capsys) == f"\nInterrupted: {said}\n"


def test_a_resumed_run_has_no_preset_beside_its_place(tmp_path, monkeypatch, capsys):
    """A preset alone names the place; nothing else of it is read."""
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


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache of mine"))
    monkeypatch.delenv("TF_XLA_FLAGS", raising=False)
    return tmp_path / "cache of mine"


def test_programs_are_kept_for_their_user_alone(cache):
    folder = keep_programs()
    assert folder == cache / "keras-attention/xla"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert str(folder) in os.environ["TF_XLA_FLAGS"]
    assert keep_programs() == folder


def test_a_folder_that_cannot_be_made_is_left_out(cache):
    cache.write_text("a file")
    assert keep_programs() is None
    assert "TF_XLA_FLAGS" not in os.environ


@pytest.mark.parametrize("own", ["--tf_xla_auto_jit=0", "/of/mine/flags.txt", ""])
def test_a_users_own_flags_of_tensorflow_stay(monkeypatch, own):
    monkeypatch.setenv("TF_XLA_FLAGS", own)
    assert keep_programs() is None
    assert os.environ["TF_XLA_FLAGS"] == own


@pytest.mark.slow
def test_tensorflow_has_its_flags_and_finds_its_programs(cache):
    """XLA ends the process at a flag that it does not know."""
    code = (
        "from training.command.native import *; keep_programs(); start_tensorflow()\n"
        "import os, tensorflow as tf\n"
        "for i in range({before}): tf.constant(i)\n"
        "count_names_anew()\n"
        "print(tf.function(lambda x: x + 1, jit_compile=True)(1).numpy(), os.environ['XLA_FLAGS'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    for before in (7, 70):  # a training that begins, and one that goes on
        command = [sys.executable, "-c", code.format(before=before)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.split() == ["2", *GPU_FLAGS]
        assert "oneDNN" not in done.stderr
        assert len(list((cache / "keras-attention/xla").iterdir())) == 1


@pytest.mark.parametrize("own", ["--xla_gpu_autotune_level=3", ""])
def test_a_users_own_flags_of_xla_stay(monkeypatch, tmp_path, own):
    (tmp_path / "tensorflow.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tensorflow")
    monkeypatch.setenv("XLA_FLAGS", own)
    start_tensorflow()
    assert os.environ["XLA_FLAGS"] == own


@pytest.mark.parametrize("raised", [ValueError, KeyboardInterrupt])
def test_the_log_is_shown_again_after_an_error(raised, monkeypatch, capfd):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")

    def write():
        with without_native_log():
            os.write(2, b"said\n")
            raise raised

    with pytest.raises(raised):
        write()
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "later\n"


def test_a_closed_standard_error_has_no_log(monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.setattr(sys, "stderr", None)
    with without_native_log():
        pass
