"""Experiments behind the figures of docs/results, one a file: python -m lab NAME."""
