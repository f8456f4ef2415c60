"""All checks of an ONNX export; TensorFlow is needed only to compare with a run."""

from __future__ import annotations

import warnings
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from serving.api._histories import padded_columns
from serving.api._printing import first_line
from serving.check._answers import check_answers
from serving.check._questions import make_inputs, usual_rows
from serving.loaded._onnx_model import OnnxModel
from serving.loaded._status import StatusError
from serving.portable.engine._graphs import nodes_of
from serving.portable.read._manifest import read_manifest
from training.command.progress import ReportStage

_OTHERWISE = 1 / 6  # of the rows may differ: two hypotheses may have nearly equal scores
_ROUNDED = 1 / 2  # of the rows may differ from the run with int8 weights
_TOLERANCE, _ROUNDED_TOLERANCE = 1e-3, 0.05  # of a probability


def check_folder(
    version_dir: Path, run: Path | None = None, tell: ReportStage = lambda stage, share=None: None
) -> list[str]:
    """Return all findings about an ONNX export, none if it can be used.

    With a `run`, compares the export's answers with the answers of the run.
    """
    tell("reading the graphs", 0.05)
    try:
        manifest = read_manifest(version_dir)
    except ValueError as error:
        return [first_line(error)]
    graphs = [name for name, about in manifest["graphs"].items() if isinstance(about, dict)]
    if findings := [line for name in graphs for line in _check_graph(version_dir, name)]:
        return findings
    tell("loading it", 0.1)
    try:
        model = OnnxModel(version_dir)
    except StatusError as error:
        return [first_line(error)]
    with closing(model), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of letters that training never saw
        names = sorted(model.signatures.keys() - {"serving_default"})
        findings = check_answers(model, names, lambda what, done: tell(what, 0.2 + 0.5 * done))
        if run and not findings:
            tell("comparing it", 0.7)
            findings = _compare(model, manifest, run)
    return findings


def _check_graph(version_dir: Path, name: str) -> list[str]:
    """Find an invalid graph, operators that are not ONNX's own, and weights that are not finite."""
    path = version_dir / f"{name}.onnx"
    try:
        onnx.checker.check_model(str(path))
        graph = onnx.load(str(path)).graph
        arrays = {x.name: onnx.numpy_helper.to_array(x) for x in graph.initializer}
    except Exception as error:  # of several classes
        return [f"{path.name} cannot be read: {first_line(error)}"]
    findings = []
    if strange := {node.domain for node in nodes_of(graph)} - {"", "ai.onnx"}:
        findings.append(f"{path.name} has operators of {', '.join(sorted(strange))}")
    for tensor, array in arrays.items():
        # Tokens that are never output have a bias of -inf.
        if array.dtype.kind == "f" and not (np.isfinite(array) | np.isneginf(array)).all():
            findings.append(f"weights not finite: {tensor} of {path.name}")
    return findings


def _compare(model: OnnxModel, manifest: dict[str, Any], run: Path) -> list[str]:
    """Find answers that differ from the run's.

    With int8 weights, only the examples of the data are compared if there are any: answers to texts
    unlike the data differ more often.
    """
    from training.runs.run import load_run  # TensorFlow takes seconds

    task, settings = manifest["task"], manifest["settings"]
    rounded = settings.get("weights") == "int8"
    sources = [*usual_rows(model.signatures[task])]
    if task == "translate":  # an owner may have emptied the examples
        examples = [text.encode() for text in manifest.get("examples") or ()]
        sources = examples if rounded and examples else [*examples, *sources]
    outputs = model.run(task, make_inputs(model.signatures[task], sources))
    answers = outputs[{"translate": "translation", "read": "text", "predict": "probability"}[task]]
    by_run = _predicted_by_run if task == "predict" else _said_by_run
    expected = by_run(load_run(run), sources, settings)
    if task == "predict":
        wrong = np.abs(answers - expected) > (_ROUNDED_TOLERANCE if rounded else _TOLERANCE)
    else:
        wrong = answers != np.array([text.encode() for text in expected], object)
    if wrong.sum() <= (_ROUNDED if rounded else _OTHERWISE) * len(sources):
        return []
    return [f"{wrong.sum()} of {len(sources)} answers are not those of the run {run}"]


def _said_by_run(run: Any, sources: list[bytes], settings: dict[str, Any]) -> list[str]:
    from training.decode.settings import SearchSettings
    from training.decode.texts import make_translator
    from training.sources.kinds import SOURCE_KINDS

    names = {field.name for field in fields(SearchSettings)} - {"num_results", "precision"}
    search = SearchSettings(**{name: settings[name] for name in names & set(settings)})
    is_text = SOURCE_KINDS[run.config.source].tokens
    read = [source.decode("utf-8", "replace") for source in sources] if is_text else sources
    return make_translator([run], search)(read)


def _predicted_by_run(run: Any, sources: list[Any], _: dict[str, Any]) -> np.ndarray:
    import tensorflow as tf

    from training.decode.labels import predict

    columns = {k: tf.constant(x, tf.float32) for k, x in padded_columns(sources).items()}
    return predict([run.model], run.source.read(**columns))[0].numpy()
