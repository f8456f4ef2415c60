"""The words of a translation, and how probable each is."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from serving.client.local.spelling import Spelling, composed
from serving.client.local.tokenizers import END_ID


def words_of(
    spelling: Spelling, ids: Iterable[int], log_probs: Iterable[float]
) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the words of a text, and the probability of each after those before it.

    A word is what letters and digits follow one another in; all other characters are words. Each
    has the space that is in front of it: joined, they are the text.

    Args:
        spelling: of the tokens.
        ids: of the text's tokens; special ones do not count.
        log_probs: of each.
    """
    words: list[str] = []
    sums: list[float] = []
    for number, log_prob in zip(ids, log_probs, strict=True):
        if number <= END_ID:
            continue
        if not words or not spelling.continues[number]:
            words.append("")
            sums.append(0.0)
        words[-1] += spelling.texts[number]
        sums[-1] += float(log_prob)
    words = [composed(spelling.kind, word) for word in words]
    if words and spelling.kind not in ("characters", "letters"):  # the first space is not shown
        words[0] = words[0].removeprefix(" ")
    return tuple(words), tuple(np.exp(np.array(sums, "float32")).tolist())
