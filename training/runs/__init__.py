"""The run directory: what is in it, how it is made and how it is read."""
