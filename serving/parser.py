"""Command lines, of the client's distribution too, which has `training.parser` under this name."""

from training.parser import Parser, count, file_to_write, port, seconds, whole_number

__all__ = ["Parser", "count", "file_to_write", "port", "seconds", "whole_number"]
