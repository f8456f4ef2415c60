"""Lines that native code writes to standard error whatever the log level."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


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
