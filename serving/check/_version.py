"""All checks of a SavedModel version: that it loads, and answers in C++ as in Python."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from tensorflow.core.framework import graph_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from serving.api._export_files import check_saved_model
from serving.api._printing import first_line
from serving.api._versions import version_number
from serving.check._answers import ROW_TOLERANCE, Arrays, check_answers
from serving.check._graph import check_graph, check_weights, nodes_of, read_meta_graph
from serving.check._questions import predicting
from serving.loaded._status import StatusError
from serving.loaded.saved_model import ModelSession
from training.command.progress import ReportStage

_HALVES = {types_pb2.DT_BFLOAT16, types_pb2.DT_HALF}
_HALF_TOLERANCE = 5e-2  # between a row alone and in a batch


def check_version(
    version_dir: Path, tell: ReportStage = lambda stage, share=None: None
) -> list[str]:
    """Return all findings about the directory of a version, none if it can be served."""
    tell("reading the graph", 0.04)  # of the time, with 7 million weights on two cores
    version_dir = Path(os.path.abspath(version_dir))
    try:
        check_saved_model(version_dir)
    except ValueError as error:
        return [str(error)]
    meta_graph = read_meta_graph(version_dir)
    if isinstance(meta_graph, str):
        return [meta_graph]
    findings = check_graph(meta_graph)
    if version_number(version_dir.name) is None:
        findings.append(
            "Servers only find directories with a number as name. Rename "
            f"{version_dir.name}, for example to 1"
        )
    if findings:
        # A run would only report the same faults again.
        return findings
    tell("loading it as TensorFlow Serving does", 0.05)
    try:
        session = ModelSession(version_dir)
    except StatusError as error:
        return [f"TensorFlow's C++ loader rejects it: {error.code.name}: {first_line(error)}"]
    with session:
        tell("reading the weights", 0.1)
        if findings := check_weights(version_dir, meta_graph):
            return findings  # NaN answers would follow from NaN weights
        return _check_session(version_dir, session, tell)


def _check_session(version_dir: Path, session: ModelSession, tell: ReportStage) -> list[str]:
    """Return the findings about the session's answers, which Python must give, too."""
    try:
        loaded = tf.saved_model.load(str(version_dir))
    except Exception as error:  # of many classes
        return [f"Python cannot load it: {first_line(error)}"]
    graph = session.meta_graph.graph_def
    # A function with two names is checked once.
    names = {computation(graph, x): name for name, x in predicting(session.signatures).items()}
    half = any(x.type in _HALVES for node in nodes_of(graph) for x in node.attr.values())

    def run_in_python(name: str, inputs: Arrays) -> Arrays:
        tensors = {alias: tf.constant(array) for alias, array in inputs.items()}
        outputs = loaded.signatures[name](**tensors)
        return {alias: tensor.numpy() for alias, tensor in outputs.items()}

    with _as_written():
        return check_answers(
            session,
            [*names.values()],
            lambda stage, done: tell(stage, 0.18 + 0.82 * done),
            run_in_python,
            _HALF_TOLERANCE if half else ROW_TOLERANCE,
        )


@contextlib.contextmanager
def _as_written() -> Iterator[None]:
    """Within this, Python runs graphs as they were written, without TensorFlow's optimizer.

    The C++ session optimizes graphs, which must not change an answer. In Python, optimizing would
    take seconds for each signature.
    """
    optimizer, name = tf.config.optimizer, "disable_meta_optimizer"
    before = optimizer.get_experimental_options().get(name, False)
    optimizer.set_experimental_options({name: True})
    try:
        yield
    finally:
        optimizer.set_experimental_options({name: before})


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
