"""The backend in use: for each name of `generic.py`, which says what it does, its own way."""

from __future__ import annotations

import importlib

import keras

from keras_attention.fast.generic import (
    average,
    builds_graph,
    compiled,
    forward_mode,
    fuses_sums,
    gather,
    gather_in_rows,
    in_loop,
    in_place_additive,
    project,
    pull_back,
    scan,
    times_transposed,
    under_xla,
    unfold,
    writes_in_place,
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
    "in_place_additive",
    "project",
    "pull_back",
    "scan",
    "times_transposed",
    "under_xla",
    "unfold",
    "writes_in_place",
]

# What a backend has of its own takes the place of the plain way, and has its types.
if keras.backend.backend() in ("tensorflow", "jax", "torch"):
    _own = importlib.import_module(f"keras_attention.fast.{keras.backend.backend()}")
    globals().update({name: getattr(_own, name) for name in __all__ if hasattr(_own, name)})
