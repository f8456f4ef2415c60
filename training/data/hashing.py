"""Numbers that depend on a text alone, so that an example stays in its split."""

import hashlib


def number_of(text: str) -> int:
    """Return the SHA-1 of a text as a whole number."""
    return int(hashlib.sha1(text.encode()).hexdigest(), 16)
