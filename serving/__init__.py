"""Exports runs, checks and serves the exports, and sends requests to servers."""

import training.command.interrupt  # noqa: F401
