"""The configuration of a run: its keys, the limits of values, and the sources of values."""
