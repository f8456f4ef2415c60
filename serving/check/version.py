"""All checks of a model version, in the process that loads and runs it.

`serving.check` runs `main` as a process of its own, since a model is a program: it may crash, and
it may never end.
"""

from __future__ import annotations

import training.command.startup  # noqa: F401

import os
import sys
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2

from serving.check.answers import check_answers
from serving.check.files import check_files
from serving.check.graph import check_names, check_ops, check_outputs, check_xla
from serving.check.process import answer, first_line
from serving.check.releases import OLDEST
from serving.check.stored_weights import check_weights
from serving.client.printing import printable
from serving.savedmodel.model import SavedModel
from serving.savedmodel.status import StatusError
from serving.server.completeness import missing_part
from serving.server.monitoring import Metrics
from serving.server.servable import Servable
from serving.server.storage import list_versions
from serving.server.warmup import read_records, replay
from training.command.progress import Tell

# The share of a check's time after which each begins: 7 million weights on two cores.
_GRAPH, _LOADING, _WEIGHTS, _ANSWERS, _WARMUP = 0.04, 0.05, 0.1, 0.18, 0.98


def check_version(
    version_dir: Path,
    tell: Tell = lambda stage, share=None: None,
    release: str = OLDEST,
) -> list[str]:
    """All findings about a model version, none where it can be served."""
    tell("reading the graph", _GRAPH)
    version_dir = Path(os.path.abspath(version_dir))
    meta_graph = read_meta_graph(version_dir)
    if isinstance(meta_graph, str):
        return [meta_graph]
    findings = check_graph(meta_graph, release)
    if version_dir not in list_versions(version_dir.parent).values():
        findings.append(
            f"a server would not find it: {version_dir.name} is not the number of a version"
        )
    if findings:
        # Running it would only repeat these in TensorFlow's words.
        return findings
    tell("loading it as TensorFlow Serving does", _LOADING)
    try:
        model = SavedModel(version_dir)
    except StatusError as error:
        return [f"the C++ loader refuses it: {error.code.name}: {first_line(error)}"]
    servable = Servable(version_dir.parent.name, 1, model, Metrics())
    try:
        tell("reading the weights", _WEIGHTS)
        if findings := check_weights(version_dir, meta_graph):
            return findings  # NaN answers would follow from NaN weights
        findings = check_answers(
            version_dir,
            model.session,
            lambda stage, done: tell(stage, _ANSWERS + (_WARMUP - _ANSWERS) * done),
        )
        return [*map(printable, findings), *check_warmup(servable, version_dir, tell)]
    finally:
        servable.close()


def read_meta_graph(version_dir: Path) -> meta_graph_pb2.MetaGraphDef | str:
    """The meta graph that is served, or why there is none."""
    try:
        data = (version_dir / "saved_model.pb").read_bytes()
    except OSError:
        versions = list_versions(version_dir)
        such_as = f", such as {versions[max(versions)]}" if versions else ""
        return f"{version_dir} holds no saved_model.pb: expected a version directory{such_as}"
    try:
        saved_model = saved_model_pb2.SavedModel.FromString(data)
    except DecodeError as error:
        return f"saved_model.pb cannot be read: {first_line(error)}"
    if missing := missing_part(version_dir, saved_model):
        return f"the version is not complete: no {missing}"
    graphs = saved_model.meta_graphs
    meta_graph = next((graph for graph in graphs if "serve" in graph.meta_info_def.tags), None)
    if meta_graph is None:
        return "no meta graph has the tag serve"
    if not any(not name.startswith("__") for name in meta_graph.signature_def):
        return "it has no signature"
    return meta_graph


def check_graph(meta_graph: meta_graph_pb2.MetaGraphDef, release: str = OLDEST) -> list[str]:
    """Findings about the graph alone; nothing of it is run."""
    checks = (check_files, check_xla, check_outputs, check_names)
    found = [finding for check in checks for finding in check(meta_graph)]
    return [printable(finding) for finding in (*check_ops(meta_graph, release), *found)]


def check_warmup(servable: Servable, version_dir: Path, tell: Tell) -> list[str]:
    """Warm-up records that fail, which would keep the version from loading."""
    findings = []
    try:
        for number, record in enumerate(read_records(version_dir), 1):
            tell(f"warm-up record {number}", _WARMUP)
            try:
                replay(servable, record)
            except StatusError as error:
                findings.append(
                    f"warm-up record {number} fails: {error.code.name}: {first_line(error)}"
                )
    except StatusError as error:
        findings.append(f"warm-up records: {first_line(error)}")
    return findings


def main() -> None:
    """Check the version that the first argument names, for the release that the second says.

    Or compare it with the server that follows: its target, the model's name there, and its target
    of REST or "".
    """
    version_dir, release, *server = sys.argv[1:]

    def check(tell: Tell) -> dict[str, Any]:
        if not server:
            return {"findings": check_version(Path(version_dir), tell, release)}
        from serving.check.against import Server, compare

        asked, differences = compare(Path(version_dir), Server(*server), tell)
        return {"findings": [*map(printable, differences)], "asked": asked}

    answer(check)
