"""Layers other than the attention mechanisms."""
