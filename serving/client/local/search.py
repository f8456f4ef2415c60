"""The settings of a search, and its result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from serving.client.arguments import check_count, shown
from serving.client.local.tokenizers import (
    END_ID,
    PAD_ID,
    UNK_ID,
    Tokenizer,
    Vocabulary,
    without_special,
)
from serving.client.results import Hypothesis


class Search:
    """The settings of a search; those that are None are the export's.

    Args:
        manifest: of the export.
        beam_width: hypotheses of each source.
        num_results: how many are wanted at most, at most `beam_width`.
        length_penalty: scores are divided by `((5 + length) / 6) ** length_penalty`.

    Raises:
        ValueError: for a setting that is not possible.
    """

    def __init__(
        self,
        manifest: dict[str, Any],
        beam_width: int | None,
        num_results: int | None,
        length_penalty: float | None,
    ) -> None:
        defaults, size = manifest["settings"], manifest["tokenizers"]["target"]["size"]
        for name, count in (("beam_width", beam_width), ("num_results", num_results)):
            if count is not None:
                check_count(name, count, -math.inf)
        self.width = defaults["beam_width"] if beam_width is None else beam_width
        usual = min(defaults.get("num_results", 1), self.width)
        self.results = usual if num_results is None else num_results
        self.penalty = defaults["length_penalty"] if length_penalty is None else length_penalty
        self.coverage_penalty = defaults.get("coverage_penalty", 0.0)
        if isinstance(self.penalty, bool) or not isinstance(self.penalty, int | float):
            raise TypeError(f"expected a number as length_penalty. Received: {shown(self.penalty)}")
        if not 1 <= self.results <= self.width <= size:
            raise ValueError(
                "expected 1 <= num_results <= beam_width <= tokens of the vocabulary. Received: "
                f"{self.results}, {self.width}, {size}"
            )
        if not 0 <= self.penalty < math.inf:
            raise ValueError(f"expected a finite length_penalty >= 0. Received: {self.penalty}")

    def check_ids(self, ids: np.ndarray, size: int) -> None:
        """Raise ValueError for ids that a vocabulary of some size lacks: files do not fit."""
        if ids.size and not 0 <= ids.min() <= ids.max() < size:
            raise ValueError(f"a graph expected {size} tokens. Received: token {ids.max()}")

    def inputs(self, results: int, with_weights: bool) -> dict[str, np.ndarray]:
        """Return the inputs of the graph, beside the source."""
        return {
            "beam_width": np.array([self.width]),
            "num_results": np.array([results]),
            "length_penalty": np.array(self.penalty, "float32"),
            "with_weights": np.array([with_weights]),
        }


def text_of(tokenizer: Tokenizer, ids: np.ndarray, copied: Sequence[str] | None = None) -> str:
    """Return the text of ids `(T,)` up to the end."""
    numbers = without_special(ids.tolist())
    if copied is None:
        return tokenizer.decode(numbers)
    assert isinstance(tokenizer, Vocabulary)  # subwords spell what they do not know
    return tokenizer.join([token_of(tokenizer, number, copied) for number in numbers])


def hypotheses(
    tokenizer: Tokenizer, ids: np.ndarray, scores: np.ndarray, copied: Sequence[str] | None = None
) -> list[Hypothesis]:
    """Return the texts of ids `(N, T)`, see `text_of`, with their scores `(N,)`."""
    return [
        Hypothesis(text_of(tokenizer, each, copied), float(score))
        for each, score in zip(ids, scores, strict=True)
    ]


def tokens_of(
    tokenizer: Tokenizer, ids: np.ndarray, copied: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the tokens of ids `(T,)` up to the end."""
    tokens = []
    for number in ids.tolist():
        if number in (PAD_ID, END_ID):
            break
        tokens.append(token_of(tokenizer, number, copied))
    return tuple(tokens)


def token_of(tokenizer: Tokenizer, number: int, copied: Sequence[str] | None) -> str:
    """Return the token of an id, which is one of `copied` if it is beyond the vocabulary."""
    if copied is None or number < tokenizer.size:
        return tokenizer.token(number)
    place = number - tokenizer.size
    return copied[place] if place < len(copied) else ""  # in an empty text there is none


def padded(ids: Sequence[Sequence[int]]) -> np.ndarray:
    """Return ids as int64 `(B, S)`, S at least 1."""
    array = np.full((len(ids), max(1, *map(len, ids), 1)), PAD_ID, "int64")
    for row, each in zip(array, ids, strict=True):
        row[: len(each)] = each
    return array


def replaced(ids: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """Let each unknown token be the one of the source with the largest attention weight.

    Args:
        ids: `(…, T)`.
        weights: `(…, T, S)`.
        size: of the vocabulary, see `training.decode.texts.replace_unknown`.
    """
    looked = weights.max(-1, initial=0) > 0
    return np.where((ids == UNK_ID) & looked, size + weights.argmax(-1), ids)
