"""Checks of a SavedModel's graph: ops that stock Serving lacks, XLA, outputs it cannot send."""

import json
from collections.abc import Iterator
from pathlib import Path

from tensorflow.core.framework import graph_pb2, node_def_pb2, tensor_shape_pb2, types_pb2
from tensorflow.core.protobuf import meta_graph_pb2

from serving.check.releases import OLDEST
from serving.client.printing import printable

_LISTS = Path(__file__).parent
_TEXT_LIST = "serving>=2.20.0 (ops_lib of text 2.20.0)"
_XLA_ATTRIBUTES = ("_XlaMustCompile", "_XlaCompile")
_XLA_OPS = {"XlaLaunch", "XlaLaunchV2", "XlaCallModule"}
_NOT_DENSE = {types_pb2.DT_VARIANT, types_pb2.DT_RESOURCE}


def nodes_of(graph: graph_pb2.GraphDef) -> Iterator[node_def_pb2.NodeDef]:
    """All nodes of a graph and of its functions."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def check_ops(meta_graph: meta_graph_pb2.MetaGraphDef, release: str = OLDEST) -> list[str]:
    """Ops, and attributes of ops, that a release of TensorFlow Serving does not have.

    The lists are the op registry of the TensorFlow release that it is built from, and the
    tensorflow_text ops that it links. 2.21 is taken to link those of 2.20.
    """
    core = json.loads((_LISTS / "stock_ops_core.json").read_text())
    text = json.loads((_LISTS / "stock_ops_text.json").read_text())
    stock, newer = {*core["ops"], *text[_TEXT_LIST]}, core["of_2.21"]["attributes"]
    if release != OLDEST:
        stock, newer = stock | {*core["of_2.21"]["ops"]}, {}
    functions = {f.signature.name for f in meta_graph.graph_def.library.function}
    findings = set()
    for node in nodes_of(meta_graph.graph_def):
        if node.op not in stock and node.op not in functions:
            findings.add(f"op {node.op}: TensorFlow Serving {release} does not have it")
        for attribute in newer.get(node.op, ()):
            if attribute in node.attr:
                findings.add(
                    f"op {node.op}: TensorFlow Serving {release} does not know its attribute "
                    f"{attribute}"
                )
    return sorted(findings)


def check_xla(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """Functions that ask for XLA, which TensorFlow Serving leaves off."""
    holders = [(f"function {f.signature.name}", f) for f in meta_graph.graph_def.library.function]
    holders += [(f"node {node.name}", node) for node in nodes_of(meta_graph.graph_def)]
    named = [
        name
        for name, holder in holders
        if any(holder.attr[key].b for key in _XLA_ATTRIBUTES if key in holder.attr)
        or getattr(holder, "op", "") in _XLA_OPS
    ]
    if not named:
        return []
    return [
        f"XLA is compiled in ({named[0]}): export functions with jit_compile=False, and trace "
        "layers of keras_attention within keras_attention.exporting()"
    ]


def check_names(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """Names of signatures, inputs and outputs that would steer a terminal or end a line."""
    findings = []
    for name, signature in sorted(meta_graph.signature_def.items()):
        for alias in (name, *sorted(signature.inputs), *sorted(signature.outputs)):
            if printable(alias) != alias:
                findings.append(f"signature {name}: the name {alias} holds control characters")
    return findings


def check_outputs(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """Outputs that are not dense tensors with the batch as first dimension."""
    findings = []
    for name, signature in sorted(meta_graph.signature_def.items()):
        if name.startswith("__"):
            continue
        for alias, info in sorted(signature.outputs.items()):
            output = f"signature {name}, output {alias}"
            if info.WhichOneof("encoding") != "name" or info.dtype in _NOT_DENSE:
                findings.append(f"{output}: not a dense tensor; it cannot be fetched over Predict")
            elif _is_scalar(info.tensor_shape):
                findings.append(f"{output}: a scalar; the first dimension must be the batch")
    return findings


def _is_scalar(shape: tensor_shape_pb2.TensorShapeProto) -> bool:
    return not shape.unknown_rank and not shape.dim
