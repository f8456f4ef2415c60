"""A model of histories in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from serving.client.arguments import checked_items
from serving.client.histories import TIME, History, history_columns
from serving.client.local.model import LocalModel
from serving.client.results import Prediction


class LocalPredictor(LocalModel):
    """A model of histories in this process, with the method of `serving.client.Predictor`.

    Args:
        path: of a version that was exported with `--format onnx`, or of the model, of whose
            versions the last is taken.
        batch_size: histories that are read together.
        threads: that batches share; those of one batch share its operations.

    Raises:
        ValueError: if there is no such export, or for a setting that is not possible.
    """

    task = "predict"

    def __init__(self, path: str | Path, *, batch_size: int = 32, threads: int = 1) -> None:
        super().__init__(path, batch_size, threads)
        self._columns = self.manifest["source"]["columns"]

    def signatures(self) -> dict[str, dict[str, dict[str, str]]]:
        """See the base class."""
        outputs = {"probability": "float(?)"}
        if self.manifest["attends"]:
            outputs["attention_weights"] = "float(?, ?)"
        inputs = dict.fromkeys(self._columns, "float(?, ?)")
        return {"predict": {"inputs": inputs, "outputs": outputs}}

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Load the graph; a model in this process is there at once."""
        self.outcome([{name: [0.0] for name in self._columns}])

    def outcome(self, histories: Sequence[History], ignore: bool = False) -> list[Prediction]:
        """How probable the outcome of each history is; `ignore` leaves out unknown columns.

        Raises:
            ValueError: see `serving.client.histories.history_columns`.
        """
        rows = [
            history_columns(history, self._columns, ignore)
            for history in checked_items(histories, "histories")
        ]

        def work(numbers: Sequence[int]) -> list[Prediction]:
            batch = [rows[number] for number in numbers]
            lengths = [len(row[TIME]) for row in batch]
            # One event that is none, so that histories may be empty.
            events = np.full((len(batch), max(lengths) + 1, len(self._columns)), np.nan, "float32")
            for place, row in enumerate(batch):
                for number, name in enumerate(self._columns):
                    events[place, : lengths[place], number] = row[name]
            out = self._folder.run("predictor", {"events": events})
            weights = out.get("attention_weights", np.zeros((len(batch), 0)))
            return [
                Prediction(probability, tuple(row[:length]))
                for probability, row, length in zip(
                    out["probability"].tolist(), weights.tolist(), lengths, strict=True
                )
            ]

        batches = self._batches.each(range(len(rows)), work)
        return [one for batch in batches for one in batch]
