"""The folder of an ONNX export as a server's model, with the answers of its SavedModel."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from serving.savedmodel.status import Code, StatusError
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
Arrays = dict[str, np.ndarray]


class OnnxModel:
    """A loaded ONNX export.

    Args:
        path: of the version.
        threads: that one operation may use.

    Attributes:
        signatures: by name.
        ranks: that inputs must have, by signature and alias.

    Raises:
        StatusError: if it cannot be loaded.
    """

    def __init__(self, path: Path, threads: int = 1):
        try:
            task = json.loads((path / MANIFEST).read_text(encoding="utf-8"))["task"]
            self._model = _MODELS[task](path, batch_size=_BATCH, threads=threads)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StatusError(Code.INVALID_ARGUMENT, f"{path} cannot be loaded: {error}") from error
        self._answers: dict[str, Callable[..., Arrays]] = {
            "translate": self._translate,
            "nbest": self._nbest,
            "align": self._align,
            "score": self._score,
            "complete": self._complete,
            "alternatives": self._alternatives,
            "read": self._read,
            "regions": self._regions,
            "predict": self._predict,
        }
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
        answer = self._answers[self._default if name == DEFAULT_SIGNATURE else name]
        arrays = {alias: to_array(proto) for alias, proto in inputs.items()}
        seconds = timeout_ms / 1000 if timeout_ms else None
        with self._watch.run(seconds):
            try:
                found = answer(**arrays)
            except ValueError as error:
                raise StatusError(Code.INVALID_ARGUMENT, str(error)) from error
        return {alias: found[alias] for alias in outputs or self.signatures[name].outputs}

    def stop(self) -> None:
        """Have the runs under way fail soon; no others can follow."""
        self._watch.stop()

    def close(self) -> None:
        """Free the graphs."""
        self._watch.stop()
        del self._model

    @property
    def _results(self) -> int:
        settings: dict[str, int] = self._model.manifest["settings"]
        return min(settings["num_results"], settings["beam_width"])

    def _translate(self, text: np.ndarray) -> Arrays:
        return _translated(self._model.translate(_texts(text)))

    def _nbest(self, text: np.ndarray) -> Arrays:
        found = self._model.nbest(_texts(text))
        shape = len(text), self._results
        each = [one for several in found for one in several]
        return {
            "translations": _bytes(one.text for one in each).reshape(shape),
            "scores": np.array([one.score for one in each], "float32").reshape(shape),
        }

    def _align(self, text: np.ndarray) -> Arrays:
        found = self._model.align(_texts(text))
        source = _tokens([one.source_tokens for one in found])
        target = _tokens([one.target_tokens for one in found])
        shape = target.shape[1], source.shape[1]
        return {
            "translation": _bytes(one.translation for one in found),
            "source_tokens": source,
            "target_tokens": target,
            "attention_weights": _padded([one.attention_weights for one in found], shape),
            **_words(found),
        }

    def _complete(self, text: np.ndarray, prefix: np.ndarray) -> Arrays:
        found = self._model.complete(_texts(text), _texts(prefix))
        tokens = _tokens([one.tokens for one in found])
        scores = _padded([one.token_scores for one in found], tokens.shape[1:])
        return {**_translated(found), "tokens": tokens, "token_scores": scores}

    def _alternatives(self, text: np.ndarray, prefix: np.ndarray) -> Arrays:
        found = self._model.alternatives(_texts(text), _texts(prefix))
        shape = (self._results,)
        return {
            "words": _tokens([[one.word for one in row] for row in found], *shape),
            "probabilities": _padded([[one.probability for one in row] for row in found], shape),
            "translations": _tokens([[one.translation for one in row] for row in found], *shape),
            "scores": _padded([[one.score for one in row] for row in found], shape),
        }

    def _score(self, text: np.ndarray, translation: np.ndarray) -> Arrays:
        found = self._model.score(_texts(text), _texts(translation))
        tokens = _tokens([one.tokens for one in found])
        return {
            "score": np.array([one.score for one in found], "float32"),
            "tokens": tokens,
            "log_probs": _padded([one.log_probs for one in found], tokens.shape[1:]),
            "truncated": np.array([one.truncated for one in found], bool),
        }

    def _read(self, image_bytes: np.ndarray) -> Arrays:
        found = _unbroken(self._model.read(image_bytes.tolist(), keep_errors=True))
        tokens = _tokens([one.tokens for one in found])
        return {**_said(found), "tokens": tokens, **_sure(found, tokens.shape[1])}

    def _regions(self, image_bytes: np.ndarray) -> Arrays:
        found = _unbroken(self._model.regions(image_bytes.tolist(), keep_errors=True))
        tokens = _tokens([one.tokens for one in found])
        shape = tokens.shape[1], *self._model.manifest["source"]["regions"]
        return {
            **_said(found),
            "tokens": tokens,
            "attention_weights": _padded([one.attention_weights for one in found], shape),
            **_sure(found, tokens.shape[1]),
        }

    def _predict(self, **columns: np.ndarray) -> Arrays:
        if len({array.shape for array in columns.values()}) > 1:
            raise ValueError("expected columns of one shape")
        histories = []
        for row, time_ in enumerate(columns[TIME]):
            known = np.flatnonzero(~np.isnan(time_))  # past the end all is NaN
            length = known[-1] + 1 if len(known) else 0
            histories.append({name: x[row, :length].tolist() for name, x in columns.items()})
        found = self._model.outcome(histories)
        outputs = {"probability": np.array([one.probability for one in found], "float32")}
        if self._model.manifest["attends"]:
            shape = columns[TIME].shape[1:]
            outputs["attention_weights"] = _padded([x.attention_weights for x in found], shape)
        return outputs


class _Watch:
    """Stops runs at their deadlines, and all of them when the model is stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: set[_Run] = set()
        self._stopped = threading.Event()
        threading.Thread(target=self._look, name="onnx-deadlines", daemon=True).start()

    def run(self, seconds: float | None) -> "_Run":
        """A context in which graphs run for at most so long."""
        if self._stopped.is_set():
            raise StatusError(Code.CANCELLED, "Session has been closed.")
        return _Run(self, seconds)

    def stop(self) -> None:
        """Stop all runs."""
        self._stopped.set()

    def add(self, run: "_Run") -> None:
        """Watch a run."""
        with self._lock:
            self._runs.add(run)

    def remove(self, run: "_Run") -> None:
        """Watch it no more."""
        with self._lock:
            self._runs.discard(run)

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


class _Run:
    """One run, while it is watched. A run that was stopped is a StatusError."""

    def __init__(self, watch: _Watch, seconds: float | None):
        self._watch = watch
        self.deadline = float("inf") if seconds is None else time.monotonic() + seconds
        self.options = onnxruntime.RunOptions()
        self.code: Code | None = None

    def __enter__(self) -> None:
        self._token = RUN_OPTIONS.set(self.options)
        self._watch.add(self)

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self._watch.remove(self)
        RUN_OPTIONS.reset(self._token)
        if error is not None and self.code is not None:
            raise StatusError(self.code, "Timed out waiting for notification") from error


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


def _bytes(texts: Iterable[str]) -> np.ndarray:
    return np.array([text.encode() for text in texts], object)


def _translated(found: Sequence[Any]) -> Arrays:
    """What there is of translations."""
    return {
        "translation": _bytes(one.text for one in found),
        "score": np.array([one.score for one in found], "float32"),
        "truncated": np.array([one.truncated for one in found], bool),
        **_words(found),
    }


def _words(found: Sequence[Any]) -> Arrays:
    """The words of translations and their probabilities."""
    words = _tokens([one.words for one in found])
    sure = _padded([one.word_probabilities for one in found], words.shape[1:])
    return {"words": words, "word_probabilities": sure}


def _said(found: Sequence[Any]) -> Arrays:
    """What there is of texts that are read."""
    return {
        "text": _bytes(one.text for one in found),
        "score": np.array([one.score for one in found], "float32"),
    }


def _sure(found: Sequence[Any], length: int) -> Arrays:
    """The probabilities of tokens `(B, T)`."""
    return {"token_probabilities": _padded([one.token_probabilities for one in found], [length])}


def _tokens(rows: Sequence[Sequence[str]], length: int = 0) -> np.ndarray:
    """Tokens `(B, T)`, T at least the length; past the end of a row they are empty."""
    found = np.full((len(rows), max([length, *map(len, rows)])), b"", object)
    for row, tokens in zip(found, rows, strict=True):
        row[: len(tokens)] = [token.encode() for token in tokens]
    return found


def _padded(rows: Sequence[Any], shape: Sequence[int]) -> np.ndarray:
    """Numbers `(B, …)` of rows that may be smaller than the shape; the rest is 0."""
    found = np.zeros((len(rows), *shape), "float32")
    for row, numbers in zip(found, rows, strict=True):
        array = np.array(numbers, "float32")
        if array.size:
            row[tuple(slice(size) for size in array.shape)] = array
    return found


def _unbroken(answers: Sequence[Any]) -> Sequence[Any]:
    """The answers. Raises StatusError where an image could not be read."""
    for number, answer in enumerate(answers):
        if isinstance(answer, InvalidRequestError):
            reason = str(answer).removeprefix(f"image {number + 1} ")
            raise StatusError(Code.INVALID_ARGUMENT, f"image_bytes[{number}] {reason}")
    return answers
