"""Answers any amount of input: files in, files of the same names out, each complete or absent."""
