"""The encoder-decoder as a Functional-API model of Keras layers alone, on any backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

from keras_attention import (
    AdditiveAttention,
    Attention,
    AttentionRNN,
    HoistedRNN,
    LayerNormGRUCell,
    LayerNormLSTMCell,
    MultiplicativeAttention,
)
from training.config import Config
from training.ids import PAD_ID

# Of normal distributions. With Keras's default, a fifth of it, the tied output layer starts so flat
# that the phrasebook's loss after 300 steps is 5.3 instead of 1.0.
EMBEDDING_STDDEV = 0.3
CELLS = {
    "simple_rnn": keras.layers.SimpleRNNCell,
    "gru": keras.layers.GRUCell,
    "lstm": keras.layers.LSTMCell,
    "layer_norm_gru": LayerNormGRUCell,
    "layer_norm_lstm": LayerNormLSTMCell,
}
Tensor = Any


def build_seq2seq(config: Config, source_vocab_size: int, target_vocab_size: int) -> keras.Model:
    """Build the model of a configuration.

    The encoder reads the source into a memory, to which the decoder attends at each step (Bahdanau
    et al. 2014, arXiv 1409.0473). With `attention = "none"` the memory is one vector, made of the
    encoder's last states, that the decoder sees at each step (Cho et al. 2014, arXiv 1406.1078).

    Args:
        config: sizes and mechanisms.
        source_vocab_size: number of source token ids, padding included.
        target_vocab_size: number of target token ids, padding included.

    Returns:
        A Functional model from `{"source": int32 (B, S), "target": int32 (B, T)}`, padded with 0,
        to logits `(B, T, target_vocab_size)`. Its layers are `"encoder"` (see `build_encoder`),
        `"target_embedding"`, `"decoder"` and, unless embeddings are tied, `"output"`.
    """
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory, mask, *state = build_encoder(config, source_vocab_size)(source)
    embedding = keras.layers.ReversibleEmbedding(
        target_vocab_size,
        config.embedding_size,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=EMBEDDING_STDDEV),
        reverse_dtype=keras.config.dtype_policy().compute_dtype,  # its product is float32 otherwise
        name="target_embedding",
    )
    decoder = AttentionRNN(
        build_decoder_cell(config),
        build_attention(config),
        order=config.order,
        units=config.readout_units,
        input_feeding=config.input_feeding,
        name="decoder",
    )
    x = keras.layers.Dropout(config.dropout)(embedding(target))
    x = decoder(x, memory, memory_mask=mask, initial_state=state)
    x = keras.layers.Dropout(config.dropout)(x)
    if config.tie_embeddings:
        logits = embedding(x, reverse=True)
    else:
        logits = keras.layers.Dense(target_vocab_size, name="output")(x)
    return keras.Model({"source": source, "target": target}, logits, name="seq2seq")


def build_encoder(config: Config, vocab_size: int) -> keras.Model:
    """Build the encoder.

    Returns:
        A Functional model from source ids `(B, S)` to a list: the memory `(B, S, dim)`, its mask
        `(B, S)`, and the decoder's initial states, each `(B, decoder_units)`. For
        `attention = "none"` the memory is `(B, 1, dim)` and its mask all True.
    """
    source = keras.Input((None,), dtype="int32", name="source")
    mask = ops.not_equal(source, PAD_ID)
    x = keras.layers.Embedding(
        vocab_size,
        config.embedding_size,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=EMBEDDING_STDDEV),
        name="source_embedding",
    )(source)
    x = keras.layers.Dropout(config.dropout)(x)
    final = []
    for number in range(config.encoder_layers):
        cell = build_cell(config, config.encoder, config.encoder_units)
        rnn = HoistedRNN(cell, return_sequences=True, return_state=True)
        if config.bidirectional:
            rnn = keras.layers.Bidirectional(rnn)
        x, *final = rnn(x, mask=mask)
        if number + 1 < config.encoder_layers:
            x = keras.layers.Dropout(config.dropout)(x)
    per_direction = _states(config.encoder)
    hidden = final[::per_direction]  # the last h of each direction, without the LSTM's c
    summary = hidden[0] if len(hidden) == 1 else keras.layers.Concatenate()(hidden)
    if config.attention == "none":
        x = ops.expand_dims(summary, 1)
        mask = ops.ones_like(x[:, :, 0], dtype="bool")
    x = keras.layers.Dropout(config.dropout)(x)
    # The bridge: s_0 = tanh(W_s h), Bahdanau et al. 2014, appendix A.2.2, for each decoder state.
    count = config.decoder_layers * _states(config.decoder)
    states = [
        keras.layers.Dense(config.decoder_units, activation="tanh", name=f"bridge_{number}")(
            summary
        )
        for number in range(count)
    ]
    return keras.Model(source, [x, mask, *states], name="encoder")


def encoder_cells(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """Yield the recurrent cells of a model's encoder."""
    for layer in model.get_layer("encoder").layers:
        if isinstance(layer, keras.layers.Bidirectional):
            yield from (layer.forward_layer.cell, layer.backward_layer.cell)
        elif isinstance(layer, keras.layers.RNN):
            yield layer.cell


def build_decoder_cell(config: Config) -> keras.layers.Layer:
    """Build the decoder's recurrent cell."""
    cells = [
        build_cell(config, config.decoder, config.decoder_units)
        for _ in range(config.decoder_layers)
    ]
    return cells[0] if len(cells) == 1 else keras.layers.StackedRNNCells(cells)


def build_cell(config: Config, kind: str, units: int) -> keras.layers.Layer:
    """Build one recurrent cell, of a kind in `CELLS`.

    Its dropout is variational: the masks of inputs and states are drawn once for a sequence and
    are the same at all its steps (Gal and Ghahramani 2016, arXiv 1512.05287).
    """
    rate = config.variational_dropout
    return CELLS[kind](units, dropout=rate, recurrent_dropout=rate)


def _states(kind: str) -> int:
    """Return how many states a cell of a kind in `CELLS` has."""
    return 2 if kind.endswith("lstm") else 1


def build_attention(config: Config) -> Attention:
    """Build the attention layer."""
    if config.attention == "none":
        return FixedContext()
    if config.attention.endswith("additive"):
        normalize = config.attention.startswith("normalized")
        return AdditiveAttention(config.attention_units, normalize=normalize)
    return MultiplicativeAttention(config.attention)


def output_layer(model: keras.Model, beam_width: int) -> Callable[[Tensor], Tensor]:
    """Return the function from decoder outputs `(rows, readout_units)` to logits, for a search.

    A product of a few rows with the transpose of a tied embedding is slow where the transpose is
    taken on the way (5 rows, 2 cores: 3.2 ms). The beams of a search are rows enough to transpose
    once before it (0.5 ms a step); for single rows the product is taken the other way round.
    """
    if "output" in {layer.name for layer in model.layers}:
        return model.get_layer("output")
    embedding = model.get_layer("target_embedding")
    kernel = ops.cast(embedding.embeddings, embedding.compute_dtype)
    if beam_width == 1:
        return lambda outputs: ops.transpose(ops.matmul(kernel, ops.transpose(outputs)))
    kernel = ops.transpose(kernel)
    return lambda outputs: ops.matmul(outputs, kernel)


@keras.saving.register_keras_serializable("training")
class FixedContext(Attention):
    """No attention: the memory is one vector `(B, 1, dim)`, which gets all the weight."""

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """Return scores of 0, `(B, Tq, 1)`."""
        return query[:, :, :1] * 0 + key[:, 0, 0][:, None, None] * 0
