"""Demonstrations: all commands in a row, on the built-in corpus and on other kinds of data."""
