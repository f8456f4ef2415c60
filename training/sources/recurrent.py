"""Recurrent cells by name, and the stack of them that reads a sequence."""

from __future__ import annotations

from typing import Any

import keras

from keras_attention import HoistedRNN
from keras_attention.recurrent.hoisted_rnn import HoistedBidirectional
from training.config.sources import CELLS, Recurrent

Tensor = Any


def build_cell(kind: str, units: int) -> keras.layers.Layer:
    """Build one recurrent cell, of a kind in `CELLS`."""
    cell: keras.layers.Layer = getattr(keras.layers, CELLS[kind])(units)
    return cell


def states_of(kind: str) -> int:
    """Return how many states a cell of a kind in `CELLS` has."""
    return 2 if kind.endswith("lstm") else 1


def read_sequence(
    keys: Recurrent, x: Tensor, mask: Tensor, dropout: float
) -> tuple[Tensor, Tensor]:
    """Read a sequence `(B, S, dim)` by the encoder's cells, layer by layer, one way or both.

    Returns:
        The outputs `(B, S, ·)`, and the last state of each direction in one vector `(B, ·)`.
    """
    final = []
    for number in range(keys.encoder_layers):
        cell = build_cell(keys.encoder, keys.encoder_units)
        rnn = HoistedRNN(cell, return_sequences=True, return_state=True)
        if keys.bidirectional:
            rnn = HoistedBidirectional(rnn)
        x, *final = rnn(x, mask=mask)
        if number + 1 < keys.encoder_layers:
            x = keras.layers.Dropout(dropout)(x)
    hidden = final[:: states_of(keys.encoder)]  # without the LSTM's c
    return x, hidden[0] if len(hidden) == 1 else keras.layers.Concatenate()(hidden)
