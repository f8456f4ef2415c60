"""Demonstrations: run all commands in a row, on the built-in corpus and other kinds of data."""
