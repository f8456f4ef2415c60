"""TensorFlow without the lines that it logs when it is imported; import this before it.

They say that there is no GPU and how to get other rounding, and come before any setting of the log
level is looked at. `TF_CPP_MIN_LOG_LEVEL=0` shows them.
"""

import os
import sys
import tempfile


def _import_tensorflow() -> None:
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            import tensorflow  # noqa: F401
        except BaseException:
            os.dup2(kept, 2)
            said.seek(0)
            os.write(2, said.read())
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") != "0" and "tensorflow" not in sys.modules:
    _import_tensorflow()
