"""Word links read from where a decoder looked, for the alignment error rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training import corpus, metrics
from training.inference import forced_attention
from training.metrics import Link
from training.run import Run
from training.text import word_of_piece


@dataclass(frozen=True)
class Reading:
    """How links are read from weights.

    Attributes:
        method: "threshold" or "argmax", see `metrics.links_from_weights`.
        threshold: smallest weight of a link, for "threshold".
        shift: the weights of step `i + shift` belong to the target token that step `i` says. In
            Bahdanau's order a step looks before it is told which token was said last, and a
            trained model may look for a token one step before it says it (-1) or after (1).
        symmetrize: "none", "intersection", "union" or "grow-diag", as there.
    """

    method: str = "threshold"
    threshold: float = 0.45
    shift: int = 0
    symmetrize: str = "none"

    def describe(self) -> str:
        """Say in words what is done, beside every AER."""
        whom = "the source word of largest weight"
        if self.method == "threshold":
            whom = f"the source words of weight >= {self.threshold}"
        step = f"the weights of step i{self.shift:+d} for token i; " if self.shift else ""
        both = "not symmetrised"
        if self.symmetrize != "none":
            both = f"{self.symmetrize} with the links read from source to target words"
        return (
            f"force-decoded; {step}subwords joined to words; each target word is linked to "
            f"{whom}; {both}"
        )


@dataclass(frozen=True)
class WordWeights:
    """Where the decoder looked to say a sentence, and the words of the tokens.

    Attributes:
        weights: float32 `(T + 1, S)`; the last row is that of the end token.
        source: word of each of the S source tokens, -1 for none.
        target: word of each of the T target tokens, -1 for none.
    """

    weights: np.ndarray
    source: list[int]
    target: list[int]


def attend(runs: Sequence[Run], split: corpus.Split) -> list[WordWeights]:
    """Force-decode the first references of a split with gold words."""
    targets = [references[0] for references in split.references]
    result = []
    for attended, source, target, source_words, target_words in zip(
        forced_attention(runs, split.sources, targets),
        split.sources,
        targets,
        split.source_words,
        split.target_words,
        strict=True,
    ):
        result.append(
            WordWeights(
                np.concatenate([attended.weights, attended.end_weights[None]]),
                word_of_piece(source, source_words, attended.source_tokens),
                word_of_piece(target, target_words, attended.target_tokens),
            )
        )
    return result


def read(sentences: Sequence[WordWeights], reading: Reading) -> list[set[Link]]:
    """Read the links `(source word, target word)` of each sentence.

    A step before the first or after the last is the first or the last.
    """
    result = []
    for sentence in sentences:
        steps = np.arange(len(sentence.target)) + reading.shift
        weights = sentence.weights[np.clip(steps, 0, len(sentence.target))]
        links = metrics.links_from_weights(
            weights,
            sentence.source,
            sentence.target,
            method=reading.method,
            threshold=reading.threshold,
            symmetrize=reading.symmetrize,
        )
        result.append(links)
    return result


def diagonal(split: corpus.Split) -> list[set[Link]]:
    """Link each target word to the source word at the same place, from first to last."""
    result = []
    for source, target in zip(split.source_words, split.target_words, strict=True):
        last = max(len(target) - 1, 1)
        links = {(round(t * (len(source) - 1) / last), t) for t in range(len(target))}
        result.append(links if source else set())
    return result


def at_most(split: corpus.Split, words: int) -> corpus.Split:
    """Pairs of which neither side has more than so many words.

    Words are those of the gold links where there are, otherwise what stands between spaces.
    """
    sources = split.source_words or [source.split() for source in split.sources]
    targets = split.target_words or [references[0].split() for references in split.references]
    return split.select(
        [
            i
            for i, pair in enumerate(zip(sources, targets, strict=True))
            if max(map(len, pair)) <= words
        ]
    )
