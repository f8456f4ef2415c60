"""All checks of an ONNX export, without TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from serving.check.local_models import KINDS, Ask, Kind
from serving.client.local.manifest import read_manifest
from serving.client.local.model import LocalModel
from serving.client.printing import first_line
from training.command.progress import Tell

_TOLERANCE = 1e-3  # of a row alone and in a batch, whose products are summed in another order
_OTHERWISE = 1 / 6  # of the rows: of two hypotheses of about the same score either may be better
_ROUNDED = 1 / 2  # of the rows, in eight bits, to which the run may answer otherwise
_ROUNDED_TOLERANCE = 0.05  # of a probability in eight bits


def check_folder(
    version_dir: Path, run: Path | None = None, tell: Tell = lambda stage, share=None: None
) -> list[str]:
    """All findings about an ONNX export, none where it can be used."""
    tell("reading the graphs", 0.05)
    try:
        manifest = read_manifest(version_dir)
    except ValueError as error:
        return [first_line(error)]
    kind = KINDS[manifest["task"]]
    graphs = [name for name, about in manifest["graphs"].items() if isinstance(about, dict)]
    if findings := [line for name in graphs for line in _check_graph(version_dir, name)]:
        return findings
    tell("loading it", 0.1)
    try:
        alone, together = (kind.model(version_dir, batch_size=n) for n in (1, 64))
    except Exception as error:  # whatever a runtime raises
        return [f"it cannot be loaded: {first_line(error)}"]
    sources = kind.sources(manifest)
    names = kind.questions.keys() & together.signatures()
    for number, name in enumerate(sorted(names)):
        tell(f"asking for {name}", 0.2 + 0.5 * number / len(names))
        for what, some in sources.items():
            findings += _check_rows(name, kind.questions[name], (alone, together), what, some)
    if run and not findings:
        tell("comparing it", 0.7)
        findings = _compare(kind, manifest, run, together, next(iter(sources.values())))
    return findings


def _check_graph(version_dir: Path, name: str) -> list[str]:
    """A graph that is not valid, operators that are not ONNX's own, and weights not finite."""
    path = version_dir / f"{name}.onnx"
    try:
        onnx.checker.check_model(str(path))
        graph = onnx.load(str(path)).graph
        arrays = {x.name: onnx.numpy_helper.to_array(x) for x in graph.initializer}
    except Exception as error:  # of several classes
        return [f"{path.name} cannot be read: {first_line(error)}"]
    findings = []
    if strange := {node.domain for node in _nodes(graph)} - {"", "ai.onnx"}:
        findings.append(f"{path.name} has operators of {', '.join(sorted(strange))}")
    for tensor, array in arrays.items():
        # Tokens that are never said have a bias of -inf.
        if array.dtype.kind == "f" and not (np.isfinite(array) | np.isneginf(array)).all():
            findings.append(f"weights not finite: {tensor} of {path.name}")
    return findings


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph and of the loops in it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def _check_rows(
    name: str, ask: Ask, models: tuple[LocalModel, LocalModel], what: str, sources: list[Any]
) -> list[str]:
    """A signature that fails, answers NaN, or whose rows depend on their batch."""
    try:
        each, batch = ([_flat(x) for x in ask(model, sources)] for model in models)
        ask(models[1], [])
    except Exception as error:  # whatever a runtime raises
        return [f"{name} fails on {what}: {first_line(error)}"]
    if any(isinstance(x, float) and math.isnan(x) for row in batch for x in row):
        return [f"{name}: NaN on {what}"]
    wrong = [n for n, pair in enumerate(zip(each, batch, strict=True)) if not _same(*pair)]
    if len(wrong) <= _OTHERWISE * len(sources):
        return []
    return [
        f"{name}: row {wrong[0]} of a batch of {what} is not what it answers alone: it depends on "
        "its batch"
    ]


def _compare(
    kind: Kind, manifest: dict[str, Any], run: Path, model: LocalModel, sources: list[Any]
) -> list[str]:
    """Find answers that are not those of the run."""
    from training.runs.run import load_run  # TensorFlow takes seconds

    expected = kind.by_run([load_run(run)], sources, manifest["settings"])
    rounded = manifest["settings"].get("weights") == "int8"
    most, tolerance = (_ROUNDED, _ROUNDED_TOLERANCE) if rounded else (_OTHERWISE, _TOLERANCE)
    pairs = zip(kind.answers(model, sources), expected, strict=True)
    wrong = [answer for answer, wanted in pairs if not _same([answer], [wanted], tolerance)]
    if len(wrong) <= most * len(sources):
        return []
    return [f"{len(wrong)} of {len(sources)} answers are not those of the run {run}"]


def _flat(answer: Any) -> list[Any]:
    """Return the texts, numbers and flags of an answer in one list."""
    if isinstance(answer, (list, tuple)):
        return [x for part in answer for x in _flat(part)]
    if isinstance(answer, Exception):
        return [str(answer).partition(" ")[2].partition(" ")[2]]  # after the number of an image
    return _flat(astuple(answer)) if hasattr(answer, "__dataclass_fields__") else [answer]


def _same(row: list[Any], other: list[Any], tolerance: float = _TOLERANCE) -> bool:
    """Whether two answers are the same, but for the last digits of numbers."""
    return len(row) == len(other) and all(
        abs(a - b) <= tolerance if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in zip(row, other, strict=True)
    )
