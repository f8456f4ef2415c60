"""All checks of an ONNX export, in the process that runs it; without TensorFlow."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from serving.check.process import answer
from serving.check.texts import HARD_TEXTS, TEXTS
from serving.client.local import LocalTranslator
from serving.client.local.model import MANIFEST
from serving.client.printing import printable
from training.command.progress import Tell

_TOLERANCE = 1e-3  # of a row alone and in a batch, whose products are summed in another order
_OTHERWISE = 1 / 6  # of the rows: of two hypotheses of about the same score either may be better
_ROUNDED = 1 / 2  # of the rows, in eight bits, to which the run may answer otherwise
_SAVED_MODEL = "assets.extra/manifest.json"
# Of each signature, what is asked.
_ASKED: dict[str, Callable[[LocalTranslator, list[str]], list[Any]]] = {
    "translate": lambda translator, texts: translator.translate(texts),
    "nbest": lambda translator, texts: translator.nbest(texts),
    "align": lambda translator, texts: translator.align(texts),
    "score": lambda translator, texts: translator.score(texts, texts[::-1]),
}


def check_folder(
    version_dir: Path, run: Path | None = None, tell: Tell = lambda stage, share=None: None
) -> list[str]:
    """All findings about an ONNX export, none where it can be used.

    Args:
        version_dir: the directory that holds `manifest.json`.
        run: that it was exported from, to compare it with.
        tell: is called with what is done next, see `training.command.progress.stages`.
    """
    tell("reading the graphs", 0.05)
    try:
        manifest = json.loads((version_dir / MANIFEST).read_text(encoding="utf-8"))
        graphs = [name for name, about in manifest["graphs"].items() if isinstance(about, dict)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return [f"{MANIFEST} cannot be read: {_first_line(error)}"]
    if findings := [line for name in graphs for line in _check_graph(version_dir, name)]:
        return findings
    tell("loading it", 0.1)
    try:
        alone, together = (LocalTranslator(version_dir, batch_size=n) for n in (1, 64))
    except Exception as error:  # whatever a runtime raises
        return [f"it cannot be loaded: {_first_line(error)}"]
    names = [name for name in _ASKED if name != "align" or manifest["attends"]]
    for number, name in enumerate(names):
        tell(f"asking for {name}", 0.2 + 0.5 * number / len(names))
        findings += _check_rows(name, alone, together)
    if not findings:
        tell("comparing it", 0.7)
        findings = _compare(version_dir, run, together)
    return [*map(printable, findings)]


def _check_graph(version_dir: Path, name: str) -> list[str]:
    """A graph that is not valid, operators that are not ONNX's own, and weights not finite."""
    path = version_dir / f"{name}.onnx"
    try:
        onnx.checker.check_model(str(path))
        graph = onnx.load(str(path)).graph
        arrays = {x.name: onnx.numpy_helper.to_array(x) for x in graph.initializer}
    except Exception as error:  # of several classes
        return [f"{path.name} cannot be read: {_first_line(error)}"]
    findings = []
    if strange := {node.domain for node in _nodes(graph)} - {"", "ai.onnx"}:
        findings.append(f"{path.name} has operators of {', '.join(sorted(strange))}")
    for tensor, array in arrays.items():
        # What is never said has a bias of -inf.
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


def _check_rows(name: str, alone: LocalTranslator, together: LocalTranslator) -> list[str]:
    """A signature that fails, answers NaN, or whose rows depend on their batch."""
    for kind, texts in (("texts", TEXTS), ("empty, long and invalid texts", HARD_TEXTS)):
        try:
            each, batch = (
                [_flat(found) for found in _ASKED[name](translator, _decoded(texts))]
                for translator in (alone, together)
            )
        except Exception as error:  # whatever a runtime raises
            return [f"{name} fails on {kind}: {_first_line(error)}"]
        if any(isinstance(x, float) and math.isnan(x) for row in batch for x in row):
            return [f"{name}: NaN on {kind}"]
        wrong = [n for n, pair in enumerate(zip(each, batch, strict=True)) if not _same(*pair)]
        if len(wrong) > _OTHERWISE * len(texts):
            return [
                f"{name}: row {wrong[0]} of a batch of {kind} is not what it answers alone: it "
                "depends on its batch"
            ]
    return []


def _compare(version_dir: Path, run: Path | None, translator: LocalTranslator) -> list[str]:
    """Translations that are not those of the run, or of a SavedModel of it beside."""
    texts, manifest = _decoded(TEXTS), translator.manifest
    if run:
        other, expected = f"run {run}", _by_run(run, texts, manifest["settings"])
    else:
        beside = _saved_model(version_dir, manifest)
        if beside is None:
            return []
        other, expected = f"SavedModel {beside}", _by_saved_model(beside, texts)
    found = [each.text for each in translator.translate(texts)]
    wrong = [n for n, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1]]
    most = _ROUNDED if manifest["settings"].get("weights") == "int8" else _OTHERWISE
    if len(wrong) <= most * len(texts):
        return []
    return [f"translate: {len(wrong)} of {len(texts)} texts are not what the {other} answers"]


def _by_run(run: Path, texts: list[str], settings: dict[str, Any]) -> list[str]:
    """Return what a run answers."""
    from training.decode.asked import Search  # TensorFlow takes seconds
    from training.decode.texts import make_translator
    from training.runs.run import load_run

    names = ("beam_width", "length_penalty", "max_source_length")
    asked = Search(**{name: settings[name] for name in names})
    return make_translator([load_run(run)], asked)(texts)


def _saved_model(version_dir: Path, manifest: dict[str, Any]) -> Path | None:
    """Return the last SavedModel beside it of the same run with the same search."""
    searches = ("beam_width", "length_penalty", "max_source_length")
    for path in sorted(version_dir.resolve().parent.glob(f"*/{_SAVED_MODEL}"), reverse=True):
        try:
            other = json.loads(path.read_text(encoding="utf-8"))
            same = all(other["settings"][x] == manifest["settings"][x] for x in searches)
            if same and other["runs"] == manifest["runs"]:
                return path.parents[1]
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def _by_saved_model(version_dir: Path, texts: list[str]) -> list[str]:
    """Return what a SavedModel answers."""
    import tensorflow as tf  # takes seconds

    from serving.savedmodel.session import ModelSession

    with ModelSession(version_dir) as session:
        inputs = {"text": tf.make_tensor_proto([text.encode() for text in texts])}
        found = session.run(session.signatures["translate"], inputs)
    return [text.decode() for text in found["translation"]]


def _decoded(texts: Sequence[bytes]) -> list[str]:
    return [text.decode("utf-8", "replace") for text in texts]


def _flat(found: Any) -> list[Any]:
    """Return the texts, numbers and flags of an answer in one list."""
    if isinstance(found, (list, tuple)):
        return [x for part in found for x in _flat(part)]
    return _flat(astuple(found)) if hasattr(found, "__dataclass_fields__") else [found]


def _same(row: list[Any], other: list[Any]) -> bool:
    """Whether two answers are the same, but for the last digits of numbers."""
    return len(row) == len(other) and all(
        abs(a - b) <= _TOLERANCE if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in zip(row, other, strict=True)
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def main() -> None:
    """Check the export that the first argument names, against the run that the second names."""
    version_dir, *run = map(Path, sys.argv[1:])
    answer(lambda tell: {"findings": check_folder(version_dir, run[0] if run else None, tell)})
