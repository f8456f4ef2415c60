"""A sample of the built-in corpus, drawn once for all tests."""

from functools import cache

from training.phrasebook import generate


@cache
def sample(pair, split):
    return generate(pair, split, {"train": 30_000, "dev": 3_000, "test": 8_000}[split], seed=11)
