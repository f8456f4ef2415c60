"""Layers of the encoder-decoder beside its attention."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention import Attention
from keras_attention.layers.pointer import copied_ids
from training.sources.text.source import known_tokens

Tensor = Any


@keras.saving.register_keras_serializable("training")
class Twice(keras.layers.Layer):
    """Repeats a batch in training: dropout differs, see `TokenCrossentropy`."""

    def call(self, rows: Tensor, training: bool | None = None) -> Tensor:
        """Return `(2 B, …)` for `(B, …)`."""
        return ops.concatenate([rows, rows]) if training else rows


@keras.saving.register_keras_serializable("training")
class SourceWords(keras.layers.Layer):
    """The words of a source in the target's vocabulary, extended for what it lacks.

    From ids `(B, S)` of a tokenizer that copies to int32 `(B, S)`, see
    `keras_attention.layers.pointer.copied_ids`.

    Weights: `words`, int32 `(source_size,)`: for each word of the source's vocabulary the same in
    the target's, or -1 as at the start.
    """

    def __init__(self, source_size: int, target_size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.source_size, self.target_size = source_size, target_size

    def build(self, source_shape: tuple) -> None:
        """Make the table."""
        self.words = self.add_weight(
            (self.source_size,),
            keras.initializers.Constant(-1),
            dtype="int32",
            trainable=False,
            name="words",
        )

    def call(self, source: Tensor) -> Tensor:
        """Look the words up."""
        target_ids = ops.take(self.words, known_tokens(source, self.source_size), axis=0)
        return copied_ids(source, target_ids, self.target_size)

    def compute_output_spec(self, source: Any) -> keras.KerasTensor:
        """Return the symbolic ids."""
        return keras.KerasTensor(source.shape, "int32")

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        sizes = {"source_size": self.source_size, "target_size": self.target_size}
        return {**super().get_config(), **sizes}


@keras.saving.register_keras_serializable("training")
class FixedContext(Attention):
    """No attention: the memory is one vector `(B, 1, dim)`, which gets all the weight."""

    def compute_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return scores of 0, `(B, Tq, 1)`."""
        return query[:, :, :1] * 0 + key[:, 0, 0][:, None, None] * 0
