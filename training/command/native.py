"""TensorFlow's native side: the lines that it logs, and the programs that XLA keeps."""

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


VARIABLE = "TF_XLA_FLAGS"  # which TensorFlow reads when it is imported
FLAG = "--tf_xla_persistent_cache_directory"


def keep_programs() -> Path | None:
    """Have TensorFlow keep its programs in the user's cache; call this before it is imported.

    The folder, which is returned, is made for its user alone: what lies there is run. One that the
    variable names already stays; None where none can be made or named.
    """
    flags = os.environ.get(VARIABLE, "")
    if FLAG in flags:
        return Path(flags.partition(f"{FLAG}=")[2].partition(" ")[0])
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
