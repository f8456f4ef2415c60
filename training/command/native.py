"""TensorFlow's native side: the lines that it logs; XLA's flags, and the programs that it keeps."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def without_native_log() -> Iterator[None]:
    """Drop what is written to file descriptor 2; show it where an error is raised.

    `TF_CPP_MIN_LOG_LEVEL=0` shows it all.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") == "0" or sys.stderr is None:  # it is closed
        yield
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        except Exception:  # neither Ctrl-C nor an end
            os.dup2(stderr, 2)
            log.seek(0)
            os.write(2, log.read())
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


# TensorFlow reads them when it is imported. Reasons: seconds of the first step, milliseconds of a
# step, preset tatoeba-en-fr, 128 sentences, one H200, 16 cores, TensorFlow 2.21, 2026-11-27.
GPU_FLAGS = (
    "--xla_gpu_autotune_level=0",  # 62, 7.6 without it; 30, 10.9: Triton's products, not tuned
    "--xla_gpu_enable_triton_gemm=false",  # 24, 7.0: cuBLAS's products, which need no tuning
    f"--xla_gpu_force_compilation_parallelism={os.cpu_count()}",  # 19, 6.2
)


def has_gpu() -> bool:
    """Whether TensorFlow may find a GPU: NVIDIA's driver is there, and not hidden from it.

    `KERAS_ATTENTION_DEVICE` overrides it, as in `keras_attention`. TensorFlow itself, once it is
    imported, has read its flags.
    """
    device = os.environ.get("KERAS_ATTENTION_DEVICE")
    if device or os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() in ("", "-1"):
        return device == "gpu"
    return Path("/dev/dxg").exists() or any(Path("/dev").glob("nvidia[0-9]*"))  # WSL2, Linux


def set_gpu_flags() -> None:
    """Set `GPU_FLAGS` where there is a GPU; the user's own `XLA_FLAGS`, empty too, stay as is.

    Call this before TensorFlow is imported.
    """
    if has_gpu():
        os.environ.setdefault("XLA_FLAGS", " ".join(GPU_FLAGS))


VARIABLE = "TF_XLA_FLAGS"  # which TensorFlow reads when it is imported
FLAG = "--tf_xla_persistent_cache_directory"


def keep_programs() -> Path | None:
    """Have TensorFlow keep its programs in the user's cache; call this before it is imported.

    The folder, which is returned, is made for its user alone: what lies there is run. One that the
    variable names stays, and a file of flags, a value without a dash; None where there is none.
    """
    flags = os.environ.get(VARIABLE, "").strip()
    if FLAG in flags or flags[:1] not in ("", "-"):
        own = flags.partition(f"{FLAG}=")[2].partition(" ")[0].strip("'\"")
        return Path(own) if own else None
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache, "keras-attention", "xla")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError:
        return None
    if " " in str(folder):  # where TensorFlow ends a flag
        return None
    os.environ[VARIABLE] = f"{flags} {FLAG}={folder}".strip()
    return folder
