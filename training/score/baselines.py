"""A baseline of translation: the target of the most similar training sentence."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from itertools import pairwise

import numpy as np


def most_similar(pairs: Sequence[tuple[str, str]], sources: Sequence[str]) -> list[str]:
    """Translate each source by the target of the training pair whose source shares most words.

    Similarity is the Dice coefficient of the sets of words and of neighbouring words; of equally
    similar pairs the first is taken.
    """
    features: dict[Hashable, int] = {}
    known = [_features(source) for source, _ in pairs]
    for words in known:
        for word in words:
            features.setdefault(word, len(features))
    rows_of: list[list[int]] = [[] for _ in features]
    for row, words in enumerate(known):
        for word in words:
            rows_of[features[word]].append(row)
    rows_with = [np.array(rows) for rows in rows_of]
    sizes = np.array([len(words) for words in known])
    result = []
    for source in sources:
        words = _features(source)
        shared = np.zeros(len(pairs))
        for word in words & features.keys():
            shared[rows_with[features[word]]] += 1
        result.append(pairs[int(np.argmax(2 * shared / (sizes + len(words))))][1])
    return result


def _features(text: str) -> set[Hashable]:
    words = re.findall(r"\w+|[^\w\s]", text.lower())
    return {*words, *pairwise(words)}
