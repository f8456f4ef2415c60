"""The encoder-decoder as a Functional-API model of Keras layers alone, on any backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_attention import Attention, AttentionRNN, PointerGenerator, losses, mechanisms
from training.command.errors import ConfigError
from training.config.schema import Config
from training.data.ids import PAD_ID
from training.model.aligned import AlignedDecoder
from training.model.layers import FixedContext, SourceWords, Twice
from training.sources.kinds import build_encoder
from training.sources.recurrent import build_cell
from training.sources.text.source import EMBEDDING_STDDEV, known_tokens

Tensor = Any


def build_seq2seq(config: Config, source_size: int, target_vocab_size: int) -> keras.Model:
    """Build an encoder-decoder.

    The encoder reads the source into a memory, to which the decoder attends at each step (Bahdanau
    et al. 2014, arXiv 1409.0473). With `attention = "none"` the memory is one vector, made of the
    encoder's last states, that the decoder sees at each step (Cho et al. 2014, arXiv 1406.1078).

    Args:
        config: sizes and mechanisms.
        source_size: the source's `size`: of a text, number of token ids, padding included.
        target_vocab_size: number of target token ids, padding included.

    Returns:
        A Functional model from `{"source": (B, …), "target": int32 (B, T)}`, padded with 0, to
        logits `(B, T, target_vocab_size)`; a text as source is int32 `(B, S)`. Its layers are
        `"encoder"` (see `training.sources`), `"target_embedding"`, `"decoder"` and, unless
        embeddings are tied, `"output"`.

        With `copy` the ids of both sides may be those that `training.data.tokenizers` gives to
        words that can be copied; in place of logits there are log-probabilities of the vocabulary
        extended by the source's places, `(B, T, target_vocab_size + S)`; and there are the layers
        `"source_words"` and `"copy"`.
        With `attention = "hard_monotonic"` there are log-probabilities, too, and of the layers
        above `"encoder"` and `"decoder"` alone: see `training.model.aligned`.
        With `consistency` it answers twice in training, `(2 B, T, target_vocab_size)`.
    """
    encoder = build_encoder(config, source_size)
    source = keras.Input(encoder.input.shape[1:], dtype=encoder.input.dtype, name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    inputs = {"source": source, "target": target}
    if config.consistency:
        twice = Twice(name="twice")
        source, target = twice(source), twice(target)
    memory, mask, *state = encoder(source)
    if config.attention == "hard_monotonic":
        aligned = _build_aligned(config, target_vocab_size)
        log_probs = aligned(target, memory, memory_mask=mask, initial_state=state)
        return keras.Model(inputs, log_probs, name="seq2seq")
    embedding = keras.layers.ReversibleEmbedding(
        target_vocab_size,
        config.embedding_size,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=EMBEDDING_STDDEV),
        reverse_dtype=keras.config.dtype_policy().compute_dtype,  # its product is float32 otherwise
        name="target_embedding",
    )
    losses_of_weights = {
        "coverage": config.coverage_loss,
        "doubly_stochastic": config.doubly_stochastic,
    }
    decoder = AttentionRNN(
        build_decoder_cell(config),
        build_attention(config),
        order=config.order,
        units=config.readout_units,
        readout=config.readout,
        input_feeding=config.input_feeding,
        gate=config.gate,
        return_attention_scores=config.copy or any(losses_of_weights.values()),
        name="decoder",
    )

    x = embedding(known_tokens(target, target_vocab_size) if config.copy else target)
    x = keras.layers.Dropout(config.dropout)(x)
    x, weights = decoder(x, memory, memory_mask=mask, initial_state=state), None
    if decoder.return_attention_scores:
        x, weights = x[0], mean_of_heads(x[1], 3)
    x = keras.layers.Dropout(config.dropout)(x)
    is_token, there = ops.not_equal(target, PAD_ID), mask if len(mask.shape) == 2 else None
    for loss, weight in losses_of_weights.items():
        if weight:
            x = losses.AttentionLoss(loss, weight)(
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


def _build_aligned(config: Config, vocab_size: int) -> AlignedDecoder:
    return AlignedDecoder(
        build_decoder_cell(config),
        vocab_size,
        config.embedding_size,
        config.readout_units,
        config.attention_units,
        config.dropout,
        name="decoder",
    )


def build_decoder_cell(config: Config) -> keras.layers.Layer:
    """Build the decoder's recurrent cell."""
    cells = [build_cell(config.decoder, config.decoder_units) for _ in range(config.decoder_layers)]
    return cells[0] if len(cells) == 1 else keras.layers.StackedRNNCells(cells)


def check_attention(config: Config) -> None:
    """Raise a ConfigError for a mechanism or an argument that there is not."""
    if config.attention != "hard_monotonic":  # which is no layer of its own: `AlignedDecoder`
        build_attention(config)


def build_attention(config: Config) -> Attention:
    """Build the attention layer; a ConfigError for a mechanism or an argument that there is not."""
    if config.attention == "none":
        return FixedContext()
    if config.attention not in mechanisms.BY_NAME:
        names = ", ".join(("none", *mechanisms.BY_NAME, "hard_monotonic"))
        raise ConfigError(f"attention expected one of {names}. Received: {config.attention}")
    try:
        return mechanisms.make(config.attention, **config.attention_arguments())
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"attention = {config.attention}: {reason}") from None


def output_layer(model: keras.Model, beam_width: int) -> Callable[[Tensor], Tensor]:
    """Return the function from decoder outputs `(rows, readout_units)` to logits, for a search.

    A product of a few rows with the transpose of a tied embedding is slow where the transpose is
    taken on the way (5 rows, 2 cores: 3.2 ms). The beams of a search are rows enough to transpose
    once before it (0.5 ms a step); for single rows the product is taken the other way round.
    An `AlignedDecoder` puts out log-probabilities itself.
    """
    layers = {layer.name: layer for layer in model.layers}
    if "output" in layers:
        return layers["output"]
    if "target_embedding" not in layers:
        return lambda log_probs: log_probs
    embedding = layers["target_embedding"]
    kernel = ops.cast(embedding.embeddings, embedding.compute_dtype)
    if beam_width == 1:
        return lambda outputs: ops.transpose(ops.matmul(kernel, ops.transpose(outputs)))
    kernel = ops.transpose(kernel)
    return lambda outputs: ops.matmul(outputs, kernel)


def mean_of_heads(weights: Tensor, rank: int) -> Tensor:
    """Return attention weights of this rank: those of several heads are averaged."""
    return weights if len(weights.shape) == rank else ops.mean(weights, axis=1)
