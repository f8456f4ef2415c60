"""Checks that a SavedModel answers alike in the C++ loader, in Python and in any batch."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from serving.check.graph import nodes_of
from serving.check.process import first_line
from serving.check.questions import (
    IMAGES,
    PREDICT,
    images,
    is_batched,
    make_inputs,
    reads_images,
)
from serving.check.texts import HARD_TEXTS, TEXTS
from serving.savedmodel.session import ModelSession
from serving.savedmodel.status import Code, StatusError

_TOLERANCE = 1e-4
# Of a row alone and in a batch, whose products are summed in another order.
_ROW_TOLERANCE = {False: 1e-3, True: 5e-2}  # in half precision
_HALVES = {types_pb2.DT_BFLOAT16, types_pb2.DT_HALF}
_MOST_ROW_BYTES = 64 * 2**20
_MOST_RUNS = len(TEXTS) + len(HARD_TEXTS) + 4  # of a signature: all rows, and four batches
_FIRST_RUN = 0.5  # its share of a signature's time, in which Python prepares the function

Arrays = Mapping[str, np.ndarray]


class _Wrong(Exception):
    """A finding; nothing else of the signature is looked at."""


def check_answers(
    version_dir: Path,
    session: ModelSession,
    tell: Callable[[str, float], None] = lambda stage, done: None,
) -> list[str]:
    """Signatures that fail, lose the batch or mix its rows, or differ from Python: a line each.

    Signatures of Classify and Regress take examples that only their author knows how to make:
    the warm-up records exercise them.
    """
    try:
        loaded = tf.saved_model.load(str(version_dir))
    except Exception as error:
        return [f"Python cannot load it: {first_line(error)}"]
    graph = session.meta_graph.graph_def
    # Two names of one function are checked once.
    names = {
        computation(graph, signature): name
        for name, signature in sorted(session.signatures.items())
        if not name.startswith("__") and signature.method_name == PREDICT
    }.values()
    tolerance = _ROW_TOLERANCE[_computes_in_half(graph)]

    running: dict[str, str] = {}
    done = dict.fromkeys(names, 0.0)
    lock = threading.Lock()

    def check(name: str) -> str | None:
        def say(what: str, part: float) -> None:
            with lock:
                done[name] = part
                running[name] = f"signature {name} on {what}"
                tell(", ".join(running.values()), sum(done.values()) / len(done))

        try:
            _Signature(session, name, loaded.signatures[name], tolerance, say).check()
        except _Wrong as wrong:
            return f"signature {name}{wrong}"
        finally:
            with lock:
                done[name] = 1.0
                running.pop(name, None)
                tell(", ".join(running.values()) or "signatures", sum(done.values()) / len(done))
        return None

    with _as_written(), ThreadPoolExecutor(os.cpu_count()) as pool:
        return [finding for finding in pool.map(check, names) if finding]


@contextlib.contextmanager
def _as_written() -> Iterator[None]:
    """Within this, Python runs graphs as they were written.

    The C++ session rewrites them for speed, which must not change an answer. To rewrite them for
    Python, too, would take seconds for each signature.
    """
    optimizer, name = tf.config.optimizer, "disable_meta_optimizer"
    before = optimizer.get_experimental_options().get(name, False)
    optimizer.set_experimental_options({name: True})
    try:
        yield
    finally:
        optimizer.set_experimental_options({name: before})


class _Signature:
    """One signature, in the C++ session and in Python."""

    def __init__(
        self,
        session: ModelSession,
        name: str,
        python: tf.types.experimental.ConcreteFunction,
        tolerance: float,
        tell: Callable[[str, float], None],
    ) -> None:
        self._session, self._signature, self._python = session, session.signatures[name], python
        self._tolerance, self._tell = tolerance, tell
        infos = self._signature.inputs.values()
        self._takes_texts = bool(infos) and all(
            info.dtype == tf.string.as_datatype_enum for info in infos
        )
        self._takes_images = reads_images(self._signature)
        self._batched = is_batched(self._signature)
        self._runs = 0

    def check(self) -> None:
        """Raise _Wrong with what is found."""
        if self._takes_images:
            files = np.array([images()[0], b"a text called .png"], object)
            self._check_refused({IMAGES: files}, f"{IMAGES}[1]", "a broken image")
        rows = images() if self._takes_images else TEXTS
        self._check_rows("", rows, (3, len(rows)))
        if self._batched:
            self._compare(self._inputs([]), "a batch of 0")
        if self._takes_texts and not self._takes_images:
            self._check_rows("empty, long and invalid texts: ", HARD_TEXTS, (len(HARD_TEXTS),))

    def _check_rows(self, kind: str, texts: Sequence[bytes], sizes: Sequence[int]) -> None:
        """Run rows one by one, and in batches, in which they must answer the same."""
        alone = []
        for number, text in enumerate(texts):
            what = f"{kind}row {number} alone" if number or kind else "a batch of 1"
            inputs = self._inputs([text], number)
            # Python is slow to start; one row is compared with it, and all batches.
            alone.append(self._run(inputs, what) if number else self._compare(inputs, what))
            if not self._batched:
                return
        for size in sizes:
            what = f"{kind}a batch of {size}"
            self._check_batch(what, alone, self._compare(self._inputs(texts[:size]), what))

    def _check_refused(self, inputs: Arrays, where: str, what: str) -> None:
        """Hold the answer to a wrong input: the caller's error, and which it is."""
        protos = {alias: tf.make_tensor_proto(array) for alias, array in inputs.items()}
        try:
            self._session.run(self._signature, protos)
        except StatusError as error:
            if error.code is Code.INVALID_ARGUMENT and where in str(error):
                return
            raise _Wrong(
                f" answers {what} with {error.code.name}: {first_line(error)}; expected "
                "INVALID_ARGUMENT, and which it is"
            ) from None
        raise _Wrong(f" takes {what}")

    def _part(self) -> float:
        """About which part of the time of all runs is over."""
        if not self._runs:
            return 0.0
        return _FIRST_RUN + (1 - _FIRST_RUN) * self._runs / _MOST_RUNS

    def _inputs(self, texts: Sequence[bytes], first: int = 0) -> dict[str, np.ndarray]:
        return make_inputs(self._signature, texts, first)

    def _run(self, inputs: Arrays, what: str) -> Arrays:
        """Run the inputs in the C++ session."""
        self._tell(what, self._part())
        self._runs += 1
        protos = {alias: tf.make_tensor_proto(array) for alias, array in inputs.items()}
        try:
            found = self._session.run(self._signature, protos)
        except StatusError as error:
            raise _Wrong(f" fails on {what}: {error.code.name}: {first_line(error)}") from None
        batched = [array.shape[0] for array in inputs.values() if array.ndim]
        for alias, array in sorted(found.items()):
            if batched and (array.ndim == 0 or array.shape[0] != batched[0]):
                raise _Wrong(
                    f", output {alias}: shape {array.shape} on {what}; the first dimension must be "
                    "the batch"
                )
            if np.any(array != array):  # nothing else is not itself
                raise _Wrong(f", output {alias}: NaN on {what}")
            if _bytes(array) > _MOST_ROW_BYTES * max(1, len(array) if array.ndim else 1):
                raise _Wrong(
                    f", output {alias}: {_bytes(array):,} bytes on {what}; more than "
                    f"{_MOST_ROW_BYTES:,} a row"
                )
        return found

    def _compare(self, inputs: Arrays, what: str) -> Arrays:
        """Run the inputs in the C++ session and in Python."""
        found = self._run(inputs, what)
        tensors = {alias: tf.constant(array) for alias, array in inputs.items()}
        try:
            expected = {alias: tensor.numpy() for alias, tensor in self._python(**tensors).items()}
        except tf.errors.OpError as error:
            raise _Wrong(f" fails in Python on {what}: {first_line(error)}") from None
        if alias := different(found, expected):
            raise _Wrong(f", output {alias}: not what Python answers on {what}")
        return found

    def _check_batch(self, what: str, alone: Sequence[Arrays], batch: Arrays) -> None:
        """Hold each row of a batch against what it answers alone."""
        wrong: dict[int, str] = {}
        for alias, array in sorted(batch.items()):
            rows = [found[alias][0, ...] for found in alone[: len(array)]]
            differing = [n for n, row in enumerate(rows) if not self._same(array[n, ...], row)]
            wrong = {**dict.fromkeys(differing, alias), **wrong}
            moved = [n for n in differing if any(self._same(array[n, ...], row) for row in rows)]
            if len(moved) > 1:
                raise _Wrong(
                    f", output {alias}: rows are in another order on {what}: row {moved[0]} is not "
                    "the answer to its input"
                )
        # Of two hypotheses of about the same score either may be the better one.
        dtypes = {array.dtype == object for array in batch.values()}
        if len(wrong) > (max(1, len(alone) // 6) if len(dtypes) == 2 else 0):
            number, alias = min(wrong.items())
            raise _Wrong(
                f", output {alias}: row {number} of {what} is not what it answers alone: it "
                "depends on its batch"
            )

    def _same(self, row: np.ndarray, other: np.ndarray) -> bool:
        """Whether two rows are the same but for padding, which is as long as a batch needs."""
        if row.ndim != other.ndim:
            return False
        sizes = zip(row.shape, other.shape, strict=True)
        common: tuple[Any, ...] = (*(slice(min(both)) for both in sizes), ...)
        for array in (row, other):
            if _filled(array) != _filled(array[common]):
                return False
        row, other = row[common], other[common]
        if np.issubdtype(row.dtype, np.inexact):
            return np.allclose(row, other, rtol=self._tolerance, atol=self._tolerance)
        return bool(np.all(row == other))


def _filled(array: np.ndarray) -> int:
    """How many elements are something else than padding."""
    return int(np.count_nonzero(array != (b"" if array.dtype == object else 0)))


def _bytes(array: np.ndarray) -> int:
    return sum(map(len, array.flat)) if array.dtype == object else array.nbytes


def _computes_in_half(graph: graph_pb2.GraphDef) -> bool:
    return any(x.type in _HALVES for node in nodes_of(graph) for x in node.attr.values())


def computation(
    graph: graph_pb2.GraphDef, signature: meta_graph_pb2.SignatureDef
) -> frozenset[tuple[str, ...]]:
    """The maker of each output: the functions behind the signature's own, or the tensor."""
    nodes = {node.name: node for node in graph.node}
    functions = {function.signature.name: function for function in graph.library.function}
    found = set()
    for alias, info in signature.outputs.items():
        node = nodes[info.name.partition(":")[0]]
        body = functions.get(node.attr["f"].func.name) if "f" in node.attr else None
        inner = [n.attr["f"].func.name for n in body.node_def if "f" in n.attr] if body else []
        found.add((alias, *(inner or [info.name])))
    return frozenset(found)


def different(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> str | None:
    """The first output that differs, or None.

    Where a row's numbers agree its texts may differ: two hypotheses whose scores differ in the
    last bit only may be found in either order.
    """
    if not all(found[alias].shape == expected[alias].shape for alias in found):
        return next(a for a in sorted(found) if found[a].shape != expected[a].shape)
    inexact = [alias for alias in sorted(found) if np.issubdtype(found[alias].dtype, np.inexact)]
    for alias in inexact:
        if not np.allclose(
            found[alias], expected[alias], rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True
        ):
            return alias
    if inexact:
        return None
    return next((a for a in sorted(found) if (found[a] != expected[a]).any()), None)
