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


BACKENDS = ("tensorflow", "jax", "torch")


def chosen_backend() -> str:
    """Return Keras's backend, as the environment variable KERAS_BACKEND chooses it.

    Raises UserError if the backend is unknown or not installed.
    """
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    there = [name for name in BACKENDS if importlib.util.find_spec(name)]
    if backend not in BACKENDS:
        raise UserError(f"KERAS_BACKEND must be tensorflow, jax or torch. It is {backend}")
    if backend not in there:
        if backend == "tensorflow" and not there:
            raise UserError(f"tensorflow is not installed: {install('training')}")
        choice = f". Installed: {', '.join(there)}. Choose it with KERAS_BACKEND" if there else ""
        raise UserError(f"{backend} is not installed{choice}")
    return backend


def has_packages(package: str) -> bool:
    """Return whether all packages of `NEEDED` are installed."""
    return all(importlib.util.find_spec(module) for module in NEEDED[package])


def need(package: str, any_backend: bool = False) -> None:
    """Check a command's packages and select Keras's backend.

    Call this after the arguments are checked.

    Args:
        package: "training" or "serving", a key of `NEEDED`.
        any_backend: whether the command also runs on JAX and PyTorch; otherwise TensorFlow is
            selected, with a note if the user chose another backend.

    Raises UserError if a package is missing.
    """
    refuse_windows()
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    for module in NEEDED[package]:
        if importlib.util.find_spec(module) is None:
            way = ""
            if any_backend and backend != "tensorflow":
                way = (
                    f". To train on {backend} without it, run training.prepare on another machine, "
                    "copy the run here, and give --resume --output RUN"
                )
            raise UserError(f"{module} is not installed: {install(package)}{way}")
    if "keras" in sys.modules:  # the backend is already set
        return
    if not any_backend:
        if backend != "tensorflow":
            print(f"note: this command runs on TensorFlow, not on {backend}", file=sys.stderr)
        backend = "tensorflow"
    os.environ["KERAS_BACKEND"] = backend
    if backend == "tensorflow":
        keep_programs()


def start_tensorflow() -> None:
    """Import TensorFlow with `GPU_FLAGS`, or with the user's XLA flags, and without its log.

    TensorFlow logs six lines before it reads its log level. If TensorFlow is already imported,
    this function does nothing. If Keras runs on another backend, TensorFlow only reads data: it
    gets no GPU, and no flags, which JAX would read, too.
    """
    if "tensorflow" in sys.modules:
        return
    computes = (os.environ.get("KERAS_BACKEND") or "tensorflow") == "tensorflow"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if computes:
        os.environ.setdefault("XLA_FLAGS", " ".join(GPU_FLAGS))  # empty flags of the user stay
    gc.disable()  # a collection would scan the modules' million objects: 2 s of processor time
    with without_native_log():
        import tensorflow as tf

        if not computes:
            tf.config.set_visible_devices([], "GPU")
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
