import os
import subprocess
import sys

import pytest

from training.command.native import GPU_FLAGS, keep_programs, start_tensorflow, without_native_log


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
