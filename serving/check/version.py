"""All checks of a SavedModel version: answers alike in the C++ loader, in Python, in any batch."""

from __future__ import annotations

import training.command.startup  # noqa: F401

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from serving.api.printing import first_line
from serving.check.graph import check_graph, check_weights, nodes_of, read_meta_graph
from serving.check.questions import (
    HARD_TEXTS,
    IMAGES,
    TEXTS,
    images,
    is_batched,
    make_inputs,
    predicting,
    reads_images,
    takes_texts,
)
from serving.savedmodel.session import ModelSession
from serving.savedmodel.status import Code, StatusError
from training.command.progress import ReportStage

_TOLERANCE = 1e-4
# Of a row alone and in a batch, whose products are summed in another order.
_ROW_TOLERANCE = {False: 1e-3, True: 5e-2}  # in half precision
_HALVES = {types_pb2.DT_BFLOAT16, types_pb2.DT_HALF}

Arrays = Mapping[str, np.ndarray]


class _FindingError(Exception):
    """A finding; nothing else of the signature is looked at."""


def check_answers(
    version_dir: Path, session: ModelSession, tell: Callable[[str, float], None]
) -> list[str]:
    """Find signatures that fail, lose the batch, mix rows or differ from Python: a line each."""
    try:
        loaded = tf.saved_model.load(str(version_dir))
    except Exception as error:  # of many classes
        return [f"Python cannot load it: {first_line(error)}"]
    graph = session.meta_graph.graph_def
    signatures = predicting(session)
    # Two names of one function are checked once.
    names = [*{computation(graph, x): name for name, x in signatures.items()}.values()]
    half = any(x.type in _HALVES for node in nodes_of(graph) for x in node.attr.values())

    def check(number: int) -> str | None:
        name = names[number]
        tell(f"asking for {name}", number / len(names))
        try:
            _Signature(session, name, loaded.signatures[name], _ROW_TOLERANCE[half]).check()
        except _FindingError as finding:
            return f"signature {name}{finding}"
        return None

    with _as_written(), ThreadPoolExecutor(os.cpu_count()) as pool:
        return [finding for finding in pool.map(check, range(len(names))) if finding]


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
    ) -> None:
        self._session, self._name, self._python = session, name, python
        self._signature, self._tolerance = session.signatures[name], tolerance

    def check(self) -> None:
        """Raise a _FindingError where something is wrong."""
        rows: Sequence[bytes] = TEXTS
        if reads_images(self._signature):
            rows = images()
            self._check_broken_image(rows[0])
        names = ["a batch of 1", *(f"row {number} alone" for number in range(1, len(rows)))]
        self._check_rows(dict(zip(names, rows, strict=True)), (3, len(rows)))
        if is_batched(self._signature):
            self._check_no_rows()
            if takes_texts(self._signature):
                self._check_rows(HARD_TEXTS, (len(HARD_TEXTS),), "odd texts: ")

    def _check_rows(self, rows: Mapping[str, bytes], sizes: Sequence[int], kind: str = "") -> None:
        """Run rows one by one, and in batches, in which they must answer the same."""
        alone = []
        for number, (what, row) in enumerate(rows.items()):
            inputs = make_inputs(self._signature, [row], number)
            # Python is slow to start; one row is compared with it, and all batches.
            alone.append(self._run(inputs, what) if number else self._compare(inputs, what))
            if not is_batched(self._signature):
                return
        for size in sizes:
            what, inputs = (
                f"{kind}a batch of {size}",
                make_inputs(self._signature, [*rows.values()][:size]),
            )
            self._check_batch(what, alone, self._compare(inputs, what))

    def _check_no_rows(self) -> None:
        """Compare the answer to a batch of 0, which no client sends: a model may refuse it."""
        inputs = make_inputs(self._signature, [])
        try:
            self._session.run(self._name, inputs)
        except StatusError as error:
            if error.code is Code.INVALID_ARGUMENT:
                return
        self._compare(inputs, "a batch of 0")

    def _check_broken_image(self, good: bytes) -> None:
        """Expect the caller's error for a broken image, which names it."""
        try:
            self._session.run(self._name, {IMAGES: [good, b"a text called .png"]})
        except StatusError as error:
            if error.code is Code.INVALID_ARGUMENT and f"{IMAGES}[1]" in str(error):
                return
            answer = f"{error.code.name}: {first_line(error)}"
            raise _FindingError(
                f" answers a broken image with {answer}; expected INVALID_ARGUMENT, and its number"
            ) from None
        raise _FindingError(" takes a broken image")

    def _run(self, inputs: Arrays, what: str) -> Arrays:
        """Run the inputs in the C++ session."""
        try:
            outputs = self._session.run(self._name, inputs)
        except StatusError as error:
            message = f"{error.code.name}: {first_line(error)}"
            raise _FindingError(f" fails on {what}: {message}") from None
        batched = [array.shape[0] for array in inputs.values() if array.ndim]
        for alias, array in sorted(outputs.items()):
            if batched and (array.ndim == 0 or array.shape[0] != batched[0]):
                raise _FindingError(
                    f", output {alias}: shape {array.shape} on {what}; the first dimension must be "
                    "the batch"
                )
            if np.any(array != array):  # nothing else is not itself
                raise _FindingError(f", output {alias}: NaN on {what}")
        return outputs

    def _compare(self, inputs: Arrays, what: str) -> Arrays:
        """Run the inputs in the C++ session and in Python."""
        outputs = self._run(inputs, what)
        tensors = {alias: tf.constant(array) for alias, array in inputs.items()}
        try:
            expected = {alias: tensor.numpy() for alias, tensor in self._python(**tensors).items()}
        except tf.errors.OpError as error:
            raise _FindingError(f" fails in Python on {what}: {first_line(error)}") from None
        if alias := different(outputs, expected):
            raise _FindingError(f", output {alias}: not what Python answers on {what}")
        return outputs

    def _check_batch(self, what: str, alone: Sequence[Arrays], batch: Arrays) -> None:
        """Compare each row of a batch with what it answers alone."""
        wrong: dict[int, str] = {}
        for alias, array in sorted(batch.items()):
            rows = [outputs[alias][0, ...] for outputs in alone[: len(array)]]
            differing = [n for n, row in enumerate(rows) if not self._same(array[n, ...], row)]
            wrong = {**dict.fromkeys(differing, alias), **wrong}
            moved = [n for n in differing if any(self._same(array[n, ...], row) for row in rows)]
            if len(moved) > 1:
                raise _FindingError(
                    f", output {alias}: rows are in another order on {what}: row {moved[0]} is not "
                    "the answer to its input"
                )
        # Rounding may reorder two hypotheses whose scores are nearly the same.
        dtypes = {array.dtype == object for array in batch.values()}
        if len(wrong) > (max(1, len(alone) // 6) if len(dtypes) == 2 else 0):
            number, alias = min(wrong.items())
            raise _FindingError(
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
            if _count_filled(array) != _count_filled(array[common]):
                return False
        row, other = row[common], other[common]
        if np.issubdtype(row.dtype, np.inexact):
            return np.allclose(row, other, rtol=self._tolerance, atol=self._tolerance)
        return bool(np.all(row == other))


def _count_filled(array: np.ndarray) -> int:
    """Count the elements that are not padding."""
    return int(np.count_nonzero(array != (b"" if array.dtype == object else 0)))


def computation(
    graph: graph_pb2.GraphDef, signature: meta_graph_pb2.SignatureDef
) -> frozenset[tuple[str, ...]]:
    """Return, for each output, the functions that the signature's function calls, or the tensor."""
    nodes = {node.name: node for node in graph.node}
    functions = {function.signature.name: function for function in graph.library.function}
    makers = set()
    for alias, info in signature.outputs.items():
        node = nodes[info.name.partition(":")[0]]
        body = functions.get(node.attr["f"].func.name) if "f" in node.attr else None
        inner = [n.attr["f"].func.name for n in body.node_def if "f" in n.attr] if body else []
        makers.add((alias, *(inner or [info.name])))
    return frozenset(makers)


def different(outputs: Arrays, expected: Arrays) -> str | None:
    """Return the first output that differs, or None.

    Where a row's numbers agree its texts may differ: two hypotheses whose scores differ in the
    last bit only may be found in either order.
    """
    aliases = sorted(outputs)
    if shapes := [x for x in aliases if outputs[x].shape != expected[x].shape]:
        return shapes[0]
    inexact = [x for x in aliases if np.issubdtype(outputs[x].dtype, np.inexact)]
    close: dict[str, Any] = {"rtol": _TOLERANCE, "atol": _TOLERANCE, "equal_nan": True}
    for alias in inexact:
        if not np.allclose(outputs[alias], expected[alias], **close):
            return alias
    if inexact:
        return None
    return next((x for x in aliases if (outputs[x] != expected[x]).any()), None)


def check_version(
    version_dir: Path, tell: ReportStage = lambda stage, share=None: None
) -> list[str]:
    """Return all findings about the directory of a version, none where it can be served."""
    tell("reading the graph", 0.04)  # of the time, with 7 million weights on two cores
    version_dir = Path(os.path.abspath(version_dir))
    meta_graph = read_meta_graph(version_dir)
    if isinstance(meta_graph, str):
        return [meta_graph]
    findings = check_graph(meta_graph)
    if not version_dir.name.isdecimal():
        findings.append(f"a server would not find it: {version_dir.name} is not a number")
    if findings:
        # Running it would only repeat these in TensorFlow's words.
        return findings
    tell("loading it as TensorFlow Serving does", 0.05)
    try:
        session = ModelSession(version_dir)
    except StatusError as error:
        return [f"the C++ loader refuses it: {error.code.name}: {first_line(error)}"]
    with session:
        tell("reading the weights", 0.1)
        if findings := check_weights(version_dir, meta_graph):
            return findings  # NaN answers would follow from NaN weights
        return check_answers(version_dir, session, lambda x, done: tell(x, 0.18 + 0.82 * done))
