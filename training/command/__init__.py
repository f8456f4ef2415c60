"""Shared by all commands: parser, users' errors, progress, start-up, files written whole."""
