"""A head without a decoder: connectionist temporal classification over the columns of an image."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from training.config.schema import Config
from training.sources.image.source import convolve

Tensor = Any
BLANK = 0  # which is padding otherwise


def build_ctc(config: Config, target_vocab_size: int) -> keras.Model:
    """Build the convolutions of an image model with a recurrent layer over their columns.

    Each column says a token or nothing (Graves et al. 2006, "Connectionist Temporal
    Classification"), as in Keras's example of reading CAPTCHAs. Columns run from left to right: a
    text in two rows cannot be said.

    Returns:
        A Functional model from images, uint8 `(B, H, W, C)`, to logits `(B, w, vocabulary)`.
    """
    shape = (config.image_height, config.image_width, config.image_channels)
    source = keras.Input(shape, dtype="uint8", name="source")
    grid = convolve(config, source)
    height, width, channels = grid.shape[1:]
    columns = ops.reshape(ops.transpose(grid, (0, 2, 1, 3)), (-1, width, height * channels))
    x = keras.layers.Dense(config.decoder_units, activation="relu")(columns)
    x = keras.layers.Dropout(config.dropout)(x)
    x = keras.layers.Bidirectional(keras.layers.LSTM(config.decoder_units, return_sequences=True))(
        x
    )
    logits = keras.layers.Dense(target_vocab_size, dtype="float32", name="output")(x)
    return keras.Model(source, logits, name="ctc")


def ctc_loss(labels: Tensor, logits: Tensor) -> Tensor:
    """Return the mean loss of labels `(B, T)`, padded with 0, and logits `(B, w, vocabulary)`."""
    lengths = ops.sum(ops.cast(ops.not_equal(labels, BLANK), "int32"), axis=1)
    columns = ops.full_like(lengths, logits.shape[1])
    return ops.mean(ops.ctc_loss(labels, logits, lengths, columns, mask_index=BLANK))


def said(logits: Tensor) -> np.ndarray:
    """Return the ids of the best path, int32 `(B, ·)`, without repetitions and blanks, padded."""
    columns = np.full(len(logits), logits.shape[1], "int32")
    (ids,), _ = ops.ctc_decode(logits, columns, strategy="greedy", mask_index=BLANK)
    return np.maximum(ops.convert_to_numpy(ids), BLANK).astype("int32")
