"""The backend in use: for each name of `generic.py`, which says what it does, its own way."""

from __future__ import annotations

import keras

if keras.backend.backend() == "tensorflow":
    from keras_attention.fast.tensorflow import (
        average,
        builds_graph,
        compiled,
        forward_mode,
        fuses_sums,
        gather,
        gather_in_rows,
        in_loop,
        project,
        pull_back,
        scan,
        times_transposed,
        under_xla,
        unfold,
    )
elif keras.backend.backend() == "jax":
    from keras_attention.fast.jax import (
        average,
        builds_graph,
        compiled,
        forward_mode,
        fuses_sums,
        gather,
        gather_in_rows,
        in_loop,
        project,
        pull_back,
        scan,
        times_transposed,
        under_xla,
        unfold,
    )
else:
    from keras_attention.fast.generic import (
        average,
        builds_graph,
        compiled,
        forward_mode,
        fuses_sums,
        gather,
        gather_in_rows,
        in_loop,
        project,
        pull_back,
        scan,
        times_transposed,
        under_xla,
        unfold,
    )

__all__ = [
    "average",
    "builds_graph",
    "compiled",
    "forward_mode",
    "fuses_sums",
    "gather",
    "gather_in_rows",
    "in_loop",
    "project",
    "pull_back",
    "scan",
    "times_transposed",
    "under_xla",
    "unfold",
]
