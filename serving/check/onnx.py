"""All checks of an ONNX export, without TensorFlow."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from serving.api.histories import padded_columns
from serving.api.image_files import image_file
from serving.api.printing import first_line
from serving.check.questions import HARD_TEXTS, TEXTS
from serving.portable.read import LocalPredictor, LocalReader, LocalTranslator
from serving.portable.read.manifest import read_manifest
from serving.portable.read.model import LocalModel
from training.command.progress import ReportStage

Ask = Callable[[Any, list[Any]], list[Any]]
_TOLERANCE = 1e-3  # of a row alone and in a batch, whose products are summed in another order
_OTHERWISE = 1 / 6  # of the rows: of two hypotheses of about the same score either may be better
_ROUNDED = 1 / 2  # of the rows, in eight bits, to which the run may answer otherwise
_ROUNDED_TOLERANCE = 0.05  # of a probability in eight bits
_OWN_TEXTS = (
    "The check asks with texts of its own, of several scripts. Training never saw some of their "
    "letters, and need not have."
)


@dataclass(frozen=True)
class Task:
    """A kind of export.

    `questions`, by signature, ask a model about sources. The first is the main question: its
    answers have the attribute `says`, and `by_run` returns the runs' answers to it. `sources` makes
    the sources from the manifest, by their name in findings: the usual ones first, odd ones last.
    """

    model: Callable[..., LocalModel]
    questions: dict[str, Ask]
    says: str
    sources: Callable[[dict[str, Any]], dict[str, list[Any]]]
    by_run: Callable[[list[Any], list[Any], dict[str, Any]], list[str | float]]

    def answers(self, model: Any, sources: list[Any]) -> list[str | float]:
        """Return a model's answers to the main question."""
        ask = next(iter(self.questions.values()))
        return [getattr(each, self.says) for each in ask(model, sources)]


def _texts(manifest: dict[str, Any]) -> dict[str, list[Any]]:
    groups = {"texts": TEXTS, "odd texts": HARD_TEXTS.values()}
    own = {
        name: [text.decode("utf-8", "replace") for text in texts] for name, texts in groups.items()
    }
    examples = manifest.get("examples")  # which an owner may have emptied
    return {"its own examples": examples, **own} if examples else own


def _images(manifest: dict[str, Any]) -> dict[str, list[Any]]:
    """Return noise of the model's size and of others."""
    rng = np.random.default_rng(1)
    size = manifest["source"]["height"], manifest["source"]["width"]
    sizes = [*[size] * 5, (1, 1), (2, 301), (199, 3), (97, 101)]
    files = [image_file(rng.integers(0, 256, (*each, 3)).astype("uint8")) for each in sizes]
    usual, odd = files[:5], files[5:]
    return {"images": usual, "odd and broken images": [*odd, b"", odd[0][:-9], b"\xff\xd8\xff"]}


def _histories(manifest: dict[str, Any]) -> dict[str, list[Any]]:
    """Return histories of several lengths, some longer than the model reads, with gaps."""
    rng = np.random.default_rng(1)

    def history(length: int, scale: float) -> dict[str, list[float]]:
        columns = manifest["source"]["columns"]
        numbers = scale * rng.normal(size=(len(columns), length))
        logged = np.isin(columns, manifest["source"].get("log", []))
        numbers[logged] = abs(numbers[logged])
        numbers[rng.random(numbers.shape) < 1 / 3] = np.nan
        made = dict(zip(columns, numbers, strict=True))
        made["time"] = np.sort(scale * rng.normal(size=length))
        return {name: x.tolist() for name, x in made.items()}

    odd = [history(length, 1e28) for length in (0, 1, 97)] + [history(3, 0.0)]
    return {"histories": [history(n, 3.0) for n in (1, 2, 3, 5, 11, 67)], "odd histories": odd}


def _said_by_run(runs: list[Any], sources: list[Any], settings: dict) -> list[str | float]:
    from training.decode.settings import SearchSettings
    from training.decode.texts import make_translator

    names = {field.name for field in fields(SearchSettings)} - {"num_results", "precision"}
    search = SearchSettings(**{name: settings[name] for name in names & set(settings)})
    return [*make_translator(runs, search)(sources)]


def _predicted_by_run(runs: list[Any], sources: list[Any], settings: dict) -> list[str | float]:
    import tensorflow as tf

    from training.decode.labels import predict

    columns = {k: tf.constant(x, tf.float32) for k, x in padded_columns(sources).items()}
    probabilities, _ = predict([run.model for run in runs], runs[0].source.read(**columns))
    return [*probabilities.numpy().tolist()]


TASKS = {
    "translate": Task(
        model=LocalTranslator,
        questions={
            "translate": lambda model, texts: model.translate(texts),
            "nbest": lambda model, texts: model.nbest(texts),
            "align": lambda model, texts: model.align(texts),
            "score": lambda model, texts: model.score(texts, texts[::-1]),
        },
        says="text",
        sources=_texts,
        by_run=_said_by_run,
    ),
    "read": Task(
        model=LocalReader,
        questions={
            "read": lambda model, images: model.read(images, keep_errors=True),
            "nbest": lambda model, images: model.nbest(images, keep_errors=True),
            "regions": lambda model, images: model.regions(images, keep_errors=True),
        },
        says="text",
        sources=_images,
        by_run=_said_by_run,
    ),
    "predict": Task(
        model=LocalPredictor,
        questions={"predict": lambda model, histories: model.outcome(histories)},
        says="probability",
        sources=_histories,
        by_run=_predicted_by_run,
    ),
}


def check_folder(
    version_dir: Path, run: Path | None = None, tell: ReportStage = lambda stage, share=None: None
) -> list[str]:
    """Return all findings about an ONNX export; an empty list where it can be used."""
    tell("reading the graphs", 0.05)
    try:
        manifest = read_manifest(version_dir)
    except ValueError as error:
        return [first_line(error)]
    kind = TASKS[manifest["task"]]
    graphs = [name for name, about in manifest["graphs"].items() if isinstance(about, dict)]
    if findings := [line for name in graphs for line in _check_graph(version_dir, name)]:
        return findings
    tell("loading it", 0.1)
    try:
        alone, together = (kind.model(version_dir, batch_size=n) for n in (1, 64))
    except Exception as error:  # whatever a runtime raises
        return [f"it cannot be loaded: {first_line(error)}"]
    sources = kind.sources(manifest)
    with warnings.catch_warnings(record=True) as unseen:
        warnings.simplefilter("always", UserWarning)
        findings = _ask(kind, (alone, together), sources, tell)
        if run and not findings:
            tell("comparing it", 0.7)
            findings = _compare(kind, manifest, run, together, [*sources.values()][:-1])
    if unseen:
        print(_OWN_TEXTS, file=sys.stderr)
    return findings


def _ask(
    kind: Task,
    models: tuple[LocalModel, LocalModel],
    sources: dict[str, list[Any]],
    tell: ReportStage,
) -> list[str]:
    """Ask models for all questions; return the findings."""
    findings: list[str] = []
    names = kind.questions.keys() & models[1].signatures()
    for number, name in enumerate(sorted(names)):
        tell(f"asking for {name}", 0.2 + 0.5 * number / len(names))
        for what, some in sources.items():
            findings += _check_rows(name, kind.questions[name], models, what, some)
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
    """Find a signature that fails, that answers NaN, or whose rows depend on their batch."""
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
    kind: Task, manifest: dict[str, Any], run: Path, model: LocalModel, usual: list[list[Any]]
) -> list[str]:
    """Find answers that are not those of the run.

    In eight bits the first of the usual sources are asked alone, examples of the data where there
    are any: unlike texts may be answered otherwise, and long ones share a window that is.
    """
    from training.runs.run import load_run  # TensorFlow takes seconds

    rounded = manifest["settings"].get("weights") == "int8"
    sources = usual[0] if rounded else [source for some in usual for source in some]
    expected = kind.by_run([load_run(run)], sources, manifest["settings"])
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
