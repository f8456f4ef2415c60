"""The settings of an export: its search, and how its numbers are written."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from training.decode.settings import SearchSettings
from training.runs.run import Run
from training.sources.kinds import SOURCE_KINDS

BITS = {"float32": 32, "int8": 8}  # of products, by `weights`


@dataclass(frozen=True)
class ExportSettings(SearchSettings):
    """The search of an export, and how its numbers are written."""

    num_results: int = 5
    weights: str = "float32"  # of ONNX; or "int8"
    tables: bool = True  # of ONNX, see `serving.portable.write._products`

    @property
    def is_rounded(self) -> bool:
        """Whether the export's results may differ from the results of its runs."""
        return (self.weights, self.precision) != ("float32", "float32")

    def written(self, run: Run, form: str) -> dict[str, Any]:
        """Return the settings, by name, that the manifest of a run's export has in a format."""
        names = [field.name for field in fields(SearchSettings)]
        if not SOURCE_KINDS[run.config.source].tokens:
            names = ["beam_width", "num_results", "length_penalty"]
        if run.config.target == "label":
            names = []
        if form == "onnx":
            names += ["weights"] if self.tables else ["weights", "tables"]
        return {name: getattr(self, name) for name in names}
