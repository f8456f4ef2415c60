"""Sequence-to-sequence training on top of keras_attention."""

import training.command.interrupt  # noqa: F401
