"""Releases of TensorFlow Serving that an export may be held to."""

RELEASES = ("2.20", "2.21")
OLDEST = RELEASES[0]
