"""Target tokens a second of an encoder-decoder, over batch sizes, beside what else there is.

One size of model, two ways: `training.train` (the decoder attends at each step, with input
feeding; the second epoch of a run, its batches made as it goes), and stock Keras layers (the
decoder runs first and attends afterwards, an easier computation).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from gpu_parts import calls, prepared
from keras_attention import AdditiveAttention, AttentionRNN
from training.config.schema import Config

VOCABULARY, UNITS, LENGTH = 8000, 512, 13
BATCHES = (64, 256, 1024)


def measure(tiny: bool) -> Iterator[dict[str, Any]]:
    """Give a row a precision, model and batch size."""
    units, vocabulary = (8, 23) if tiny else (UNITS, VOCABULARY)
    for precision in ("float32", "mixed_bfloat16"):
        for batch in (3,) if tiny else BATCHES:
            config = our_config(units, batch, precision)
            speed = partial(
                prepared.tokens_per_second, config, vocabulary, LENGTH, 2 if tiny else 20
            )
            yield _row("training.train", precision, batch, speed)
        keras.config.set_dtype_policy(precision)
        for batch in (3,) if tiny else BATCHES:
            round_ = _keras_round(units, vocabulary, batch)
            yield _row("stock Keras (easier)", precision, batch, partial(_speed, round_, batch))
        keras.config.set_dtype_policy("float32")


def our_config(units: int, batch: int, precision: str) -> Config:
    """A bidirectional LSTM encoder and an LSTM decoder with additive attention."""
    return Config(
        encoder="lstm",
        encoder_units=units // 2,
        decoder="lstm",
        decoder_units=units,
        embedding_size=units // 2,
        attention_units=units,
        readout_units=units,
        order="luong",
        input_feeding=True,
        dropout=0.0,
        batch_size=batch,
        epochs=2,
        precision=precision,
    )


def stock(units: int, vocabulary: int, length: int | None = LENGTH) -> keras.Model:
    """The nearest of Keras's layers, for texts of this length; None for any."""
    source, target = (keras.Input((length,), dtype="int32") for _ in range(2))
    x = layers.Embedding(vocabulary, units // 2)(source)
    encoder = layers.LSTM(units // 2, return_sequences=True, return_state=True)
    memory, *last = layers.Bidirectional(encoder)(x)
    first = [
        layers.Dense(units, activation="tanh")(layers.Concatenate()(last[n::2])) for n in range(2)
    ]
    x = layers.Embedding(vocabulary, units // 2)(target)
    x = layers.LSTM(units, return_sequences=True)(x, initial_state=first)
    query, key = (layers.Dense(units, use_bias=False)(y) for y in (x, memory))
    mask = [None, ops.not_equal(source, 0)]
    context = layers.AdditiveAttention()([query, memory, key], mask=mask)
    x = layers.Dense(units, activation="tanh")(layers.Concatenate()([context, x]))
    return keras.Model([source, target], layers.Dense(vocabulary)(x))


def readme(units: int, vocabulary: int, length: int | None = LENGTH) -> keras.Model:
    """The first model of README.md, whose encoder XLA can compile on a GPU, too."""
    source, target = (keras.Input((length,), dtype="int32") for _ in range(2))
    mask = source != 0
    encoder = layers.LSTM(units, return_sequences=True, return_state=True, use_cudnn=False)
    memory, *state = encoder(layers.Embedding(vocabulary, units)(source), mask=mask)
    decoder = AttentionRNN(layers.LSTMCell(units), AdditiveAttention(units))
    before = layers.Embedding(vocabulary, units)(target)
    states = decoder(before, memory, memory_mask=mask, initial_state=state)
    return keras.Model([source, target], layers.Dense(vocabulary)(states))


def _keras_round(units: int, vocabulary: int, batch: int) -> Callable[[], float]:
    model = stock(units, vocabulary)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    compiled = calls.backend() == "jax"
    model.compile(keras.optimizers.Adam(), loss, jit_compile=compiled)
    rng, shape = np.random.default_rng(7), (3, batch, LENGTH)
    source, target, labels = rng.integers(1, vocabulary, shape).astype("int32")
    return lambda: float(model.train_on_batch([source, target], labels))


def _speed(round_: Callable[[], float], batch: int) -> float:
    return batch * LENGTH / calls.milliseconds(round_, 2 if batch < 9 else 10) * 1e3


def _row(name: str, precision: str, batch: int, speed: Callable[[], float]) -> dict[str, Any]:
    row: dict[str, Any] = {"case": name, "precision": precision, "batch": batch}
    try:
        row["tokens_per_s"] = speed()
    except (RuntimeError, MemoryError, ValueError) as error:
        row["error"] = str(error).splitlines()[0][:200]
    return row
