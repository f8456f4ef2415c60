"""The folder of an export, and the base classes of the models that run its graphs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np
import onnxruntime

from serving.api._arguments import check_count, shown
from serving.api._image_files import INPUT
from serving.api._printing import first_line
from serving.api._results import Hypothesis, Metadata
from serving.api._versions import newest_version
from serving.portable.read._manifest import MANIFEST, RANKS, WEIGHTS, read_manifest
from serving.portable.read._tokenizers import Tokenizer, Vocabulary, load_tokenizer, without_special
from training.data.rules import END_ID, PAD_ID, START_ID, UNK_ID

_WORDS = {"words": "string(?, ?)", "word_probabilities": "float(?, ?)"}
_READ = {
    **{"text": "string(?)", "score": "float(?)"},
    **{"tokens": "string(?, ?)", "token_probabilities": "float(?, ?)"},
}
_TOLD = {"truncated": "bool(?)", "unknown": "string(?)"}
_WEIGHTS = "attention_weights"
_OUTPUTS: dict[str, dict[str, dict[str, str]]] = {  # by task and signature
    "translate": {
        "translate": {"translation": "string(?)", "score": "float(?)", **_TOLD, **_WORDS},
        "nbest": {"translations": "string(?, N)", "scores": "float(?, N)", **_TOLD},
        "align": {
            "translation": "string(?)",
            **{f"{side}_tokens": "string(?, ?)" for side in ("source", "target")},
            _WEIGHTS: "float(?, ?, ?)",
            **_WORDS,
            **_TOLD,
        },
        "score": {
            **{"score": "float(?)", "tokens": "string(?, ?)", "log_probs": "float(?, ?)"},
            **_TOLD,
        },
    },
    "read": {
        "read": _READ,
        "nbest": {"texts": "string(?, N)", "scores": "float(?, N)"},
        "regions": {**_READ, _WEIGHTS: "float(?, ?, H, W)"},
    },
    "predict": {
        "predict": {"probability": "float(?)", "truncated": "bool(?)", _WEIGHTS: "float(?, ?)"}
    },
}

Signatures = dict[str, dict[str, dict[str, str]]]
# Options of this thread's runs; setting `terminate` from another thread stops the run.
RUN_OPTIONS: ContextVar[onnxruntime.RunOptions | None] = ContextVar("RUN_OPTIONS", default=None)
T = TypeVar("T")


def check_running() -> None:
    """Raise ValueError if another thread has stopped this thread's runs."""
    options = RUN_OPTIONS.get()
    if options is not None and options.terminate:
        raise ValueError("the run was stopped")


class Folder:
    """A version directory of an ONNX export, or the newest such version in a model's directory.

    `threads` share an operation. Raises ValueError if there is no such export.
    """

    def __init__(self, path: str | Path, threads: int = 1) -> None:
        self.path = _version(Path(path))
        self.manifest = read_manifest(self.path)
        self._threads = threads
        self._sessions: dict[str, onnxruntime.InferenceSession] = {}
        self._loading = Lock()

    def run(self, graph: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run a graph on a batch of at least one row; return its outputs by name.

        The first use loads the graph. Raises ValueError if loading or running the graph fails.
        """
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
        path, options = self.path / f"{graph}.onnx", onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        # Threads that spin while they wait take the processor from threads that work.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        try:
            if (file := self.path / WEIGHTS).exists():  # read, not mapped: it may be overwritten
                weights = file.read_bytes()
                options.add_external_initializers_from_files_in_memory(
                    [WEIGHTS], [weights], [len(weights)]
                )
            session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's have no class of their own
            raise ValueError(f"{path} cannot be loaded: {first_line(error)}") from None
        expected = {*self.manifest["graphs"][graph]["outputs"], *RANKS.get(graph, ())}
        if missing := expected - {output.name for output in session.get_outputs()}:
            raise ValueError(f"{path} has no output {min(missing)}")
        return session


def _version(path: Path) -> Path:
    if version := newest_version(path, MANIFEST):
        return version
    if newest_version(path, "saved_model.pb"):
        raise ValueError(
            f"{path} is a SavedModel. To use it without a server, export with --format onnx"
        )
    raise ValueError(f"{path} has no {MANIFEST}. Give an ONNX export: models/NAME or models/NAME/1")


class LocalModel:
    """Base class of the models in this process.

    Args:
        path: a version that was exported with `--format onnx`; a model's directory, whose newest
            ONNX version is used; or a `Folder`.
        batch_size: the most rows in a batch.
        threads: the number of batches that run at a time, and of threads that share an operation.

    Raises ValueError if there is no such export, if its task is not `task`, or for an invalid
    setting.
    """

    task: ClassVar[str]

    def __init__(self, path: str | Path | Folder, batch_size: int, threads: int) -> None:
        check_count("batch_size", batch_size, 1)
        check_count("threads", threads, 1)
        self._batch_size, self._threads = batch_size, threads
        self._folder = path if isinstance(path, Folder) else Folder(path, threads)
        if (task := self.manifest["task"]) != self.task:
            raise ValueError(
                f"{self._folder.path} is a model to {task}, and {type(self).__name__} needs one to "
                f"{self.task}"
            )

    @property
    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the export: settings, sizes, the run that it was made of."""
        return self._folder.manifest

    def signatures(self) -> Signatures:
        """Return inputs and outputs by the name of a signature, as `Metadata` has them."""
        raise NotImplementedError

    def _declared(self, names: Iterable[str], **sizes: int) -> Signatures:
        """Return the named signatures of the task; `sizes` are N (results), H and W (regions)."""
        signatures = {}
        for name in names:
            outputs = dict(_OUTPUTS[self.task][name])
            for size, value in sizes.items():
                outputs = {alias: text.replace(size, str(value)) for alias, text in outputs.items()}
            inputs = [INPUT] if self.task == "read" else ["text"]
            inputs += ["translation"] if name == "score" else []
            signatures[name] = {"inputs": dict.fromkeys(inputs, "string(?)"), "outputs": outputs}
        return signatures

    def metadata(self) -> Metadata:
        """Return version and signatures of the model."""
        path = self._folder.path.resolve()
        version = int(path.name) if path.name.isdecimal() else 0
        return Metadata(path.parent.name, version, self.signatures())

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Return at once: a model in this process is there, and loads its graph at first use."""

    def _each(self, rows: Sequence[int], work: Callable[[Sequence[int]], T]) -> list[T]:
        """Return `work(batch)` for each batch of rows, in the rows' order.

        Up to `threads` batches run at a time. Batches shrink so that each thread has a batch.
        """
        size = min(self._batch_size, -(-len(rows) // self._threads)) or 1
        batches = [rows[start : start + size] for start in range(0, len(rows), size)]
        if len(batches) < 2 or self._threads == 1:
            return list(map(work, batches))
        contexts = [copy_context() for _ in batches]  # with the caller's RUN_OPTIONS
        with ThreadPoolExecutor(self._threads) as pool:
            return list(pool.map(lambda own, batch: own.run(work, batch), contexts, batches))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Do nothing."""


class Result(NamedTuple):
    """A source's N results: ids and log-probabilities `(N, T)`, scores `(N,)`, weights `(N, T, S)`.

    `copied` has the tokens of ids beyond the vocabulary: id `size + i` means `copied[i]`.
    """

    ids: np.ndarray
    log_probs: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    copied: list[str] | None = None


class LocalSearch(LocalModel):
    """Base class of the models that search for texts by the graph `main`.

    Args:
        path: see `LocalModel`, also for `batch_size` and `threads`.
        beam_width: the hypotheses of each source. None takes the export's setting, as for
            `num_results` and `length_penalty`.
        num_results: the most hypotheses that `nbest` returns.
        length_penalty: scores are divided by `((5 + length) / 6) ** length_penalty`.

    Raises ValueError or TypeError for a setting that is not possible.
    """

    main: ClassVar[str]

    def __init__(
        self,
        path: str | Path | Folder,
        *,
        beam_width: int | None = None,
        num_results: int | None = None,
        length_penalty: float | None = None,
        batch_size: int = 32,
        threads: int = 1,
    ) -> None:
        super().__init__(path, batch_size, threads)
        defaults, size = self.manifest["settings"], self.manifest["tokenizers"]["target"]["size"]
        for name, count in (("beam_width", beam_width), ("num_results", num_results)):
            if count is not None:
                check_count(name, count, -math.inf)
        self._width = defaults["beam_width"] if beam_width is None else beam_width
        usual = min(defaults.get("num_results", 1), self._width)
        self._results = usual if num_results is None else num_results
        self._penalty = defaults["length_penalty"] if length_penalty is None else length_penalty
        if isinstance(self._penalty, bool) or not isinstance(self._penalty, int | float):
            received = shown(self._penalty)
            raise TypeError(f"expected a number as length_penalty. Received: {received}")
        if not 1 <= self._results <= self._width <= size:
            raise ValueError(
                "expected 1 <= num_results <= beam_width <= tokens of the vocabulary. Received: "
                f"{self._results}, {self._width}, {size}"
            )
        if not 0 <= self._penalty < math.inf:
            raise ValueError(f"expected a finite length_penalty >= 0. Received: {self._penalty}")
        self._copies = self.manifest.get("copies", False)
        self._replaces = defaults.get("replaces_unknown", False)
        self._load()

    def _load(self) -> None:
        self._target = load_tokenizer(self._folder.path, self.manifest["tokenizers"]["target"])

    def _run(
        self, source: dict[str, np.ndarray], results: int, weights: bool, width: int | None = None
    ) -> Iterator[Result]:
        """Return a `Result` for each row of `source`, the graph's own input by name.

        Each has `results` results, with attention weights if `weights`. `width` is the beam's; None
        takes the width of the settings. Raises ValueError for an id outside the vocabulary: the
        files do not fit together.
        """
        settings = {
            "beam_width": np.array([width or self._width]),
            "num_results": np.array([results]),
            "length_penalty": np.array(self._penalty, "float32"),
            "with_weights": np.array([weights]),
        }
        out = self._folder.run(self.main, {**source, **settings})
        ids, size = out["found"], self._target.size
        if not self._copies and ids.size and not 0 <= ids.min() <= ids.max() < size:
            raise ValueError(f"a graph expected {size} tokens. Received: token {ids.max()}")
        if self._replaces:
            ids = replaced(ids, out["weights"], size)
        return map(Result, ids, *(out[name] for name in ("log_probs", "scores", "weights")))

    def _norm(self, length: int) -> float:
        """Return what the sum of a result's log-probabilities is divided by."""
        return length_norm(length, self._penalty)


def length_norm(length: int, penalty: float) -> float:
    """Return `((5 + length) / 6) ** penalty`, as `keras_attention.search.length_norm`."""
    return float(((5 + length) / 6) ** penalty)


def text_of(tokenizer: Tokenizer, ids: np.ndarray, copied: Sequence[str] | None = None) -> str:
    """Return the text of ids `(T,)` up to the end."""
    numbers = without_special(ids.tolist())
    if copied is None:
        return tokenizer.decode(numbers)
    assert isinstance(tokenizer, Vocabulary)  # subwords spell what they do not know
    return tokenizer.join([token_of(tokenizer, number, copied) for number in numbers])


def hypotheses(tokenizer: Tokenizer, result: Result) -> list[Hypothesis]:
    """Return the texts of a result, see `text_of`, with their scores."""
    return [
        Hypothesis(text_of(tokenizer, each, result.copied), float(score))
        for each, score in zip(result.ids, result.scores, strict=True)
    ]


def tokens_of(
    tokenizer: Tokenizer, ids: np.ndarray, copied: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the tokens of ids `(T,)` at their `shown_places`."""
    return tuple(token_of(tokenizer, ids[place], copied) for place in shown_places(ids))


def shown_places(ids: np.ndarray) -> list[int]:
    """Return the indices of ids `(T,)` whose tokens are shown: before END, not PAD or START."""
    before = itertools.takewhile(lambda place: ids[place] != END_ID, range(len(ids)))
    return [place for place in before if ids[place] not in (PAD_ID, START_ID)]


def token_of(tokenizer: Tokenizer, number: int, copied: Sequence[str] | None) -> str:
    """Return the token of an id; an id beyond the vocabulary refers to `copied`."""
    if copied is None or number < tokenizer.size:
        return tokenizer.token(number)
    place = number - tokenizer.size
    return copied[place] if place < len(copied) else ""  # in an empty text there is none


def padded(ids: Sequence[Sequence[int]]) -> np.ndarray:
    """Return ids as int64 `(B, S)`, S at least 1."""
    array = np.full((len(ids), max(1, *map(len, ids), 1)), PAD_ID, "int64")
    for row, each in zip(array, ids, strict=True):
        row[: len(each)] = each
    return array


def replaced(ids: np.ndarray, weights: np.ndarray, size: int) -> np.ndarray:
    """Return ids with each UNK replaced by the source token with the largest attention weight.

    Source token s has the id `size + s`. `ids` is `(…, T)`, `weights` `(…, T, S)`: see
    `training.decode.texts.replace_unknown`.
    """
    looked = weights.max(-1, initial=0) > 0
    return np.where((ids == UNK_ID) & looked, size + weights.argmax(-1), ids)
