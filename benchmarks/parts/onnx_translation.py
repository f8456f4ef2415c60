"""Untrained models as ONNX exports whose translations have a length that is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock


def export_forced(run: Any, length: int, folder: Path, weights: str) -> None:
    """Write an ONNX export of a run whose translations have so many tokens."""
    from serving.portable.write.encoders import TextEncoder
    from serving.portable.write.graphs import write_folder

    def limits(encoder: Any, g: Any, source: Any) -> Any:
        return g.expand(float(length), g.size(source, 0), 1)

    settings = {"beam_width": 5, "num_results": 1, "length_penalty": 1.0, "weights": weights}
    folder.mkdir()
    with mock.patch.object(TextEncoder, "limits", limits):
        card = {"settings": {**settings, "max_source_length": 256}, "versions": {}}
        write_folder([run], folder, card, weights=weights)
