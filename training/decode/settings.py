"""Search with trained models: its settings, and which runs they fit."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from training.command.errors import UserError
from training.data.tokenizers import VocabularyTokenizer
from training.runs.run import Run
from training.sources.kinds import KINDS


@dataclass(frozen=True)
class Search:
    """The settings of a search.

    Attributes:
        beam_width: hypotheses kept for each source; 1 is greedy search.
        num_results: results for each source, at most `beam_width`.
        length_penalty: see `keras_attention.beam_search`.
        coverage_penalty: see there; of runs that attend to a text, and with beams alone.
        max_source_length: tokens after which a text is cut.
        precision: of the products, "float32" or, for one run alone, "bfloat16".
        replaces_unknown: whether unknown words are replaced, see `training.decode.words`.
    """

    beam_width: int = 5
    num_results: int = 1
    length_penalty: float = 1.0
    coverage_penalty: float = 0.0
    max_source_length: int = 256
    precision: str = "float32"
    replaces_unknown: bool = False

    @classmethod
    def of(cls, options: argparse.Namespace, num_results: int = 1) -> Search:
        """Return what a command line asks for."""
        names = ("beam_width", "length_penalty", "coverage_penalty", "precision")
        values = {name: getattr(options, name) for name in names if hasattr(options, name)}
        return cls(**values, num_results=num_results, replaces_unknown=options.replace_unknown)

    def check(self, runs: Sequence[Run]) -> None:
        """Raise a UserError where these runs cannot be searched so."""
        check_precision(self.precision, runs)
        if self.coverage_penalty:
            self._check_covers(runs)
        if self.replaces_unknown:
            _check_replaces_unknown(runs)

    def _check_covers(self, runs: Sequence[Run]) -> None:
        if self.beam_width < 2:
            raise UserError("--coverage-penalty expected a --beam-width of at least 2. Received: 1")
        for run in runs:
            if not KINDS[run.config.source].tokens or run.config.attention == "none":
                raise UserError(
                    f"--coverage-penalty expected runs that attend to a text. Received: {run.path}"
                )


def check_precision(precision: str, runs: Sequence[Any]) -> None:
    """Raise a UserError where an ensemble of runs is asked for in bfloat16."""
    if precision != "float32" and len(runs) > 1:
        raise UserError(f"--precision {precision} expected one --run. Received: {len(runs)} runs")


def _check_replaces_unknown(runs: Sequence[Run]) -> None:
    """Refuse runs whose unknown words cannot be replaced.

    The source must be a text that all runs attend to. Both sides must be cut in the same way, into
    tokens that a vocabulary may lack: SentencePiece spells what it does not know.
    """
    for run in runs:
        if not KINDS[run.config.source].tokens:
            raise UserError(
                f"--replace-unknown expected runs from text to text. Received: {run.path}, "
                f"source = {run.config.source}"
            )
        if run.config.attention == "none":
            raise UserError(
                f"--replace-unknown expected attention. Received: {run.path}, attention = none"
            )
        sides = run.source_tokenizer, run.target_tokenizer
        kinds = [side.kind for side in sides]
        if len(set(kinds)) > 1 or not isinstance(sides[1], VocabularyTokenizer):
            raise UserError(
                "--replace-unknown expected words, characters or symbols as the tokenizer of both "
                f"sides. Received: {run.path}, {' and '.join(kinds)}"
            )
