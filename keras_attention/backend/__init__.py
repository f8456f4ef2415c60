"""Operations that a backend may replace by its own: `generic.py` documents each."""

from __future__ import annotations

import keras

from keras_attention.backend.generic import (
    add_in_rows,
    additive,
    average,
    exporting,
    fast_paths,
    for_gpu,
    gather,
    gather_in_rows,
    in_gpu_loop,
    is_concrete,
    on_gpu,
    project,
    saved,
    scan,
    settings,
    share,
    traces_onnx,
    under_xla,
    unfold,
    within,
)

IS_TENSORFLOW = keras.backend.backend() == "tensorflow"

if IS_TENSORFLOW:
    from keras_attention.backend.gpu_scan import saved
    from keras_attention.backend.on_tensorflow import (
        additive,
        average,
        for_gpu,
        gather,
        gather_in_rows,
        in_gpu_loop,
        is_concrete,
        on_gpu,
        project,
        scan,
        under_xla,
        unfold,
    )
elif keras.backend.backend() == "jax":
    from keras_attention.backend.on_jax import (
        additive,
        for_gpu,
        is_concrete,
        on_gpu,
        project,
        scan,
        under_xla,
        unfold,
    )
elif keras.backend.backend() == "torch":
    from keras_attention.backend.on_torch import (
        add_in_rows,
        additive,
        gather_in_rows,
        is_concrete,
        traces_onnx,
        unfold,
    )
