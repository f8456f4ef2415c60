"""Keys of recurrent encoders, which texts and histories have."""

from __future__ import annotations

from dataclasses import dataclass

from training.config.keys import key

CELLS = {"simple_rnn": "SimpleRNNCell", "gru": "GRUCell", "lstm": "LSTMCell"}  # of keras.layers


@dataclass(frozen=True)
class Recurrent:
    """The encoder of a sequence, see `training.sources.recurrent`."""

    encoder: str = key("gru", "recurrent cell of the encoder", choices=CELLS)
    bidirectional: bool = key(True, "read the source in both directions")
    encoder_layers: int = key(1, "recurrent layers of the encoder")
    encoder_units: int = key(256, "units of the encoder's cell, in each direction")
