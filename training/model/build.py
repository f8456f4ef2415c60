"""The model of a configuration."""

from __future__ import annotations

import keras

from keras_attention import AttentionPooling
from training.command.errors import enough_memory
from training.config.schema import Config
from training.model.seq2seq import build_seq2seq
from training.sources.kinds import build_encoder

_SIZES = ("embedding_size", "encoder_units", "decoder_units", "attention_units", "readout_units")


def build_model(config: Config, source_size: int, target_size: int = 0) -> keras.Model:
    """Build the model of a configuration for these sizes of the source and of a text as target.

    Raises:
        MemoryFull: there is not enough memory for it.
    """
    units = max((name for name in _SIZES if config.has_key(name)), key=vars(config).__getitem__)
    with enough_memory(f"a model with {units} = {getattr(config, units)}"):
        if config.target == "label":
            return build_classifier(config, source_size)
        return build_seq2seq(config, source_size, target_size)


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
