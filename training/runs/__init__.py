"""The run directory: its files, how they are made and how they are read."""
