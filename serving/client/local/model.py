"""An exported folder: its manifest, and its graphs in onnxruntime."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

MANIFEST = "manifest.json"
FORMAT = "onnx"


class Folder:
    """A version directory of an ONNX export.

    Args:
        path: of it, or of the model, of whose versions the last is taken.
        threads: for each operation.

    Attributes:
        path: of the version.
        manifest: what the export says of itself.

    Raises:
        ValueError: if there is no such export.
    """

    def __init__(self, path: str | Path, threads: int = 1) -> None:
        if threads < 1:
            raise ValueError(f"expected at least 1 thread. Received: {threads}")
        self.path = _version(Path(path))
        try:
            self.manifest: dict[str, Any] = json.loads(
                (self.path / MANIFEST).read_text(encoding="utf-8")
            )
        except (ValueError, OSError) as error:
            raise ValueError(f"{self.path / MANIFEST} cannot be read: {error}") from None
        kind = self.manifest.get("format") if isinstance(self.manifest, dict) else None
        if kind != FORMAT:
            raise ValueError(
                f"{self.path} expected to be an export with --format onnx. Received: format {kind}"
            )
        self._options = onnxruntime.SessionOptions()
        self._options.intra_op_num_threads = threads
        self._options.inter_op_num_threads = 1
        self._options.log_severity_level = 3
        self._sessions: dict[str, onnxruntime.InferenceSession] = {}

    def run(self, graph: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run a graph, which is loaded at its first use.

        Raises:
            ValueError: if it cannot be loaded.
        """
        if graph not in self._sessions:
            try:
                self._sessions[graph] = onnxruntime.InferenceSession(
                    str(self.path / f"{graph}.onnx"), self._options, ["CPUExecutionProvider"]
                )
            except Exception as error:  # onnxruntime's have no class of their own
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise ValueError(f"{self.path / graph}.onnx cannot be loaded: {reason}") from None
        session = self._sessions[graph]
        found = session.run(None, dict(inputs))
        return dict(zip((x.name for x in session.get_outputs()), found, strict=True))


def _version(path: Path) -> Path:
    """Return a version directory."""
    if (path / MANIFEST).is_file():
        return path
    versions = [each for each in path.glob("*") if each.name.isdecimal() and each.is_dir()]
    if not versions:
        raise ValueError(f"{path} holds no {MANIFEST}: expected models/NAME or models/NAME/1")
    return max(versions, key=lambda each: int(each.name))
