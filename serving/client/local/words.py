"""The words of a translation, and how probable each is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from serving.client.local.spelling import Spelling, composed, surface
from serving.client.local.tokenizers import END_ID


def words_of(
    spelling: Spelling,
    ids: Iterable[int],
    log_probs: Iterable[float],
    copied: Sequence[str] | None = None,
) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the words of a text, and the probability of each after those before it.

    A word is what letters and digits follow one another in; all other characters are words. Each
    has the space that is in front of it: joined, they are the text.
    """
    size = len(spelling.texts)
    words: list[str] = []
    sums: list[float] = []
    for number, log_prob in zip(ids, log_probs, strict=True):
        if number <= END_ID:
            continue
        if copied is None or number < size:
            text, goes_on = spelling.texts[number], spelling.continues[number]
        else:
            text = surface(spelling.kind, copied[number - size])
            goes_on = spelling.goes_on(text)
        if not words or not goes_on:
            words.append("")
            sums.append(0.0)
        words[-1] += text
        sums[-1] += float(log_prob)
    words = [composed(spelling.kind, word) for word in words]
    if words and spelling.kind not in ("characters", "letters"):  # the first space is not shown
        words[0] = words[0].removeprefix(" ")
    return tuple(words), tuple(np.exp(np.array(sums, "float32")).tolist())
