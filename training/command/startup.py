"""TensorFlow with `GPU_FLAGS`, without the six lines that it logs; import this before it.

It logs them before it reads any setting of its log level. The garbage collector passes over the
million objects that its modules are: 4.9 s of a processor for a translation, not 5.5.
"""

import gc
import os

from training.command.native import GPU_FLAGS, without_native_log

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("XLA_FLAGS", " ".join(GPU_FLAGS))  # the user's own, empty too, stay
gc.disable()
with without_native_log():
    import tensorflow  # noqa: F401
gc.freeze()
gc.enable()
