import os
import subprocess
import sys

import pytest

from training.command.native import FLAG, VARIABLE, keep_programs, without_native_log


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(VARIABLE, "--tf_xla_auto_jit=0")
    return tmp_path / "cache"


def test_programs_are_kept_for_their_user_alone(cache):
    folder = keep_programs()
    assert folder == cache / "keras-attention/xla"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert os.environ[VARIABLE] == f"--tf_xla_auto_jit=0 {FLAG}={folder}"
    assert keep_programs() == folder


def test_a_folder_that_cannot_be_made_or_named_is_left_out(monkeypatch, cache):
    cache.write_text("a file")
    assert keep_programs() is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache.parent / "of mine"))
    assert keep_programs() is None
    assert os.environ[VARIABLE] == "--tf_xla_auto_jit=0"


@pytest.mark.slow
def test_tensorflow_keeps_its_programs_there(cache):
    code = (
        "from training.command.native import keep_programs; folder = keep_programs()\n"
        "import tensorflow as tf\n"
        "tf.function(lambda x: tf.sin(x) + 1, jit_compile=True)(tf.ones(7))\n"
        "print(len(list(folder.iterdir())))"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert int(printed) > 0


@pytest.mark.parametrize(
    ("raised", "shown"), [(ValueError, "said\n"), (KeyboardInterrupt, ""), (SystemExit, "")]
)
def test_the_log_is_shown_where_an_error_is_raised(raised, shown, monkeypatch, capfd):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")

    def write():
        with without_native_log():
            os.write(2, b"said\n")
            raise raised

    with pytest.raises(raised):
        write()
    assert capfd.readouterr().err == shown
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "later\n"
