"""Operations that depend on the backend.

`_generic.py` defines and documents all of them. The file of the backend in use replaces some.
"""

from __future__ import annotations

import keras

from keras_attention.backend._generic import *

IS_TENSORFLOW = keras.backend.backend() == "tensorflow"

if IS_TENSORFLOW:
    from keras_attention.backend._gpu_scan import checkpointed
    from keras_attention.backend._on_tensorflow import *
elif keras.backend.backend() == "jax":
    from keras_attention.backend._on_jax import *
elif keras.backend.backend() == "torch":
    from keras_attention.backend._on_torch import *
