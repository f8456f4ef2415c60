"""Ops by which a request touches files, other machines, Python, or what later requests meet."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2

WRITES = frozenset(
    {
        *("WriteFile", "Save", "SaveV2", "SaveSlices", "MergeV2Checkpoints"),
        *("SaveDataset", "SaveDatasetV2", "DistributedSave", "SnapshotDataset"),
        *("SnapshotDatasetV2", "SnapshotChunkDataset", "DatasetToTFRecord", "DatasetToTFRecordV2"),
        *("CacheDataset", "CacheDatasetV2", "CreateSummaryFileWriter", "CreateSummaryDbWriter"),
        *("ExperimentalDatasetToTFRecord", "CalibrationStatisticsSaver", "DebugNanCount"),
        *("DebugIdentity", "DebugIdentityV2", "DebugIdentityV3"),
        *("DebugNumericSummary", "DebugNumericSummaryV2", "FileSystemSetConfiguration"),
    }
)
READS = frozenset(
    {
        *("ReadFile", "MatchingFiles", "Restore", "RestoreSlice", "RestoreV2", "ImmutableConst"),
        *("DTensorRestoreV2",),
        *("WholeFileReader", "WholeFileReaderV2", "TextLineReader", "TextLineReaderV2"),
        *("FixedLengthRecordReader", "FixedLengthRecordReaderV2", "TFRecordReader"),
        *("TFRecordReaderV2", "LMDBReader", "TFRecordDataset", "TFRecordDatasetV2"),
        *("TextLineDataset", "FixedLengthRecordDataset", "FixedLengthRecordDatasetV2"),
        *("CSVDataset", "CSVDatasetV2", "LMDBDataset", "SqlDataset", "MatchingFilesDataset"),
        *("ExperimentalCSVDataset", "ExperimentalLMDBDataset", "ExperimentalSqlDataset"),
        *("ExperimentalMatchingFilesDataset", "LoadDataset", "ListSnapshotChunksDataset"),
        *("SnapshotDatasetReader", "SnapshotNestedDatasetReader", "LoadAndRemapMatrix"),
        *("GenerateVocabRemapping", "InitializeTableFromTextFile"),
        *("InitializeTableFromTextFileV2", "DecodeImageFile"),
    }
)
REMOTE = frozenset(
    {
        *("DataServiceDataset", "DataServiceDatasetV2", "DataServiceDatasetV3"),
        *("DataServiceDatasetV4", "RegisterDataset", "RegisterDatasetV2", "RemoteCall", "RpcCall"),
        *("RpcClient", "RpcServer", "RpcServerStart", "Send", "Recv", "_Send", "_Recv"),
    }
)
PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
# Of variables, those of optimizers included, and of tables.
_CHANGES = re.compile(
    r"(Ref)?(Assign\w*|CountUpTo)|Resource(Scatter|Apply|SparseApply|StridedSliceAssign|CountUpTo)\w*"
    r"|Scatter(Nd)?(Add|Sub|Mul|Div|Min|Max|Update)|(Sparse)?Apply\w+|StridedSliceAssign"
    r"|LookupTable(Insert|Import|Remove)\w*"
)

_TABLES = frozenset({"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"})
_RESTORES = frozenset({"RestoreV2", "Restore", "RestoreSlice"})
_INIT_SIGNATURE = "__saved_model_init_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")


def check_files(meta_graph: meta_graph_pb2.MetaGraphDef) -> list[str]:
    """Ops that would touch files as the version is loaded or asked, or keep what was asked.

    Those that save the variables again do not count, which every SavedModel has and nothing calls;
    loading may read the variables, and vocabularies into tables.
    """
    graph = meta_graph.graph_def
    asked: set[str] = set()
    init: set[str] = set()
    for name, signature in meta_graph.signature_def.items():
        found = init if name == _INIT_SIGNATURE else asked
        for info in (*signature.outputs.values(), *signature.inputs.values()):
            found.update(_tensors(info))
    for key in _INIT_COLLECTIONS:
        if key in meta_graph.collection_def:
            init.update(meta_graph.collection_def[key].node_list.value)
    restore = {meta_graph.saver_def.restore_op_name}
    findings = set()
    for roots, allowed in ((asked, frozenset()), (init, _TABLES), (restore, _RESTORES)):
        for node in _reachable(graph, roots):
            if node.op not in allowed and (what := _what(node)):
                findings.add(f"op {node.op} ({node.name}): {what}")
    for node in _reachable(graph, asked):
        if _CHANGES.fullmatch(node.op):
            findings.add(f"op {node.op} ({node.name}): a request changes what later ones meet")
    return sorted(findings)


def _what(node: node_def_pb2.NodeDef) -> str | None:
    """Name the forbidden thing that an op does, or None."""
    if node.op in WRITES:
        return "it writes files"
    if node.op == "PrintV2" and node.attr["output_stream"].s.startswith(b"file:"):
        return "it writes files"
    if node.op in READS:
        return "it reads files"
    if node.op in REMOTE:
        return "it speaks to other machines"
    if node.op in PYTHON:
        return "it needs the Python process that made it"
    return None


def _tensors(info: meta_graph_pb2.TensorInfo) -> Iterator[str]:
    """Names of the tensors of a signature's entry: one, or the parts of a sparse or composite."""
    match info.WhichOneof("encoding"):
        case "name":
            yield info.name
        case "coo_sparse":
            sparse = info.coo_sparse
            yield from (sparse.values_tensor_name, sparse.indices_tensor_name)
            yield sparse.dense_shape_tensor_name
        case "composite_tensor":
            for part in info.composite_tensor.components:
                yield from _tensors(part)


def _reachable(graph: graph_pb2.GraphDef, roots: Iterable[str]) -> Iterator[node_def_pb2.NodeDef]:
    """The nodes that are run for these tensors or ops, in the graph and in functions."""
    nodes = {node.name: node for node in graph.node}
    functions = {function.signature.name: function for function in graph.library.function}
    waiting = [_op(root) for root in roots]
    seen: set[str] = set()
    called: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in nodes:
            continue
        seen.add(name)
        yield nodes[name]
        waiting += map(_op, nodes[name].input)
        called.update(_functions_of(nodes[name]))
    pending, done = list(called), set[str]()
    while pending:
        name = pending.pop()
        if name in done or name not in functions:
            continue
        done.add(name)
        for node in functions[name].node_def:
            yield node
            pending += _functions_of(node)


def _op(name: str) -> str:
    """The op of a tensor, of a control input, or of an op's own name."""
    return name.removeprefix("^").partition(":")[0]


def _functions_of(node: node_def_pb2.NodeDef) -> Iterator[str]:
    """Names of the functions that a node calls."""
    yield node.op
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        for function in value.list.func:
            yield function.name
