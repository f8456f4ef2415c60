"""Presets: a file for each run that the results come from, and for own data by its amount."""
