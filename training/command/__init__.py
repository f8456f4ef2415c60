"""Modules that all commands share: parser, user errors, progress, start-up, atomic file writes."""
