"""How commands start TensorFlow: required packages, XLA flags, program cache, native log."""

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
# The comments give the seconds of the first step, then the milliseconds of a later step. Measured
# with preset tatoeba-en-fr, 128 sentences, one H200, 16 cores, TensorFlow 2.21, 2026-11-27. XLA
# reads these flags only for a GPU.
GPU_FLAGS = (
    "--xla_gpu_autotune_level=0",  # 62, 7.6 without it; 30, 10.9: Triton's products, not autotuned
    "--xla_gpu_enable_triton_gemm=false",  # 24, 7.0: cuBLAS's products, which need no tuning
    f"--xla_gpu_force_compilation_parallelism={os.cpu_count()}",  # 19, 6.2
)
NAMES = 2**17  # more names than TensorFlow counts before a training; counting takes 0.07 s


def need(package: str, other: str = "") -> None:
    """Check a command's packages and select TensorFlow as Keras's backend.

    Call this after the arguments are checked.

    Args:
        package: "training" or "serving", a key of `NEEDED`.
        other: text for the note, which says which command runs on other backends.

    Raises UserError if a package is missing.
    """
    refuse_windows()
    for module in NEEDED[package]:
        if importlib.util.find_spec(module) is None:
            raise UserError(f"{module} is not installed: {install(package)}")
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    if "keras" in sys.modules:  # the backend is already set
        return
    if backend != "tensorflow":
        print(f"note: this command runs on TensorFlow, not on {backend}{other}", file=sys.stderr)
    os.environ["KERAS_BACKEND"] = "tensorflow"
    keep_programs()


def start_tensorflow() -> None:
    """Import TensorFlow with `GPU_FLAGS`, or with the user's XLA flags, and without its log.

    TensorFlow logs six lines before it reads its log level. If TensorFlow is already imported,
    this function does nothing.
    """
    if "tensorflow" in sys.modules:
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("XLA_FLAGS", " ".join(GPU_FLAGS))  # empty flags of the user stay, too
    gc.disable()  # a collection would scan the modules' million objects: 2 s of processor time
    with without_native_log():
        import tensorflow  # noqa: F401
    gc.freeze()
    gc.enable()


def keep_programs() -> Path | None:
    """Make TensorFlow cache its XLA programs in the user's cache; return the cache folder.

    Call this before TensorFlow is imported. Only the user can read or write the folder, because
    the programs in it are executed. Returns None if the folder cannot be created, or if the user
    has set `TF_XLA_FLAGS`, which stay as they are.
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
    """Advance TensorFlow's name counter to a multiple of `NAMES`.

    TensorFlow names functions by a count of its tensors, and finds cached XLA programs by these
    names. A resumed training has read other files than a new training. Without this call, its
    names would differ and its steps would be compiled again.
    """
    from tensorflow.python.framework import ops  # TensorFlow has no public name for this

    while ops.uid() % NAMES:
        pass


@contextmanager
def without_native_log() -> Iterator[None]:
    """Discard all output to file descriptor 2, except if `TF_CPP_MIN_LOG_LEVEL=0`."""
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0" or sys.stderr is None:  # stderr is closed
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
