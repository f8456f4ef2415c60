"""Attention for recurrent Keras models."""
