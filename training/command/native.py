"""TensorFlow as commands start it: its packages, flags of XLA, programs that are kept, its log."""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.command.errors import UserError, install, refuse_windows

TRAINING = ("tensorflow", "tensorflow_text", "sentencepiece", "sacrebleu", "rich")
NEEDED = {"training": TRAINING, "serving": (*TRAINING, "grpc", "grpc_health", "tensorflow_serving")}
# Reasons: seconds of the first step, milliseconds of a step, preset tatoeba-en-fr, 128 sentences,
# one H200, 16 cores, TensorFlow 2.21, 2026-11-27. XLA reads them for a GPU alone.
GPU_FLAGS = (
    "--xla_gpu_autotune_level=0",  # 62, 7.6 without it; 30, 10.9: Triton's products, not tuned
    "--xla_gpu_enable_triton_gemm=false",  # 24, 7.0: cuBLAS's products, which need no tuning
    f"--xla_gpu_force_compilation_parallelism={os.cpu_count()}",  # 19, 6.2
)
NAMES = 2**17  # more than are counted before a training; 0.07 s


def need(package: str, other: str = "") -> None:
    """Have Keras run on TensorFlow; a command calls this once its arguments are right.

    `other` says which command runs on other backends. Raises UserError where a package is missing.
    """
    refuse_windows()
    for module in NEEDED[package]:
        if importlib.util.find_spec(module) is None:
            raise UserError(f"{module} is not installed: {install(package)}")
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    if "keras" in sys.modules:  # its backend is set already
        return
    if backend != "tensorflow":
        print(f"note: this command runs on TensorFlow, not on {backend}{other}", file=sys.stderr)
    os.environ["KERAS_BACKEND"] = "tensorflow"
    keep_programs()


def start_tensorflow() -> None:
    """Import TensorFlow with `GPU_FLAGS`, or the user's own flags, and without its log.

    It logs six lines before it reads any setting of its log level. Nothing changes where it is
    imported already.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("XLA_FLAGS", " ".join(GPU_FLAGS))  # empty ones stay, too
    gc.disable()  # it would pass over the million objects of the modules: 2 s of a processor
    with without_native_log():
        import tensorflow  # noqa: F401
    gc.freeze()
    gc.enable()


def keep_programs() -> Path | None:
    """Have TensorFlow keep its programs in the user's cache; call this before it is imported.

    The folder, which is returned, is made for its user alone: what lies there is run. None where it
    cannot be made, and where the user has `TF_XLA_FLAGS`, which stay as they are.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache, "keras-attention", "xla")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError:
        return None
    flag = f"--tf_xla_persistent_cache_directory='{folder}'"
    return folder if os.environ.setdefault("TF_XLA_FLAGS", flag) == flag else None


def count_names_anew() -> None:
    """Have a program named alike whatever was computed before it: kept programs go by their names.

    TensorFlow counts its tensors, and names functions by the count. A training that goes on has
    read other files than one that begins, and would compile its steps again.
    """
    from tensorflow.python.framework import ops  # no public name

    while ops.uid() % NAMES:
        pass


@contextmanager
def without_native_log() -> Iterator[None]:
    """Drop all output to file descriptor 2; `TF_CPP_MIN_LOG_LEVEL=0` shows it all."""
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0" or sys.stderr is None:  # it is closed
        yield
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
