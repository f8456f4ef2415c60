"""Operations that a backend may replace by its own: `generic.py` documents each."""

from __future__ import annotations

import keras

from keras_attention.backend.generic import (
    add_in_rows,
    average,
    builds_graph,
    compiled,
    fuses_sums,
    gather,
    gather_in_rows,
    greatest,
    has_kernel,
    in_loop,
    in_place_additive,
    is_eager,
    is_tensorflow,
    matmul,
    project,
    scan,
    share,
    times_transposed,
    traces_onnx,
    under_dynamo,
    under_xla,
    unfold,
    writes_in_place,
)

if keras.backend.backend() == "tensorflow":
    from keras_attention.backend.tensorflow import (
        average,
        builds_graph,
        compiled,
        gather,
        gather_in_rows,
        in_loop,
        is_eager,
        is_tensorflow,
        project,
        scan,
        share,
        times_transposed,
        under_xla,
        unfold,
    )
elif keras.backend.backend() == "jax":
    from keras_attention.backend.jax import (
        fuses_sums,
        is_eager,
        project,
        scan,
        under_xla,
        unfold,
    )
elif keras.backend.backend() == "torch":
    from keras_attention.backend.torch import (
        add_in_rows,
        average,
        gather_in_rows,
        greatest,
        has_kernel,
        in_place_additive,
        matmul,
        project,
        traces_onnx,
        under_dynamo,
        writes_in_place,
    )
