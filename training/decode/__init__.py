"""Translating with trained models: steps, searches, many texts."""
