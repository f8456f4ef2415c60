"""The encoder-decoder as a Functional model of Keras layers, on any backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_attention import Attention, AttentionPooling, AttentionRNN, losses, mechanisms
from keras_attention.layers.pointer import PointerGenerator, copied_ids
from training.command.errors import ConfigError, UserError, enough_memory
from training.config.schema import Config
from training.data.tokens.store import PAD_ID
from training.model.aligned import AlignedDecoder
from training.sources._source import build_cell
from training.sources.kinds import source_class
from training.sources.text._source import EMBEDDING_STDDEV, known_tokens

Tensor = Any


class RepeatForRDrop(keras.layers.Layer):
    """Stacks a batch twice in training, so that each copy gets its own dropout mask (R-Drop)."""

    def call(self, rows: Tensor, training: bool | None = None) -> Tensor:
        """Return rows `(B, …)` twice in training, `(2 B, …)`; else as they are."""
        return ops.concatenate([rows, rows]) if training else rows


class SourceWords(keras.layers.Layer):
    """Maps source ids to ids of the target's vocabulary, extended by the words that it lacks.

    Maps the ids `(B, S)` of a tokenizer that copies to int32 `(B, S)`: see
    `keras_attention.layers.pointer.copied_ids`.

    Weights: `words`, int32 `(source_size,)`: for each word of the source's vocabulary, the id of
    the same word in the target's vocabulary, or -1 if there is none. All are -1 at first.
    """

    def __init__(self, source_size: int, target_size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.source_size, self.target_size = source_size, target_size

    def build(self, source_shape: tuple) -> None:
        """Make the table `words`."""
        none = keras.initializers.Constant(-1)
        self.words = self.add_weight(
            (self.source_size,), none, dtype="int32", trainable=False, name="words"
        )

    def call(self, source: Tensor) -> Tensor:
        """Return the target ids of source ids, int32 `(B, S)`."""
        target_ids = ops.take(self.words, known_tokens(source, self.source_size), axis=0)
        return copied_ids(source, target_ids, self.target_size)

    def compute_output_spec(self, source: Any) -> keras.KerasTensor:
        """Return the symbolic output, int32 `(B, S)`."""
        return keras.KerasTensor(source.shape, "int32")


class FixedContext(Attention):
    """No attention: the memory is one vector, `(B, 1, dim)`, with weight 1."""

    def compute_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return scores of 0, `(B, Tq, 1)`."""
        return query[:, :, :1] * 0 + key[:, 0, 0][:, None, None] * 0


def build_seq2seq(config: Config, source_size: int, target_vocab_size: int) -> keras.Model:
    """Build an encoder-decoder.

    The encoder reads the source into a memory. The decoder attends to the memory at each step
    (Bahdanau et al. 2014, arXiv 1409.0473). With `attention = "none"`, the memory is one vector of
    the encoder's last states, and the decoder reads it at each step (Cho et al. 2014, arXiv
    1406.1078).

    Args:
        config: sizes and mechanisms.
        source_size: the source's `size`; for a text, the number of token ids, padding included.
        target_vocab_size: number of target token ids, padding included.

    Returns:
        A Functional model from `{"source": (B, …), "target": int32 (B, T)}`, padded with 0, to
        logits `(B, T, target_vocab_size)`; a text as source is int32 `(B, S)`. Its layers are
        `"encoder"` (see `training.sources`), `"target_embedding"`, `"decoder"` and, unless
        embeddings are tied, `"output"`.

        With `copy`, ids of both sides may also be the ids that
        `training.data.tokens._token_ids` gives to words that can be copied. Instead of logits, the
        model returns log-probabilities of the vocabulary extended by the source positions,
        `(B, T, target_vocab_size + S)`. It has the additional layers `"source_words"` and `"copy"`.
        With `attention = "hard_monotonic"`, the model returns log-probabilities
        `(B, T, target_vocab_size)`, and its only layers are `"encoder"` and `"decoder"`: see
        `training.model.aligned`.
        With `r_drop`, the model predicts twice in training, `(2 B, T, target_vocab_size)`.
    """
    encoder = source_class(config.source).build_encoder(config, source_size)
    source = keras.Input(encoder.input.shape[1:], dtype=encoder.input.dtype, name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    inputs = {"source": source, "target": target}
    if config.r_drop:
        twice = RepeatForRDrop(name="twice")
        source, target = twice(source), twice(target)
    memory, mask, *state = encoder(source)
    cells = [build_cell(config.decoder, config.decoder_units) for _ in range(config.decoder_layers)]
    cell = cells[0] if len(cells) == 1 else keras.layers.StackedRNNCells(cells)
    if config.attention == "hard_monotonic":
        sizes = config.embedding_size, config.readout_units, config.attention_units
        aligned = AlignedDecoder(
            cell, target_vocab_size, *sizes, config.dropout, config.source, name="decoder"
        )
        log_probs = aligned(target, memory, memory_mask=mask, initial_state=state)
        return keras.Model(inputs, log_probs, name="seq2seq")
    embedding = keras.layers.ReversibleEmbedding(
        target_vocab_size,
        config.embedding_size,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=EMBEDDING_STDDEV),
        reverse_dtype=keras.config.dtype_policy().compute_dtype,  # else its product is float32
        name="target_embedding",
    )
    decoder = AttentionRNN(
        cell,
        build_attention(config),
        order=config.order,
        units=config.readout_units,
        readout=config.readout,
        input_feeding=config.input_feeding,
        gate=config.gate,
        return_attention_scores=config.copy or config.coverage_loss > 0,
        name="decoder",
    )

    x = embedding(known_tokens(target, target_vocab_size) if config.copy else target)
    x = keras.layers.Dropout(config.dropout)(x)
    x, weights = decoder(x, memory, memory_mask=mask, initial_state=state), None
    if decoder.return_attention_scores:
        x, weights = x[0], mean_of_heads(x[1], 3)
    x = keras.layers.Dropout(config.dropout)(x)
    if config.coverage_loss:
        is_token, there = ops.not_equal(target, PAD_ID), mask if len(mask.shape) == 2 else None
        x = losses.AttentionLoss("coverage", config.coverage_loss)(
            x, weights, outputs_mask=is_token, memory_mask=there
        )
    if config.tie_embeddings:
        logits = embedding(x, reverse=True)
    else:
        logits = keras.layers.Dense(target_vocab_size, name="output")(x)
    if config.copy:
        words = SourceWords(source_size, target_vocab_size, name="source_words")(source)
        logits = PointerGenerator(name="copy")(x, logits, weights, words)
    return keras.Model(inputs, logits, name="seq2seq")


def check_attention(config: Config) -> None:
    """Raise a ConfigError for an argument that the mechanism does not accept."""
    if config.attention != "hard_monotonic":  # its attention is part of `AlignedDecoder`
        build_attention(config)


def build_attention(config: Config) -> Attention:
    """Build the attention layer.

    Raises ConfigError for an argument that the mechanism does not accept.
    """
    if config.attention == "none":
        return FixedContext()
    arguments = config.attention_arguments()
    try:
        return mechanisms.make(config.attention, **arguments)
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"attention = {config.attention}: {reason}") from None


def output_layer(model: keras.Model, beam_width: int) -> Callable[[Tensor], Tensor]:
    """Return the function that a search uses to compute logits.

    A product of a few rows with the transpose of a tied embedding is slow if each product
    transposes the embedding (5 rows, 2 cores: 3.2 ms). With beams, the embedding is transposed once
    before the search (0.5 ms a step). For single rows, the product is transposed instead of the
    embedding. An `AlignedDecoder` returns log-probabilities itself.

    Returns:
        A function from decoder outputs `(rows, readout_units)` to logits `(rows, V)`.
    """
    layers = {layer.name: layer for layer in model.layers}
    if "output" in layers:
        return layers["output"]
    if "target_embedding" not in layers:
        return lambda log_probs: log_probs
    embedding = layers["target_embedding"]
    kernel = ops.cast(embedding.embeddings, embedding.compute_dtype)  # (V, readout_units)
    if beam_width == 1:
        return lambda outputs: ops.transpose(ops.matmul(kernel, ops.transpose(outputs)))
    kernel = ops.transpose(kernel)
    return lambda outputs: ops.matmul(outputs, kernel)


def mean_of_heads(weights: Tensor, rank: int) -> Tensor:
    """Return weights `(B, S)` (rank 2) or `(B, T, S)` (rank 3), averaged over heads on axis 1."""
    return weights if len(weights.shape) == rank else ops.mean(weights, axis=1)


_SIZES = ("embedding_size", "encoder_units", "decoder_units", "attention_units", "readout_units")


def build_model(config: Config, source_size: int, target_size: int = 0) -> keras.Model:
    """Build the model of a configuration.

    Args:
        config: the configuration of the run.
        source_size: the source's `size`.
        target_size: number of target token ids; 0 if the target is a label.

    Raises UserError if the memory is not enough for the model, or its sizes do not fit together.
    """
    units = max((name for name in _SIZES if config.has_key(name)), key=vars(config).__getitem__)
    try:
        with enough_memory(f"Use a smaller model: {units} is {getattr(config, units)}"):
            if config.target == "label":
                return build_classifier(config, source_size)
            return build_seq2seq(config, source_size, target_size)
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise ConfigError(f"attention = {config.attention}: {str(error).splitlines()[0]}") from None


def build_classifier(config: Config, source_size: int) -> keras.Model:
    """Build a model of the probability of an outcome.

    Attention with a learned query pools the memory (Yang et al. 2016). With `attention = "none"`,
    the source's summary, the encoder's last state, replaces the pooled memory.

    Returns:
        A Functional model from `{"source": (B, …)}` to logits `(B,)`. Its layers are `"encoder"`
        (see `training.sources`), `"pooling"` if the model attends, and `"output"`.
    """
    encoder = source_class(config.source).build_encoder(config, source_size)
    source = keras.Input(encoder.input.shape[1:], dtype=encoder.input.dtype, name="source")
    memory, mask, pooled = encoder(source)
    if config.attention != "none":
        units, distribution = config.attention_units, config.distribution
        pooling = AttentionPooling(units, distribution=distribution, name="pooling")
        pooled = pooling(memory, mask=mask)
    x = keras.layers.Dropout(config.dropout)(pooled)
    logits = keras.layers.Dense(1, dtype="float32", name="output")(x)
    return keras.Model({"source": source}, logits[:, 0], name="classifier")
