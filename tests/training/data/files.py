"""Helpers that tests of corpora share: files that are made, and messages that are one line."""

import gzip

from training.data.encoding import train_state
from training.data.tokenizers import tokenizer_of


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text if isinstance(text, bytes) else text.encode("utf-8")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def one_line(error):
    message = str(error.value)
    assert "\n" not in message
    return message


def train_tokenizer(kind, lines, size):
    """A tokenizer as a run trains that of its sources."""
    return tokenizer_of(train_state("source", kind, size, lines))
