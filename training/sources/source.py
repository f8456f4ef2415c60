"""The base class of sources, and the parts that their encoders share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import keras
from keras import ops

from keras_attention import HoistedRNN
from keras_attention.recurrent.hoisted_rnn import HoistedBidirectional
from training.config.keys import CELLS, Recurrent
from training.config.schema import Config

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

    Return the outputs `(B, S, ·)`, and the last state of each direction in one vector `(B, ·)`.
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


# Many examples: `Sequences`, or an object for examples of one size, with `lengths` of 1 and a
# method `read` from rows `(B,)` to a batch `(B, …)`.
Rows = Any


class Source(ABC):
    """A kind of source: how it is read, and how it is encoded.

    TensorFlow is imported where something is read, not before: an encoder is built, and a prepared
    run is trained, on any backend.
    """

    # what `save` writes; runs that are used together have the same ones
    files: ClassVar[tuple[str, ...]] = ()
    # the size that the encoder is built for: entries of the vocabulary, columns of a table; 0 where
    # there is none
    size: int = 0
    places: tuple[int, ...] | None = None  # shape of the memory's places; None for a sequence's

    @classmethod
    def load_training(cls, config: Config, source: Source | None = None) -> tuple[Any, Any]:
        """Read training and dev set, splits or `Histories`, as a run with `source` reads them."""
        raise NotImplementedError

    @abstractmethod
    def load_split(self, config: Config, spec: str, split: str, limit: int | None = None) -> Any:
        """Read one split of a corpus, or at most `limit` of its examples, in the same form.

        Raises UserError where the data cannot be read.
        """

    @classmethod
    def make(cls, config: Config, data: Any) -> Source:
        """Make the source of a new run; `data` is its training split."""
        raise NotImplementedError

    @classmethod
    @abstractmethod
    def load(cls, config: Config, folder: Path) -> Source:
        """Load the source that `save` wrote into a folder.

        Raises OSError, ValueError, KeyError, TypeError where its file cannot be read.
        """

    def save(self, folder: Path) -> None:  # noqa: B027
        """Write the source's own files into a folder, if it has any."""

    @classmethod
    def fingerprint(cls, train: Any, dev: Any) -> str:
        """Hash the training and the dev set."""
        raise NotImplementedError

    def begin(self, model: keras.Model) -> None:  # noqa: B027
        """Give a new model the statistics of the training data, if it needs any."""

    @abstractmethod
    def rows(self, raw: Sequence[Any], training: bool = False) -> Rows:
        """Read many examples; in training they may be changed slightly, anew in each epoch."""

    def inputs(self) -> dict[str, tuple[tuple[int | None, ...], str]]:
        """Return shape and dtype of each input of an export; texts have an export of their own."""
        raise NotImplementedError

    def read(self, **inputs: Tensor) -> Tensor:
        """Return the batch that an export's inputs make, in TensorFlow's graph."""
        raise NotImplementedError

    def examples(self, count: int) -> dict[str, Any]:
        """Return inputs of so many examples, to warm an export up with."""
        raise NotImplementedError

    def shown(self, config: Config, count: int) -> list[str]:
        """Return at most so many examples of the dev split for people, as the page takes them.

        Raises UserError where the data cannot be read.
        """
        return []

    @staticmethod
    @abstractmethod
    def build_encoder(config: Config, size: int) -> keras.Model:
        """Build the model `"encoder"` from a batch of `Rows` to the outputs of `encoded`."""


def encoded(config: Config, memory: Tensor, mask: Tensor, summary: Tensor) -> list[Tensor]:
    """Return the outputs that every encoder has.

    Args:
        config: of the run.
        memory: the values to attend to, `(B, S, dim)` or a grid `(B, H, W, dim)`.
        mask: boolean, of the memory without its last axis; True where there is something.
        summary: the whole source in one vector, `(B, ·)`.

    Returns:
        The memory, its mask, and the decoder's first states, each `(B, decoder_units)`; for a label
        the summary. Without attention the memory is the summary alone, `(B, 1, ·)`.
    """
    if config.attention == "none":
        memory = ops.expand_dims(summary, 1)
        mask = ops.ones_like(memory[:, :, 0], dtype="bool")
    memory = keras.layers.Dropout(config.dropout)(memory)
    if config.target == "label":
        return [memory, mask, summary]
    # The bridge: s_0 = tanh(W_s h), Bahdanau et al. 2014, appendix A.2.2, for each decoder state.
    states = [
        keras.layers.Dense(config.decoder_units, activation="tanh", name=f"bridge_{number}")(
            summary
        )
        for number in range(config.decoder_layers * states_of(config.decoder))
    ]
    return [memory, mask, *states]
