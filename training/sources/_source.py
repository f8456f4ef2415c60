"""The base class of sources, and functions that their encoders share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from keras_attention import HoistedRNN
from keras_attention.recurrent.hoisted_rnn import HoistedBidirectional
from training.config._keys import CELLS, Recurrent
from training.config.schema import Config

Tensor = Any


def build_cell(kind: str, units: int) -> keras.layers.Layer:
    """Build a recurrent cell; `kind` is a key of `CELLS`."""
    cell: keras.layers.Layer = getattr(keras.layers, CELLS[kind])(units)
    return cell


def states_of(kind: str) -> int:
    """Return the number of states of a cell; `kind` is a key of `CELLS`."""
    return 2 if kind.endswith("lstm") else 1


def read_sequence(
    keys: Recurrent, x: Tensor, mask: Tensor, dropout: float
) -> tuple[Tensor, Tensor]:
    """Run the encoder's recurrent layers over a sequence, in one direction or both.

    Args:
        keys: number of layers, kind and units of the cells, and whether layers are bidirectional.
        x: the sequence, `(B, S, dim)`.
        mask: boolean `(B, S)`, False at padding.
        dropout: rate between layers.

    Returns:
        The outputs of the last layer, `(B, S, ·)`, and its last state, concatenated over
        directions, `(B, ·)`.
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
    hidden = final[:: states_of(keys.encoder)]  # one h a direction, without an LSTM's c
    return x, hidden[0] if len(hidden) == 1 else keras.layers.Concatenate()(hidden)


# Many examples: `Sequences`; or, for examples of equal size, an object with `lengths` of 1 and a
# method `read` from row numbers `(B,)` to a batch `(B, …)`.
Rows = Any


class Source(ABC):
    """A kind of source: how its data are read and encoded.

    Only methods that read data import TensorFlow. So any backend can build an encoder and train a
    prepared run.
    """

    # the files that `save` writes; runs that are used together have equal files
    files: ClassVar[tuple[str, ...]] = ()
    # the size that the encoder is built for: entries of a vocabulary or inputs of a table; 0 if the
    # encoder needs no size
    size: int = 0
    places: tuple[int, ...] | None = None  # shape of a memory that is a grid; None for a sequence

    @classmethod
    def load_training(cls, config: Config, source: Source | None = None) -> tuple[Any, Any]:
        """Read the training and the dev set: each a `Split` or `Histories`.

        `source` is the source of a run to continue, whose columns the data must have.
        """
        raise NotImplementedError

    @abstractmethod
    def load_split(self, config: Config, spec: str, split: str, limit: int | None = None) -> Any:
        """Read one split of a corpus, at most `limit` examples, in the form of `load_training`.

        Raises UserError if the data cannot be read.
        """

    @classmethod
    def make(cls, config: Config, data: Any) -> Source:
        """Return the source of a new run; `data` is its training set."""
        raise NotImplementedError

    @classmethod
    @abstractmethod
    def load(cls, config: Config, folder: Path) -> Source:
        """Load the source that `save` wrote into a folder.

        Raises OSError, ValueError, KeyError or TypeError if its file cannot be read.
        """

    def save(self, folder: Path) -> None:  # noqa: B027
        """Write the source's `files`, if it has any, into a folder."""

    @classmethod
    def fingerprint(cls, train: Any, dev: Any) -> str:
        """Return a SHA-256 of the training and the dev set."""
        raise NotImplementedError

    def digests(self, data: Any) -> np.ndarray:
        """Return a number for the content of each example's source, uint64 `(n,)`."""
        raise NotImplementedError

    def begin(self, model: keras.Model) -> None:  # noqa: B027
        """Set a new model's statistics of the training data, if its encoder has any."""

    @abstractmethod
    def rows(self, raw: Sequence[Any], training: bool = False) -> Rows:
        """Return the rows of raw examples; in training, each epoch may vary them slightly."""

    def inputs(self) -> dict[str, tuple[tuple[int | None, ...], str]]:
        """Return the shape and dtype of each export input; exports of texts do not use this."""
        raise NotImplementedError

    def read(self, **inputs: Tensor) -> Tensor:
        """Return the batch for the encoder from an export's inputs, in TensorFlow's graph."""
        raise NotImplementedError

    def examples(self, count: int) -> dict[str, Any]:
        """Return the inputs of `count` made-up examples, to warm up an export."""
        raise NotImplementedError

    def shown(self, config: Config, count: int) -> list[str]:
        """Return at most `count` examples of the dev split, as strings for the demo page.

        Raises UserError if the data cannot be read.
        """
        return []

    @staticmethod
    @abstractmethod
    def build_encoder(config: Config, size: int) -> keras.Model:
        """Build the model "encoder" from a batch of `Rows` to the outputs of `encoded`."""


def encoded(config: Config, memory: Tensor, mask: Tensor, summary: Tensor) -> list[Tensor]:
    """Return the outputs that every encoder has.

    Args:
        config: the configuration of the run.
        memory: the values to attend to, `(B, S, dim)` or a grid `(B, H, W, dim)`.
        mask: boolean, the shape of the memory without its last axis; False at padding.
        summary: a vector of the whole source, `(B, ·)`.

    Returns:
        The memory, its mask, and the decoder's first states, each `(B, decoder_units)`. For a
        label, the summary replaces the states. Without attention, the memory is only the summary,
        `(B, 1, ·)`.
    """
    if config.attention == "none":
        memory = ops.expand_dims(summary, 1)
        mask = ops.ones_like(memory[:, :, 0], dtype="bool")
    memory = keras.layers.Dropout(config.dropout)(memory)
    if config.target == "label":
        return [memory, mask, summary]
    # The bridge to each decoder state: s_0 = tanh(W_s h), Bahdanau et al. 2014, appendix A.2.2.
    states = [
        keras.layers.Dense(config.decoder_units, activation="tanh", name=f"bridge_{number}")(
            summary
        )
        for number in range(config.decoder_layers * states_of(config.decoder))
    ]
    return [memory, mask, *states]
