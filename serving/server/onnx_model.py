"""An ONNX export as a server's model. Its answers are those of the SavedModel."""

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

from serving.api.errors import InvalidRequestError
from serving.api.results import Alignment
from serving.client import serving_pb2
from serving.client.protobuf import DTYPES
from serving.portable.read import MODELS
from serving.portable.read.model import RUN_OPTIONS, Folder
from serving.savedmodel.status import Code, StatusError, Waiting, deadline_exceeded, invalid
from serving.server.calls import POLL_SECONDS
from serving.server.tensors import Arrays, dtype_of

_BATCH = 64
_NUMBERS = {name: number for number, (name, _, _) in DTYPES.items()}
# How each signature asks a model.
_SIGNATURES: dict[str, Callable[..., Sequence[Any]]] = {
    "translate": lambda model, text: model.translate(_texts(text)),
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
    """A loaded ONNX export, its signatures by name. Raises StatusError if it cannot be loaded."""

    def __init__(self, path: Path):
        try:
            folder = Folder(path)  # once: the sums of its files are compared
            task = folder.manifest["task"]
            self._model = MODELS[task](folder, batch_size=_BATCH)
            declared = self._model.signatures()
        except Exception as error:  # a damaged tokenizer may end in any of them
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
        self,
        name: str,
        inputs: Mapping[str, np.ndarray],
        outputs: Sequence[str] = (),
        call: Waiting | None = None,
    ) -> Arrays:
        """Run a signature, stopped where a `call` ends: some outputs, or all; or StatusError."""
        with self._while_waited_for(call):
            try:
                answers = self._asks[name](self._model, **inputs)
            except ValueError as error:
                raise invalid(str(error)) from error
        infos = self.signatures[name].outputs
        return {
            alias: _array([_value(answer, alias) for answer in answers], infos[alias])
            for alias in outputs or infos
        }

    @contextmanager
    def _while_waited_for(self, call: Waiting | None) -> Iterator[None]:
        """Within this, texts are read and graphs run while somebody waits; else StatusError."""
        closed = StatusError(Code.CANCELLED, "Session has been closed.")
        options = onnxruntime.RunOptions()
        options.log_severity_level = 4  # of a run that is stopped it would log an error
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
        """Stop the runs that nobody waits for, until all are stopped."""
        while not self._stopped.wait(POLL_SECONDS):
            with self._lock:
                for options, call in self._running.items():
                    options.terminate |= call is not None and not call.seconds_left()

    def stop(self) -> None:
        """Have the runs under way fail soon; no others can follow."""
        with self._lock:
            self._stopped.set()
            for options in self._running:
                options.terminate = True

    def close(self) -> None:
        """Free the graphs."""
        self.stop()
        del self._model


def _signature(name: str, declared: Mapping[str, Mapping[str, str]]) -> Message:
    """A SignatureDef of a local model's inputs and outputs, such as `float(?, ?)`, by alias."""
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
    """An alignment that has a row; where it has no tokens, of zeros, as wide as its source."""
    if answer.target_tokens:
        return answer
    zeros = (0.0,) * len(answer.source_tokens)
    return replace(answer, target_tokens=("",), attention_weights=(zeros,))


def _read(read: Callable[..., Sequence[Any]], files: np.ndarray) -> Sequence[Any]:
    """Answers about images. Raises StatusError where one could not be read."""
    answers = read(files.tolist(), keep_errors=True)
    for number, answer in enumerate(answers):
        if isinstance(answer, InvalidRequestError):
            reason = str(answer).removeprefix(f"image {number + 1} ")
            raise invalid(f"image_bytes[{number}] {reason}")
    return answers


def _predictions(model: Any, columns: Mapping[str, np.ndarray]) -> list[Any]:
    """Predictions for columns `(B, T)`, with a weight for each of T events."""
    if len({array.shape for array in columns.values()}) > 1:
        raise ValueError("expected columns of one shape")
    events = np.stack([columns[name] for name in model.signatures()["predict"]["inputs"]], axis=-1)
    return model.predict(list(events))


def _value(answer: Any, alias: str) -> Any:
    """An output's part of an answer, which may be a list of several."""
    if isinstance(answer, list):
        if alias.endswith("s"):
            return [_value(each, alias.removesuffix("s")) for each in answer]
        answer = answer[0]
    return getattr(answer, alias) if hasattr(answer, alias) else answer.text


def _array(values: Sequence[Any], info: Message) -> np.ndarray:
    """Nested values as an output: padded to the largest, unless its shape is known."""
    shape, level = [len(values)], values
    for dim in info.tensor_shape.dim[1:]:
        shape.append(dim.size if dim.size >= 0 else max(map(len, level), default=0))
        level = [inner for outer in level for inner in outer]
    dtype = dtype_of(info.dtype)
    array = np.full(shape, b"" if dtype.kind == "O" else 0, dtype)
    _fill(array, values)
    return array


def _fill(array: np.ndarray, values: Sequence[Any]) -> None:
    if array.ndim == 1:
        row = [value.encode() if isinstance(value, str) else value for value in values]
        array[: len(row)] = np.array(row, array.dtype)
        return
    for inner, several in zip(array, values, strict=False):
        _fill(inner, several)
