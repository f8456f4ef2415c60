"""Texts as sources: tokens, embedded and read by a recurrent encoder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops

from training.command.errors import UserError
from training.config.schema import Config
from training.data.tokens.store import PAD_ID, UNK_ID, Sequences
from training.sources._source import Source, encoded, read_sequence

if TYPE_CHECKING:
    from training.data.read._sentences import Split
    from training.data.tokens.tokenizers import Tokenizer

# Standard deviation of the embeddings' normal distribution. With Keras's default, a fifth of this
# value, the tied output layer starts so flat that the phrasebook's loss after 300 steps is 5.3
# instead of 1.0.
EMBEDDING_STDDEV = 0.3

Tensor = Any


def known_tokens(ids: Tensor, vocab_size: int) -> Tensor:
    """Return ids with UNK_ID for ids beyond the vocabulary: words that only a source has."""
    return ops.where(ids < vocab_size, ids, UNK_ID)


class TextSource(Source):
    """Texts, split into tokens by a tokenizer."""

    files = ("source.tokenizer",)

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.size = tokenizer.vocab_size

    def load_split(self, config: Config, spec: str, split: str, limit: int | None = None) -> Split:
        """Read sentence pairs; their targets have the script of the run's training data."""
        from training.data.read import texts as corpus

        return corpus.load(spec, split, limit=limit, script_of=config.data)

    @classmethod
    def load(cls, config: Config, folder: Path) -> TextSource:
        from training.data.tokens.tokenizers import load_tokenizer

        return cls(load_tokenizer(folder / cls.files[0]))

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder / self.files[0])

    def rows(self, raw: Sequence[str], training: bool = False) -> Sequences:
        """Return the token ids of all texts; raise a UserError unless `raw` is a list of texts."""
        from training.data.tokens._token_ids import tokenize

        wrong = [raw] if isinstance(raw, str) else [t for t in raw if not isinstance(t, str)]
        if wrong:
            raise UserError(f"expected a list of texts. Received: {wrong[0]!r}")
        return tokenize(raw, self.tokenizer)

    def digests(self, data: Split) -> np.ndarray:
        """Return a number for each source text, uint64 `(n,)`."""
        from training.data.read._sentences import digest_of

        return np.array([digest_of(text.encode()) for text in data.sources], np.uint64)

    @staticmethod
    def build_encoder(config: Config, size: int) -> keras.Model:
        """Build the encoder from token ids, int32 `(B, S)`, to the outputs of `encoded`."""
        source = keras.Input((None,), dtype="int32", name="source")
        mask = ops.not_equal(source, PAD_ID)
        x = keras.layers.Embedding(
            size,
            config.embedding_size,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=EMBEDDING_STDDEV),
            name="source_embedding",
        )(known_tokens(source, size) if config.copy else source)
        x = keras.layers.Dropout(config.dropout)(x)
        x, summary = read_sequence(config, x, mask, config.dropout)
        return keras.Model(source, encoded(config, x, mask, summary), name="encoder")
