"""Sequence-to-sequence training on top of keras_attention."""
