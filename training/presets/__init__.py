"""Presets: a file for each run behind the published results, and files for own data by size."""
