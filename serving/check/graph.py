"""Checks of a SavedModel's graph: ops that stock Serving lacks, XLA, outputs it cannot send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorflow.core.framework import graph_pb2, node_def_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from serving.client.printing import first_line

OLDEST = "2.20"  # release of TensorFlow Serving that an export may be for
_LISTS = Path(__file__).parent
_TEXT_LIST = "serving>=2.20.0 (ops_lib of text 2.20.0)"
_XLA_ATTRIBUTES = ("_XlaMustCompile", "_XlaCompile")
_XLA_OPS = {"XlaLaunch", "XlaLaunchV2", "XlaCallModule"}
_NOT_DENSE = {types_pb2.DT_VARIANT, types_pb2.DT_RESOURCE}


def read_meta_graph(version_dir: Path) -> meta_graph_pb2.MetaGraphDef | str:
    """Return the meta graph that is served, or why there is none."""
    try:
        data = (version_dir / "saved_model.pb").read_bytes()
    except OSError:
        versions = [path for path in version_dir.glob("*") if path.name.isdecimal()]
        last = max(versions, key=lambda path: int(path.name), default=None)
        such_as = f", such as {last}" if last else ""
        return f"{version_dir} holds no saved_model.pb: expected a version directory{such_as}"
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


def check_graph(meta_graph: meta_graph_pb2.MetaGraphDef, release: str = OLDEST) -> list[str]:
    """Return findings about the graph alone; nothing of it is run."""
    checks = _check_ops(meta_graph, release), _check_xla(meta_graph), _check_outputs(meta_graph)
    return [finding for findings in checks for finding in findings]


def _check_ops(meta_graph: meta_graph_pb2.MetaGraphDef, release: str) -> list[str]:
    """Find ops, and attributes of ops, that a release of TensorFlow Serving does not have.

    The lists are the op registry of the TensorFlow release that it is built from, and the
    tensorflow_text ops that it links. 2.21 is taken to link those of 2.20.
    """
    core = json.loads((_LISTS / "stock_ops_core.json").read_text())
    text = json.loads((_LISTS / "stock_ops_text.json").read_text())
    stock, newer = {*core["ops"], *text[_TEXT_LIST]}, core["of_2.21"]["attributes"]
    if release != OLDEST:
        stock, newer = stock | {*core["of_2.21"]["ops"]}, {}
    functions = {f.signature.name for f in meta_graph.graph_def.library.function}
    server, findings = f"TensorFlow Serving {release}", set()
    for node in nodes_of(meta_graph.graph_def):
        if node.op not in stock and node.op not in functions:
            findings.add(f"op {node.op}: {server} does not have it")
        for attribute in newer.get(node.op, ()):
            if attribute in node.attr:
                findings.add(f"op {node.op}: {server} does not know its attribute {attribute}")
    return sorted(findings)


def _check_xla(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """Find functions that ask for XLA, which TensorFlow Serving leaves off."""
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


def _check_outputs(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """Find outputs that are not dense tensors with the batch as first dimension."""
    findings = []
    for name, signature in sorted(meta_graph.signature_def.items()):
        if name.startswith("__"):
            continue
        for alias, info in sorted(signature.outputs.items()):
            output, shape = f"signature {name}, output {alias}", info.tensor_shape
            if info.WhichOneof("encoding") != "name" or info.dtype in _NOT_DENSE:
                findings.append(f"{output}: not a dense tensor; it cannot be fetched over Predict")
            elif not shape.unknown_rank and not shape.dim:
                findings.append(f"{output}: a scalar; the first dimension must be the batch")
    return findings
