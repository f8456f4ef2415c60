"""The configuration of a run: its keys, their limits, and where values come from."""
