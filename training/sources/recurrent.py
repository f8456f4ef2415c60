"""Recurrent cells by name, and the stack of them that reads a sequence."""

from __future__ import annotations

import importlib
from typing import Any

import keras

from keras_attention import HoistedRNN
from training.config.schema import CELLS, Config

Tensor = Any


def build_cell(config: Config, kind: str, units: int) -> keras.layers.Layer:
    """Build one recurrent cell, of a kind in `CELLS`.

    Its dropout is variational: the masks of inputs and states are drawn once for a sequence and
    are the same at all its steps (Gal and Ghahramani 2016, arXiv 1512.05287).
    """
    rate = config.variational_dropout
    module, name = CELLS[kind]
    cell = getattr(importlib.import_module(module), name)
    return cell(units, dropout=rate, recurrent_dropout=rate)


def states_of(kind: str) -> int:
    """Return how many states a cell of a kind in `CELLS` has."""
    return 2 if kind.endswith("lstm") else 1


def read_sequence(config: Config, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Read a sequence by the encoder's cells, layer by layer, in one direction or both.

    Args:
        config: `encoder`, `encoder_units`, `encoder_layers` and `bidirectional`.
        x: `(B, S, dim)`.
        mask: boolean `(B, S)`.

    Returns:
        The outputs `(B, S, ·)`, and the last state of each direction in one vector `(B, ·)`.
    """
    final = []
    for number in range(config.encoder_layers):
        cell = build_cell(config, config.encoder, config.encoder_units)
        rnn = HoistedRNN(cell, return_sequences=True, return_state=True)
        if config.bidirectional:
            rnn = keras.layers.Bidirectional(rnn)
        x, *final = rnn(x, mask=mask)
        if number + 1 < config.encoder_layers:
            x = keras.layers.Dropout(config.dropout)(x)
    hidden = final[:: states_of(config.encoder)]  # without the LSTM's c
    return x, hidden[0] if len(hidden) == 1 else keras.layers.Concatenate()(hidden)
