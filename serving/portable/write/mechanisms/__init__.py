"""Attention mechanisms: what each does to a memory once, and how it weighs it at a step."""
