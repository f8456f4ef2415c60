"""The settings of a search, and the check that runs accept them. Imports no Keras."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training.command.errors import UserError
from training.sources.kinds import SOURCE_KINDS

if TYPE_CHECKING:
    from training.runs.files import Trained
    from training.runs.run import Run


@dataclass(frozen=True)
class SearchSettings:
    """The settings of a search."""

    beam_width: int = 5  # hypotheses kept for each source; 1 is greedy search
    num_results: int = 1  # results for each source, at most `beam_width`
    length_penalty: float = 1.0  # see `keras_attention.beam_search`
    coverage_penalty: float = 0.0  # likewise; needs beams, and runs that attend to a text
    max_source_length: int = 256  # tokens after which a text is cut
    precision: str = "float32"  # of products: "float32", or "bfloat16" for a single run
    # whether to replace unknown words, see `training.decode.texts`
    replaces_unknown: bool = False

    @classmethod
    def of(cls, options: argparse.Namespace, num_results: int = 1) -> SearchSettings:
        """Return the settings from command-line options."""
        names = ("beam_width", "length_penalty", "coverage_penalty", "precision")
        values = {name: getattr(options, name) for name in names if hasattr(options, name)}
        return cls(**values, num_results=num_results, replaces_unknown=options.replace_unknown)

    def check(self, runs: Sequence[Trained | Run]) -> None:
        """Raise a UserError if the settings do not fit these runs.

        To replace unknown words, both sides must be split in the same way, into tokens that a
        vocabulary may lack. SentencePiece does not qualify: it spells unknown words.
        """
        if self.precision != "float32" and len(runs) > 1:
            name = f"--precision {self.precision}"
            raise UserError.expected(name, "one --run", f"{len(runs)} runs")
        asked = ["--coverage-penalty"] if self.coverage_penalty else []
        asked += ["--replace-unknown"] if self.replaces_unknown else []
        for option, run in itertools.product(asked, runs):
            config = run.config
            if not SOURCE_KINDS[config.source].tokens or config.attention == "none":
                received = f"{run.path}, source = {config.source}, attention = {config.attention}"
                raise UserError.expected(option, "runs that attend to a text", received)
        if self.coverage_penalty and self.beam_width < 2:
            raise UserError("--coverage-penalty needs a --beam-width of at least 2, but it is 1")
        for run in runs if self.replaces_unknown else ():
            kinds = [run.config.source_tokenizer, run.config.target_tokenizer]
            if len(set(kinds)) > 1 or "sentencepiece" in kinds:
                wanted = "words, characters, letters or symbols as the tokenizer of both sides"
                received = f"{run.path}, {' and '.join(kinds)}"
                raise UserError.expected("--replace-unknown", wanted, received)
