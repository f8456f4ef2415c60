"""The export gate: would TensorFlow Serving serve this SavedModel, and answer as Python does?

    python -m serving.check models/NAME/1

Loads the version through the C++ loader that TensorFlow Serving uses, runs every signature, and
prints one line for each finding. The exit status is 0 only where there is none.
"""

import training.quiet  # noqa: F401

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from serving.checks.answers import check_answers
from serving.checks.graph import check_ops, check_outputs, check_xla
from serving.checks.weights import check_weights
from serving.model_server.metrics import Metrics
from serving.model_server.servable import Servable, Slots
from serving.model_server.storage import missing_part
from serving.model_server.warmup import read_records, replay
from serving.status import StatusError


def check_warmup(servable: Servable, version_dir: Path) -> list[str]:
    """Warm-up records that fail, which would keep the version from loading."""
    findings = []
    number = 0
    try:
        for number, record in enumerate(read_records(version_dir), 1):
            try:
                replay(servable, record)
            except StatusError as error:
                findings.append(
                    f"warm-up record {number} fails: {error.code.name}: {_first_line(error)}"
                )
    except StatusError as error:
        findings.append(f"warm-up records: {_first_line(error)}")
    return findings


def check(version_dir: Path) -> list[str]:
    """All findings about a model version, none where it can be served.

    Args:
        version_dir: the directory that holds `saved_model.pb`.
    """
    if not (version_dir / "saved_model.pb").is_file():
        return [f"{version_dir} holds no saved_model.pb: expected a version directory"]
    if missing := missing_part(version_dir):
        return [f"the version is not complete: no {missing}"]
    try:
        data = (version_dir / "saved_model.pb").read_bytes()
        graphs = saved_model_pb2.SavedModel.FromString(data).meta_graphs
    except DecodeError as error:
        return [f"saved_model.pb cannot be read: {_first_line(error)}"]
    meta_graph = next((graph for graph in graphs if "serve" in graph.meta_info_def.tags), None)
    if meta_graph is None:
        return ["no meta graph has the tag serve"]
    if not any(not name.startswith("__") for name in meta_graph.signature_def):
        return ["it has no signature"]
    findings = check_ops(meta_graph) + check_xla(meta_graph) + check_outputs(meta_graph)
    if findings:
        # Running it would only repeat these in TensorFlow's words.
        return findings
    try:
        servable = Servable(version_dir.parent.name, 1, version_dir, Metrics(), Slots(1))
    except StatusError as error:
        return [f"the C++ loader refuses it: {error.code.name}: {_first_line(error)}"]
    try:
        findings += check_answers(version_dir, servable.session)
        findings += check_warmup(servable, version_dir)
    finally:
        servable.close()
    return findings + check_weights(version_dir, meta_graph)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def main(argv: Sequence[str] | None = None) -> int:
    """Check; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m serving.check",
        description="Checks that TensorFlow Serving can serve a SavedModel.",
    )
    parser.add_argument("version_dir", type=Path, metavar="models/NAME/1")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(argv)
    findings = check(arguments.version_dir)
    if arguments.json:
        print(json.dumps({"path": str(arguments.version_dir), "findings": findings}))
    else:
        for finding in findings or [f"{arguments.version_dir}: ready to serve"]:
            print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
