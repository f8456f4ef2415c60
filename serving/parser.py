"""Command lines; the client's distribution has `training.command.parser` under this name."""

from training.command.parser import Parser, count, file_to_write, port, seconds, whole_number

__all__ = ["Parser", "count", "file_to_write", "port", "seconds", "whole_number"]
