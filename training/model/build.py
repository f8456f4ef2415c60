"""The model of a configuration."""

from __future__ import annotations

import keras

from training.config.schema import Config
from training.model.classifier import build_classifier
from training.model.seq2seq import build_seq2seq


def build_model(config: Config, source_size: int, target_size: int = 0) -> keras.Model:
    """Build the model of a configuration.

    Args:
        config: sizes and mechanisms.
        source_size: the source's `size`.
        target_size: number of target token ids, padding included; for a label nothing.

    Returns:
        What `build_seq2seq` returns for a text, `build_classifier` for a label.
    """
    if config.target == "label":
        return build_classifier(config, source_size)
    return build_seq2seq(config, source_size, target_size)
