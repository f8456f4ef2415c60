"""Operations that a backend may replace by its own.

`generic.py` documents each. The file of the backend in use replaces those that it has, too.
"""

from __future__ import annotations

import keras

from keras_attention.backend.generic import *

IS_TENSORFLOW = keras.backend.backend() == "tensorflow"

if IS_TENSORFLOW:
    from keras_attention.backend.gpu_scan import saved
    from keras_attention.backend.on_tensorflow import *
elif keras.backend.backend() == "jax":
    from keras_attention.backend.on_jax import *
elif keras.backend.backend() == "torch":
    from keras_attention.backend.on_torch import *
