"""Runs an ONNX export behind the signatures of a SavedModel, with the same outputs."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from google.protobuf.message import Message

from serving.api._errors import InvalidRequestError
from serving.api._results import TRANSLATE_LINES, Alignment
from serving.client import serving_pb2
from serving.client._protobuf import DTYPES
from serving.loaded._status import Code, StatusError, Waiting, deadline_exceeded, invalid
from serving.portable.read import MODELS
from serving.portable.read._model import RUN_OPTIONS, Folder

_BATCH = 64
_POLL_SECONDS = 0.25  # between checks whether a client still waits
_NUMBERS = {name: number for number, (name, _, _) in DTYPES.items()}
# The call of the local model that computes each signature.
_SIGNATURES: dict[str, Callable[..., Sequence[Any]]] = {
    "translate": lambda model, text: model.translate(_texts(text)),
    TRANSLATE_LINES: lambda model, text: model.translate(_texts(text)),
    "nbest": lambda model, text=None, image_bytes=None: (
        _read(model.nbest, image_bytes) if text is None else model.nbest(_texts(text))
    ),
    "align": lambda model, text: [_with_row(each) for each in model.align(_texts(text))],
    "score": lambda model, text, translation: model.score(_texts(text), _texts(translation)),
    "read": lambda model, image_bytes: _read(model.read, image_bytes),
    "regions": lambda model, image_bytes: _read(model.regions, image_bytes),
    "predict": lambda model, **columns: _predictions(model, columns),
}


class OnnxModel:
    """A loaded ONNX export; `signatures` maps names to SignatureDefs. Raises StatusError."""

    def __init__(self, path: Path):
        try:
            folder = Folder(path)  # this checks the SHA-256 of its files
            task = folder.manifest["task"]
            self._model = MODELS[task](folder, batch_size=_BATCH)
            declared = self._model.signatures()
        except Exception as error:  # a damaged tokenizer may raise any class
            reason = f"{path} cannot be loaded: {type(error).__name__}: {error}"
            raise StatusError(Code.DATA_LOSS, reason) from error
        self._lock = threading.Lock()
        self._running: dict[onnxruntime.RunOptions, Waiting | None] = {}
        self._stopped = threading.Event()
        self._asks = {name: ask for name, ask in _SIGNATURES.items() if name in declared}
        self.signatures = {name: _signature(name, declared[name]) for name in self._asks}
        self._asks["serving_default"] = self._asks[task]
        self.signatures["serving_default"] = self.signatures[task]
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def run(
        self, name: str, inputs: Mapping[str, np.ndarray], call: Waiting | None = None
    ) -> dict[str, np.ndarray]:
        """Return the outputs of a signature by alias.

        Args:
            name: of the signature.
            inputs: arrays by alias.
            call: the request; the run stops when its time is over. None means no limit.

        Raises StatusError.
        """
        with self._cancellable(call):
            try:
                answers = self._asks[name](self._model, **inputs)
            except ValueError as error:
                raise invalid(str(error)) from error
        return {
            alias: _array([_value(answer, alias) for answer in answers], info)
            for alias, info in self.signatures[name].outputs.items()
        }

    @contextmanager
    def _cancellable(self, call: Waiting | None) -> Iterator[None]:
        """Within this, graphs run until the call's time is over or the model stops: StatusError."""
        closed = StatusError(Code.CANCELLED, "Session has been closed.")
        options = onnxruntime.RunOptions()
        options.log_severity_level = 4  # ONNX Runtime would log an error for a stopped run
        with self._lock:
            if self._stopped.is_set():
                raise closed
            self._running[options] = call
        token = RUN_OPTIONS.set(options)
        try:
            yield
        except Exception as error:
            if not options.terminate:
                raise
            raise (closed if self._stopped.is_set() else deadline_exceeded()) from error
        finally:
            RUN_OPTIONS.reset(token)
            with self._lock:
                del self._running[options]

    def _watch(self) -> None:
        """Stop the runs whose call has no time left; return after `stop`."""
        while not self._stopped.wait(_POLL_SECONDS):
            with self._lock:
                for options, call in self._running.items():
                    options.terminate |= call is not None and not call.seconds_left()

    def stop(self) -> None:
        """Make running requests fail soon. No other runs can follow."""
        with self._lock:
            self._stopped.set()
            for options in self._running:
                options.terminate = True

    def close(self) -> None:
        self.stop()
        del self._model


def _signature(name: str, declared: Mapping[str, Mapping[str, str]]) -> Message:
    """Return the SignatureDef of inputs and outputs declared by alias as `float(?, ?)`."""
    signature = serving_pb2.SignatureDef(method_name="tensorflow/serving/predict")
    for side, aliases in declared.items():
        for alias, text in aliases.items():
            dtype, sizes = re.fullmatch(r"(\w+)\((.*)\)", text).groups()  # type: ignore[union-attr]
            info = getattr(signature, side)[alias]
            info.name, info.dtype = f"{name}_{alias}:0", _NUMBERS[dtype]
            for size in filter(None, sizes.split(", ")):
                info.tensor_shape.dim.add(size=-1 if size == "?" else int(size))
    return signature


def _texts(array: np.ndarray) -> list[str]:
    return [text.decode("utf-8", "replace") for text in array]


def _with_row(answer: Alignment) -> Alignment:
    """Return an alignment with at least one row: without target tokens, a row of zeros."""
    if answer.target_tokens:
        return answer
    zeros = (0.0,) * len(answer.source_tokens)
    return replace(answer, target_tokens=("",), attention_weights=(zeros,))


def _read(read: Callable[..., Sequence[Any]], files: np.ndarray) -> Sequence[Any]:
    """Return the answers for image files `(B,)`. Raises StatusError if an image cannot be read."""
    answers = read(files.tolist(), keep_errors=True)
    for number, answer in enumerate(answers):
        if isinstance(answer, InvalidRequestError):
            reason = str(answer).removeprefix(f"image {number + 1} ")
            raise invalid(f"image_bytes[{number}] {reason}")
    return answers


def _predictions(model: Any, columns: Mapping[str, np.ndarray]) -> list[Any]:
    """Return a prediction for each row of columns `(B, T)`, with a weight for each of T events."""
    if len({array.shape for array in columns.values()}) > 1:
        raise ValueError("expected columns of one shape")
    # (B, T, columns)
    events = np.stack([columns[name] for name in model.signatures()["predict"]["inputs"]], axis=-1)
    return model.predict(list(events))


def _value(answer: Any, alias: str) -> Any:
    """Return an answer's value of an output; for a list of answers, of all or of the first."""
    if isinstance(answer, list):
        if alias.endswith("s"):
            return [_value(each, alias.removesuffix("s")) for each in answer]
        answer = answer[0]
    return getattr(answer, alias) if hasattr(answer, alias) else answer.text


def _array(values: Sequence[Any], info: Message) -> np.ndarray:
    """Return nested values as an array of the output's shape; pad open sizes to the largest."""
    shape, level = [len(values)], values
    for dim in info.tensor_shape.dim[1:]:
        shape.append(dim.size if dim.size >= 0 else max(map(len, level), default=0))
        level = [inner for outer in level for inner in outer]
    dtype = np.dtype(DTYPES[info.dtype][2])
    array = np.full(shape, b"" if dtype.kind == "O" else 0, dtype)
    _fill(array, values)
    return array


def _fill(array: np.ndarray, values: Sequence[Any]) -> None:
    """Copy nested values into the beginning of each axis of an array."""
    if array.ndim == 1:
        row = [value.encode() if isinstance(value, str) else value for value in values]
        array[: len(row)] = np.array(row, array.dtype)
        return
    for inner, several in zip(array, values, strict=False):
        _fill(inner, several)
