"""The built-in corpus: English with French and with Chinese, with gold word links.

A small grammar makes every sentence. The splits test new combinations: a pairing of verb and
object, or of adjective and noun, that occurs in one split occurs in no other, while every single
word of the test split is common in training.
"""

from training.phrasebook.pairs import PAIRS, SPLITS, Pair, families, generate, split_size

__all__ = ["PAIRS", "SPLITS", "Pair", "families", "generate", "split_size"]
