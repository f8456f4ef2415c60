"""The nearest that stock Keras layers have, as a worker of the benchmarks, on TensorFlow or JAX.

The decoder runs first, and attends with all its outputs at once: no context enters the recurrence,
an easier computation.
"""

from __future__ import annotations

from collections.abc import Callable

import keras
from keras import layers, ops
from parts.batches import Model, training_batches


def make_model(vocabulary: int, units: int, kind: Model, jit_compile: bool) -> keras.Model:
    """The benchmarks' encoder-decoder, compiled."""
    layer = {"lstm": layers.LSTM, "gru": layers.GRU}[kind.cell]
    states = {"lstm": 2, "gru": 1}[kind.cell]
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    x = layers.Embedding(vocabulary, units // 2, mask_zero=True)(source)
    encoder = layer(units // 2, return_sequences=True, return_state=True)
    memory, *last = layers.Bidirectional(encoder)(x)
    first = [
        layers.Dense(units, activation="tanh")(layers.Concatenate()(last[n::states]))
        for n in range(states)
    ]
    x = layers.Embedding(vocabulary, units // 2)(target)
    x = layer(units, return_sequences=True)(x, initial_state=first)
    query = layers.Dense(units, use_bias=False)(x)
    mask = [None, ops.not_equal(source, 0)]
    if kind.attention == "additive":
        key = layers.Dense(units, use_bias=False)(memory)
        context = layers.AdditiveAttention()([query, memory, key], mask=mask)
    else:
        context = layers.Attention()([query, memory], mask=mask)
    x = layers.Dense(units, activation="tanh")(layers.Concatenate()([context, x]))
    model = keras.Model({"source": source, "target": target}, layers.Dense(vocabulary)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    model.compile(keras.optimizers.Adam(), loss, jit_compile=jit_compile)
    return model


def training(
    path: str, vocabulary: int, units: int, kind: Model, form: list[str]
) -> Callable[[], None]:
    """A function that trains on every batch once."""
    if "mixed_bfloat16" in form:
        keras.config.set_dtype_policy("mixed_bfloat16")
    # JAX always compiles.
    jit_compile = "XLA" in form or keras.backend.backend() == "jax"
    model = make_model(vocabulary, units, kind, jit_compile)
    batches = training_batches(path)

    def round_() -> None:
        for source, target, labels in batches:
            model.train_on_batch({"source": source, "target": target}, labels)

    return round_
