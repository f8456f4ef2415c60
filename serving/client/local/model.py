"""An exported folder: its manifest, and its graphs in onnxruntime; and the base of all models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import onnxruntime

from serving.client.arguments import check_count
from serving.client.local.manifest import MANIFEST, RANKS, read_manifest
from serving.client.printing import first_line
from serving.client.results import Metadata

# Of the runs that a thread begins, by which another can stop them; None where nobody will.
RUN_OPTIONS: ContextVar[onnxruntime.RunOptions | None] = ContextVar("RUN_OPTIONS", default=None)
T = TypeVar("T")
_ROWS = ("B", "N")  # the manifest's names of the axis of a batch


class Folder:
    """A version directory of an ONNX export.

    Args:
        path: of it, or of the model, of whose versions the last is taken.
        threads: that share an operation.

    Raises:
        ValueError: if there is no such export.
    """

    def __init__(self, path: str | Path, threads: int = 1) -> None:
        self.path = _version(Path(path))
        self.manifest = read_manifest(self.path)
        self._options = onnxruntime.SessionOptions()
        self._options.intra_op_num_threads = threads
        self._options.inter_op_num_threads = 1
        # Threads that wait for work by spinning take the processor from those that have some.
        self._options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._options.log_severity_level = 3
        self._sessions: dict[str, onnxruntime.InferenceSession] = {}
        self._loading = Lock()

    def run(self, graph: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run a graph, which is loaded at its first use.

        A batch may be empty: onnxruntime fails on some operators of no rows, so that a row of zeros
        stands in.

        Raises:
            ValueError: if it cannot be loaded, or fails.
        """
        if not all(len(x) for x in inputs.values() if x.ndim):
            row = {k: x if not x.ndim or len(x) else _one_row(x) for k, x in inputs.items()}
            declared = self.manifest["graphs"][graph]["outputs"]
            return {
                name: x[:0] if [*declared[name]["shape"], ""][0] in _ROWS else x
                for name, x in self.run(graph, row).items()
            }
        with self._loading:
            if graph not in self._sessions:
                self._sessions[graph] = self._load(graph)
        session, options = self._sessions[graph], RUN_OPTIONS.get()
        try:
            arrays = session.run(None, dict(inputs), options)
        except Exception as error:  # onnxruntime's have no class of their own
            if options is not None and options.terminate:
                raise
            raise ValueError(f"{self.path / graph}.onnx fails: {first_line(error)}") from None
        outputs = dict(zip((x.name for x in session.get_outputs()), arrays, strict=True))
        for name, rank in RANKS.get(graph, {}).items():
            if outputs[name].ndim != rank:
                raise ValueError(
                    f"{self.path / graph}.onnx expected {name} of {rank} axes. Received: "
                    f"{outputs[name].ndim}"
                )
        return outputs

    def _load(self, graph: str) -> onnxruntime.InferenceSession:
        path = self.path / f"{graph}.onnx"
        try:
            session = onnxruntime.InferenceSession(
                str(path), self._options, ["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's have no class of their own
            raise ValueError(f"{path} cannot be loaded: {first_line(error)}") from None
        expected = {*self.manifest["graphs"][graph]["outputs"], *RANKS.get(graph, ())}
        if missing := expected - {output.name for output in session.get_outputs()}:
            raise ValueError(f"{path} has no output {min(missing)}")
        return session


def _version(path: Path) -> Path:
    """Return a version directory."""
    if (path / MANIFEST).is_file():
        return path
    versions = [each for each in path.glob("*") if each.name.isdecimal() and each.is_dir()]
    if any((each / "saved_model.pb").is_file() for each in (path, *versions)):
        raise ValueError(
            f"{path} expected to be an export with --format onnx. Received: a SavedModel"
        )
    if not versions:
        raise ValueError(f"{path} holds no {MANIFEST}: expected models/NAME or models/NAME/1")
    return max(versions, key=lambda each: int(each.name))


def _one_row(x: np.ndarray) -> np.ndarray:
    return np.zeros((1, *x.shape[1:]), x.dtype)


class Batches:
    """Batches of rows, as many at a time as there are threads.

    Args:
        size: most rows of a batch; there are fewer where threads would have no batch.
        threads: how many there are.

    Raises:
        ValueError: if one of them is below 1.
    """

    def __init__(self, size: int, threads: int) -> None:
        check_count("batch_size", size, 1)
        check_count("threads", threads, 1)
        self._size, self._threads = size, threads

    def each(self, rows: Sequence[int], work: Callable[[Sequence[int]], T]) -> list[T]:
        """Return what `work` makes of each batch of rows, which stay in their order."""
        size = min(self._size, -(-len(rows) // self._threads)) or 1
        batches = [rows[start : start + size] for start in range(0, len(rows), size)]
        if len(batches) < 2 or self._threads == 1:
            return list(map(work, batches))
        contexts = [copy_context() for _ in batches]  # with the caller's RUN_OPTIONS
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(lambda own, batch: own.run(work, batch), contexts, batches))

    def by_length(self, lengths: Sequence[int], work: Callable[[Sequence[int]], T]) -> list[T]:
        """Return the same of all rows: those of about the same length together, the longest first.

        Args:
            lengths: of the rows.
            work: see `each`.
        """
        return self.each(sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True), work)


class LocalModel:
    """Base class of the models in this process.

    Args:
        path: of a version that was exported with `--format onnx`, or of the model, of whose
            versions the last is taken.
        batch_size: rows that are answered together.
        threads: that batches share; those of one batch share its operations.

    Raises:
        ValueError: if there is no such export, or it does something else than `task`; or for a
            setting that is not possible.
    """

    task: ClassVar[str]

    def __init__(self, path: str | Path, batch_size: int, threads: int) -> None:
        self._batches = Batches(batch_size, threads)
        self._folder = Folder(path, threads)
        if (task := self.manifest["task"]) != self.task:
            raise ValueError(f"{path} expected a model to {self.task} with. Received: to {task}")

    @property
    def manifest(self) -> dict[str, Any]:
        """The export's card: settings, sizes, the run that it was made of."""
        return self._folder.manifest

    def signatures(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return inputs and outputs by the name of a signature, as `Metadata` has them."""
        raise NotImplementedError

    def metadata(self) -> Metadata:
        """Version and signatures of the model."""
        path = self._folder.path.resolve()
        version = int(path.name) if path.name.isdecimal() else 0
        return Metadata(path.parent.name, version, self.signatures())

    def __enter__(self) -> Self:
        """Return the model; there is nothing to close."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Do nothing."""
