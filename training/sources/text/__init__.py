"""Texts as sources."""
