"""The run directory: how its files are written and read."""
