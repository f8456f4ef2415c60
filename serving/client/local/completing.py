"""The beam search for a translation that begins with a prefix, over the decoder's step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from serving.client.local.model import Folder
from serving.client.local.spelling import Spelling
from serving.client.local.tokenizers import END_ID, START_ID

AFTER_PREFIX = 10  # tokens that a long prefix leaves room for


class Hypothesis(NamedTuple):
    """A beginning of a translation.

    Attributes:
        ids: its tokens.
        log_probs: of each.
        place: characters of the prefix that it has said.
        row: of the state of its decoder.
    """

    ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] = ()
    place: int = 0
    row: int = 0

    @property
    def ended(self) -> bool:
        """Whether the end was said."""
        return END_ID in self.ids[-1:]


def complete(
    folder: Folder,
    spelling: Spelling,
    source: list[int],
    prefix: str,
    width: int,
    penalty: float,
) -> Hypothesis | None:
    """Return the best translation of a source that begins with a prefix.

    Args:
        folder: the export.
        spelling: of the target's tokens.
        source: ids, at least one.
        prefix: from `Spelling.normalize`.
        width: hypotheses that are kept.
        penalty: see `keras_attention.beam_search`.

    Returns:
        The hypothesis; None if no tokens spell the prefix.
    """
    ways = spelling.ways(prefix)
    if ways is None:
        return None
    graphs = folder.manifest["graphs"]
    made = folder.run("encoder", {"ids": np.array([source], "int64")})
    memory = {name: made[name] for name in graphs["memory"]}
    state = {name: made[name] for name in graphs["state"]}
    longest = max(2 * len(source) + 10, len(prefix.encode()) + AFTER_PREFIX)

    def score(one: Hypothesis, length: int | None = None) -> float:
        return sum(one.log_probs) / ((5 + (length or len(one.ids))) / 6) ** penalty

    beam = [Hypothesis()]
    for _ in range(longest):
        open_ = [one for one in beam if not one.ended]
        ended = [one for one in beam if one.ended]
        reach = max((score(one, longest) for one in open_), default=-np.inf)
        if not open_ or max(map(score, ended), default=-np.inf) >= reach:
            break
        rows = np.array([one.row for one in open_])
        state = {name: x[rows] for name, x in state.items()}
        tokens = np.array([one.ids[-1] if one.ids else START_ID for one in open_])
        repeated = {name: np.repeat(x, len(open_), 0) for name, x in memory.items()}
        taken = folder.run("step", {"tokens": tokens, **repeated, **state})
        state = {name: taken[f"next_{name}"] for name in state}
        grown = [
            _grow(one, token, float(log_probs[token]), row, spelling, prefix)
            for row, (one, log_probs) in enumerate(zip(open_, taken["log_probs"], strict=True))
            for token in _best(log_probs, one, ways, width)
        ]
        beam = sorted([*ended, *grown], key=score, reverse=True)[:width]
    return max(beam, key=score)


def _best(log_probs: np.ndarray, one: Hypothesis, ways: list[np.ndarray], width: int) -> list[int]:
    """Return the most probable tokens that a hypothesis may say."""
    allowed = ways[one.place] if one.place < len(ways) else np.arange(len(log_probs))
    order = np.argsort(-log_probs[allowed], kind="stable")[:width]
    found: list[int] = allowed[order].tolist()
    return found


def _grow(
    one: Hypothesis, token: int, log_prob: float, row: int, spelling: Spelling, prefix: str
) -> Hypothesis:
    text = (spelling.texts if one.place else spelling.first)[token]
    place = min(one.place + len(text), len(prefix))
    return Hypothesis((*one.ids, token), (*one.log_probs, log_prob), place, row)
