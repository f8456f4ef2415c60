"""The model of a configuration."""

from __future__ import annotations

import keras

from training.command.errors import enough_memory
from training.config.schema import Config
from training.model.classifier import build_classifier
from training.model.seq2seq import build_seq2seq

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
