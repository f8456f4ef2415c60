"""Histories of events as sources."""
