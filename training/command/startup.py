"""TensorFlow with XLA's flags for a GPU, without the lines that it logs; import this before it.

The lines say that there is no GPU and how to get other rounding, and come before any setting of the
log level is looked at. `TF_CPP_MIN_LOG_LEVEL=0` shows them.

The million objects that TensorFlow's modules are stay: the garbage collector does not look at them
again and again, which took a second of the four that the import takes.
"""

import gc
import os
import sys

from training.command.native import set_gpu_flags, without_native_log

set_gpu_flags()

if os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") != "0" and "tensorflow" not in sys.modules:
    gc.disable()
    with without_native_log():
        import tensorflow  # noqa: F401
    gc.freeze()
    gc.enable()
