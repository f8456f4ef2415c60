"""An ONNX export as a server's model. Its answers are those of the SavedModel."""

import contextlib
import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from google.protobuf.message import Message

from serving.client import protobuf
from serving.client.errors import InvalidRequestError
from serving.client.histories import TIME
from serving.client.local import LocalPredictor, LocalReader, LocalTranslator
from serving.client.local.model import MANIFEST, RUN_OPTIONS
from serving.savedmodel.status import Code, StatusError, invalid
from serving.server.predict import DEFAULT_SIGNATURE
from serving.server.tensors import DTYPES, to_array

_PREDICT = "tensorflow/serving/predict"
_BATCH = 64
_WATCH_SECONDS = 0.05
_SIGNATURE_DEF = protobuf.message("SignatureDef", "tensorflow")
_NUMBERS = {dtype.name: number for number, dtype in DTYPES.items()}
_MODELS: dict[str, Callable[..., Any]] = {
    "translate": LocalTranslator,
    "read": LocalReader,
    "predict": LocalPredictor,
}
# Of each signature, the question to a model.
_ASK: dict[str, Callable[..., Sequence[Any]]] = {
    "translate": lambda model, text: model.translate(_texts(text)),
    "nbest": lambda model, text=None, image_bytes=None: (
        _unbroken(model.nbest, image_bytes) if text is None else model.nbest(_texts(text))
    ),
    "align": lambda model, text: model.align(_texts(text)),
    "score": lambda model, text, translation: model.score(_texts(text), _texts(translation)),
    "read": lambda model, image_bytes: _unbroken(model.read, image_bytes),
    "regions": lambda model, image_bytes: _unbroken(model.regions, image_bytes),
    "predict": lambda model, **columns: _outcomes(model, columns),
}
Arrays = dict[str, np.ndarray]


class OnnxModel:
    """A loaded ONNX export.

    Raises:
        StatusError: if it cannot be loaded.
    """

    def __init__(self, path: Path, threads: int = 1):
        try:
            task = json.loads((path / MANIFEST).read_text(encoding="utf-8"))["task"]
            self._model = _MODELS[task](path, batch_size=_BATCH, threads=threads)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise invalid(f"{path} cannot be loaded: {error}") from error
        self._default = task
        self._watch = _Watch()
        self.signatures = {
            name: _signature(name, about) for name, about in self._model.signatures().items()
        }
        self.signatures[DEFAULT_SIGNATURE] = self.signatures[task]
        self.ranks = {
            name: {alias: len(info.tensor_shape.dim) for alias, info in signature.inputs.items()}
            for name, signature in self.signatures.items()
        }

    def run(
        self,
        name: str,
        inputs: Mapping[str, Message],
        outputs: Sequence[str] = (),
        timeout_ms: int = 0,
        slow: bool = False,
    ) -> Arrays:
        """Run a signature; see `serving.savedmodel.model.SavedModel`. `slow` changes nothing."""
        ask = _ASK[self._default if name == DEFAULT_SIGNATURE else name]
        arrays = {alias: to_array(proto) for alias, proto in inputs.items()}
        with self._watch.run(timeout_ms / 1000 if timeout_ms else math.inf):
            try:
                answers = ask(self._model, **arrays)
            except ValueError as error:
                raise invalid(str(error)) from error
        infos = self.signatures[name].outputs
        return {
            alias: _array([_value(answer, alias) for answer in answers], infos[alias])
            for alias in outputs or infos
        }

    def stop(self) -> None:
        """Have the runs under way fail soon; no others can follow."""
        self._watch.stop()

    def close(self) -> None:
        """Free the graphs."""
        self._watch.stop()
        del self._model


@dataclass(eq=False)
class _Run:
    """A run under way; with a code it was stopped."""

    deadline: float
    options: onnxruntime.RunOptions = field(default_factory=onnxruntime.RunOptions)
    code: Code | None = None


class _Watch:
    """Stops runs at their deadlines, and all of them when the model is stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: set[_Run] = set()
        self._stopped = threading.Event()
        threading.Thread(target=self._look, name="onnx-deadlines", daemon=True).start()

    @contextlib.contextmanager
    def run(self, seconds: float) -> Iterator[None]:
        """Within this, graphs run for at most so long; then it raises StatusError."""
        if self._stopped.is_set():
            raise StatusError(Code.CANCELLED, "Session has been closed.")
        run = _Run(time.monotonic() + seconds)
        token = RUN_OPTIONS.set(run.options)
        with self._lock:
            self._runs.add(run)
        try:
            yield
        except Exception as error:
            if run.code is None:
                raise
            raise StatusError(run.code, "Timed out waiting for notification") from error
        finally:
            with self._lock:
                self._runs.discard(run)
            RUN_OPTIONS.reset(token)

    def stop(self) -> None:
        """Stop all runs."""
        self._stopped.set()

    def _look(self) -> None:
        while True:
            stopped = self._stopped.wait(_WATCH_SECONDS)
            now = time.monotonic()
            with self._lock:
                for run in self._runs:
                    if stopped or now > run.deadline:
                        run.code = Code.CANCELLED if stopped else Code.DEADLINE_EXCEEDED
                        run.options.terminate = True
            if stopped:
                return


def _signature(name: str, about: Mapping[str, Mapping[str, str]]) -> Message:
    """A SignatureDef of what a local model says of itself, such as `float(?, ?)`."""
    signature = _SIGNATURE_DEF(method_name=_PREDICT)
    for infos, aliases in (
        (signature.inputs, about["inputs"]),
        (signature.outputs, about["outputs"]),
    ):
        for alias, text in aliases.items():
            dtype, sizes = re.fullmatch(r"(\w+)\((.*)\)", text).groups()  # type: ignore[union-attr]
            info = infos[alias]
            info.name, info.dtype = f"{name}_{alias}:0", _NUMBERS[dtype]
            for size in filter(None, sizes.split(", ")):
                info.tensor_shape.dim.add(size=-1 if size == "?" else int(size))
    return signature


def _texts(array: np.ndarray) -> list[str]:
    return [text.decode("utf-8", "replace") for text in array]


def _unbroken(read: Callable[..., Sequence[Any]], files: np.ndarray) -> Sequence[Any]:
    """Answers about images. Raises StatusError where one could not be read."""
    answers = read(files.tolist(), keep_errors=True)
    for number, answer in enumerate(answers):
        if isinstance(answer, InvalidRequestError):
            reason = str(answer).removeprefix(f"image {number + 1} ")
            raise invalid(f"image_bytes[{number}] {reason}")
    return answers


def _outcomes(model: Any, columns: Mapping[str, np.ndarray]) -> list[Any]:
    """Predictions for columns `(B, T)`, with a weight for each of T events."""
    if len({array.shape for array in columns.values()}) > 1:
        raise ValueError("expected columns of one shape")
    histories = []
    for row, time_ in enumerate(columns[TIME]):
        known = np.flatnonzero(~np.isnan(time_))  # past the end all is NaN
        length = known[-1] + 1 if len(known) else 0
        histories.append({name: x[row, :length].tolist() for name, x in columns.items()})
    rest = (0.0,) * columns[TIME].shape[1]
    return [
        replace(one, attention_weights=(*one.attention_weights, *rest)[: len(rest)])
        for one in model.outcome(histories)
    ]


def _value(answer: Any, alias: str) -> Any:
    """An output's part of an answer, which may be a list of several."""
    if isinstance(answer, list):
        one = {"probabilities": "probability"}.get(alias, alias.removesuffix("s"))
        return [_value(each, one) for each in answer]
    return getattr(answer, alias) if hasattr(answer, alias) else answer.text


def _array(values: Sequence[Any], info: Message) -> np.ndarray:
    """Nested values as an output: padded to the largest, unless its shape is known."""
    shape, level = [len(values)], values
    for dim in info.tensor_shape.dim[1:]:
        shape.append(dim.size if dim.size >= 0 else max(map(len, level), default=0))
        level = [inner for outer in level for inner in outer]
    dtype = DTYPES[info.dtype].numpy
    found = np.full(shape, b"" if dtype == "object" else 0, dtype)
    _fill(found, values)
    return found


def _fill(found: np.ndarray, values: Sequence[Any]) -> None:
    if found.ndim == 1:
        plain = [one.encode() if isinstance(one, str) else one for one in values]
        found[: len(plain)] = np.array(plain, found.dtype)
        return
    for row, several in zip(found, values, strict=False):
        _fill(row, several)
