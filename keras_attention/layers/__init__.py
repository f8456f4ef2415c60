"""Layers beside the attention mechanisms."""
