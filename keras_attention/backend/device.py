"""The device that code is made for: asked here, and nowhere else."""

from __future__ import annotations

import os

import keras


def on_gpu() -> bool:
    """Whether Keras's backend computes on a GPU.

    `KERAS_ATTENTION_DEVICE` overrides what the backend sees: with `gpu`, what a card would run is
    traced and compiled on a machine without one; with `cpu`, the other way round.

    Raises:
        ValueError: the variable has another value.
    """
    wanted = os.environ.get("KERAS_ATTENTION_DEVICE", "")
    if wanted not in ("", "cpu", "gpu"):
        raise ValueError(f"KERAS_ATTENTION_DEVICE expected cpu or gpu. Received: {wanted}")
    if wanted:
        return wanted == "gpu"
    name = keras.backend.backend()
    if name == "tensorflow":
        import tensorflow as tf

        return bool(tf.config.list_physical_devices("GPU"))
    if name == "jax":
        import jax

        return bool(jax.default_backend() == "gpu")
    import torch

    return bool(torch.cuda.is_available())
