"""Operations that a backend may replace by its own: `generic.py` documents each."""

from __future__ import annotations

import keras

from keras_attention.backend.generic import (
    add_in_rows,
    additive,
    average,
    for_gpu,
    gather,
    gather_in_rows,
    greatest,
    in_loop,
    is_concrete,
    is_tensorflow,
    matmul,
    on_gpu,
    project,
    saved,
    scan,
    share,
    times_transposed,
    traces_onnx,
    under_xla,
    unfold,
)

if keras.backend.backend() == "tensorflow":
    from keras_attention.backend.gpu_scan import saved
    from keras_attention.backend.on_tensorflow import (
        additive,
        average,
        gather,
        gather_in_rows,
        is_concrete,
        is_tensorflow,
        project,
        scan,
        share,
        times_transposed,
        unfold,
    )
    from keras_attention.backend.tensorflow_graphs import for_gpu, in_loop, on_gpu, under_xla
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
        greatest,
        is_concrete,
        traces_onnx,
        unfold,
    )
