import os
import subprocess
import sys
from pathlib import Path

import pytest

from training.command.native import (
    FLAG,
    GPU_FLAGS,
    VARIABLE,
    has_gpu,
    keep_programs,
    set_gpu_flags,
    without_native_log,
)


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


@pytest.mark.parametrize(
    ("own", "folder"),
    [
        (f"{FLAG}=/mine", Path("/mine")),
        (f"--tf_xla_auto_jit=0 {FLAG}='/mine' --tf_xla_max_cluster_size=9", Path("/mine")),
        (f"{FLAG}=", None),  # the user keeps none
        ("/of/mine/flags.txt", None),  # TensorFlow reads this file alone
    ],
)
def test_a_users_own_flags_of_tensorflow_stay(monkeypatch, own, folder):
    monkeypatch.setenv(VARIABLE, own)
    assert keep_programs() == folder
    assert os.environ[VARIABLE] == own


@pytest.mark.parametrize("visible", ["", " ", "-1", "-1,0"])
def test_a_hidden_gpu_is_none(monkeypatch, visible):
    monkeypatch.delenv("KERAS_ATTENTION_DEVICE", raising=False)
    monkeypatch.setattr(Path, "exists", lambda path: True)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert has_gpu()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert not has_gpu()


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


OWN = "--xla_gpu_autotune_level=3"


@pytest.mark.parametrize(
    ("device", "own", "expected"),
    [
        ("gpu", None, " ".join(GPU_FLAGS)),
        ("cpu", None, None),
        ("gpu", OWN, OWN),
        ("gpu", "", ""),
        ("gpu", " ", " "),
        ("gpu", GPU_FLAGS[0], GPU_FLAGS[0]),  # one of these alone
        ("gpu", f"'{OWN}'", f"'{OWN}'"),
        ("cpu", OWN, OWN),
    ],
)
def test_xla_has_a_gpus_flags_where_the_user_has_none(monkeypatch, device, own, expected):
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", device)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if own is not None:
        monkeypatch.setenv("XLA_FLAGS", own)
    set_gpu_flags()
    assert os.environ.get("XLA_FLAGS") == expected


def test_tensorflow_has_read_the_flags_when_a_command_imports_it():
    """XLA ends the process at a flag that it does not know."""
    code = (
        "import training.command.startup, os, tensorflow as tf\n"
        "print(tf.function(lambda x: x + 1, jit_compile=True)(1).numpy(), os.environ['XLA_FLAGS'])"
    )
    environment = {**os.environ, "KERAS_ATTENTION_DEVICE": "gpu"}
    environment.pop("XLA_FLAGS", None)
    printed = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment)
    assert printed.split() == ["2", *GPU_FLAGS]


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
