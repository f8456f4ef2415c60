"""A classifier: attention pooling over an encoder, as a Functional-API model on any backend."""

from __future__ import annotations

import keras

from keras_attention import AttentionPooling
from training.config.schema import Config
from training.sources.kinds import build_encoder


def build_classifier(config: Config, source_size: int) -> keras.Model:
    """Build a model of the probability of an outcome.

    The memory is pooled by attention with a learned query (Yang et al. 2016). With
    `attention = "none"` the source's summary takes its place: the encoder's last state.

    Returns:
        A Functional model from `{"source": (B, …)}` to logits `(B,)`. Its layers are `"encoder"`
        (see `training.sources`), `"pooling"` where it attends, and `"output"`.
    """
    encoder = build_encoder(config, source_size)
    source = keras.Input(encoder.input.shape[1:], dtype=encoder.input.dtype, name="source")
    memory, mask, pooled = encoder(source)
    if config.attention != "none":
        units, distribution = config.attention_units, config.distribution
        pooling = AttentionPooling(units, distribution=distribution, name="pooling")
        pooled = pooling(memory, mask=mask)
    x = keras.layers.Dropout(config.dropout)(pooled)
    logits = keras.layers.Dense(1, dtype="float32", name="output")(x)
    return keras.Model({"source": source}, logits[:, 0], name="classifier")
