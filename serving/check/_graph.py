"""Checks what a SavedModel stores: ops that stock TensorFlow Serving lacks, XLA, and weights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from serving.api._export_files import file_in
from serving.api._printing import first_line

_MOST_GRAPH_BYTES = 2**31
_SERVER = "TensorFlow Serving 2.20"
_LISTS = Path(__file__).parent
_TEXT_LIST = "serving>=2.20.0 (ops_lib of text 2.20.0)"
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_KERNEL_BYTES = 4096  # smaller constants are not weights: they may be masks with -inf
_XLA_ATTRIBUTES = ("_XlaMustCompile", "_XlaCompile")
_XLA_OPS = {"XlaLaunch", "XlaLaunchV2", "XlaCallModule"}


def read_meta_graph(version_dir: Path) -> meta_graph_pb2.MetaGraphDef | str:
    """Return the meta graph with the tag `serve`, or the finding that there is none."""
    if not version_dir.joinpath("saved_model.pb").exists():
        return f"{version_dir} is not a version: it has no saved_model.pb"
    try:
        data = file_in(version_dir, "saved_model.pb", _MOST_GRAPH_BYTES).read_bytes()
    except ValueError as error:
        return str(error)
    try:
        graphs = saved_model_pb2.SavedModel.FromString(data).meta_graphs
    except DecodeError as error:
        return f"saved_model.pb cannot be read: {first_line(error)}"
    meta_graph = next((graph for graph in graphs if "serve" in graph.meta_info_def.tags), None)
    if meta_graph is None:
        return "no meta graph has the tag serve"
    if not any(not name.startswith("__") for name in meta_graph.signature_def):
        return "it has no signature"
    return meta_graph


def nodes_of(graph: graph_pb2.GraphDef) -> Iterator[node_def_pb2.NodeDef]:
    """Yield the nodes of a graph and of its functions."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def check_graph(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """Return the findings about the graph, which is not run."""
    sparse = [
        f"signature {name}, output {alias}: not a dense tensor; it cannot be fetched over Predict"
        for name, signature in sorted(meta_graph.signature_def.items())
        for alias, info in sorted(signature.outputs.items())
        if info.WhichOneof("encoding") != "name"
    ]
    return _check_ops(meta_graph) + _check_xla(meta_graph) + sparse


def _check_ops(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """Find ops, and attributes of ops, that TensorFlow Serving 2.20 does not have.

    The lists are the op registry of the TensorFlow release that TensorFlow Serving is built from,
    and the tensorflow_text ops that it links.
    """
    core = json.loads((_LISTS / "stock_ops_core.json").read_text())
    text = json.loads((_LISTS / "stock_ops_text.json").read_text())
    functions = {f.signature.name for f in meta_graph.graph_def.library.function}
    stock = {*core["ops"], *text[_TEXT_LIST], *functions}
    findings = set()
    for node in nodes_of(meta_graph.graph_def):
        if node.op not in stock:
            findings.add(f"op {node.op}: {_SERVER} does not have it")
        for attribute in core["of_2.21"]["attributes"].get(node.op, ()):
            if attribute in node.attr:
                findings.add(f"op {node.op}: {_SERVER} does not know its attribute {attribute}")
    return sorted(findings)


def _check_xla(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """Find functions that require XLA, which TensorFlow Serving does not enable."""
    holders = [(f"function {f.signature.name}", f) for f in meta_graph.graph_def.library.function]
    holders += [(f"node {node.name}", node) for node in nodes_of(meta_graph.graph_def)]
    for name, holder in holders:
        asks = any(holder.attr[key].b for key in _XLA_ATTRIBUTES if key in holder.attr)
        if asks or getattr(holder, "op", "") in _XLA_OPS:
            return [
                f"XLA is compiled in ({name}): export functions with jit_compile=False, and trace "
                "layers of keras_attention within keras_attention.exporting()"
            ]
    return []


def _count_not_finite(array: np.ndarray) -> int:
    """Count the values that are NaN or infinite; 0 for a dtype without such values."""
    dtype = tf.dtypes.as_dtype(array.dtype) if array.dtype != object else tf.string
    if not (dtype.is_floating or dtype.is_complex):
        return 0
    return int(array.size - np.isfinite(array).sum())


def check_weights(version_dir: Path, meta_graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """Find weights (variables, and constants of the graph) that are missing or not finite.

    The loader accepts a SavedModel without its variables, although every request then fails.
    """
    graph, variables = meta_graph.graph_def, version_dir / "variables" / "variables"
    arrays: dict[str, np.ndarray] = {}
    if variables.with_name("variables.index").is_file():
        reader = tf.train.load_checkpoint(str(variables))
        for name in sorted(set(reader.get_variable_to_shape_map()) - {_OBJECT_GRAPH}):
            array = np.asarray(reader.get_tensor(name))
            arrays[name.removesuffix("/.ATTRIBUTES/VARIABLE_VALUE")] = array
    elif any(node.op == "VarHandleOp" for node in graph.node):
        return ["the version is not complete: no variables/variables.index"]
    for node in nodes_of(graph):
        if node.op == "Const" and node.attr["value"].tensor.ByteSize() >= _KERNEL_BYTES:
            arrays[f"constant {node.name}"] = tf.make_ndarray(node.attr["value"].tensor)
    wrong = {name: _count_not_finite(array) for name, array in arrays.items()}
    return [
        f"weights not finite: {name} has {count:,} of {arrays[name].size:,} values"
        for name, count in wrong.items()
        if count
    ]
