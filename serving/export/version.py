"""A new version of a model that can be served, made of a run or of several; and its examples."""

from __future__ import annotations

import training.command.startup  # noqa: F401

import contextlib
import errno
import json
import os
import re
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from hashlib import file_digest
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from keras_attention import exporting
from serving.check.graph import count_not_finite
from serving.export.modules import (
    INPUTS,
    WARMUP_TEXTS,
    Exported,
    ExportedPredictor,
    ExportedReader,
    traced,
)
from training.command.errors import UserError
from training.command.files import LOCK, locked_folder, move, remove, remove_empty
from training.command.progress import ReportStage
from training.data.splits import Texts, load_split
from training.decode.search import check_search
from training.decode.settings import SearchSettings
from training.runs.files import kept, read_history
from training.runs.run import Run
from training.sources.kinds import SOURCE_KINDS

COUNT = 5
_DRAWN = 100  # sources of which they are taken
_MOST_CHARACTERS = 80
COMPARED = 500  # sources
_TOGETHER = 100
MANIFEST = "assets.extra/manifest.json"


@dataclass(frozen=True)
class ExportSettings(SearchSettings):
    """The search of an export, and how its numbers are written."""

    num_results: int = 5
    weights: str = "float32"  # of ONNX; or "int8"
    tables: bool = True  # of ONNX, see `serving.portable.write.products`

    @property
    def is_rounded(self) -> bool:
        """Whether the export may answer otherwise than its runs."""
        return (self.weights, self.precision) != ("float32", "float32")

    def written(self, run: Run, form: str) -> dict[str, Any]:
        """Return the settings that exports of such a run in such a form have, for a manifest."""
        names = [field.name for field in fields(SearchSettings)]
        if not SOURCE_KINDS[run.config.source].tokens:
            names = ["beam_width", "num_results", "length_penalty"]
        if run.config.target == "label":
            names = []
        if form == "onnx":
            names += ["weights"] if self.tables else ["weights", "tables"]
        return {name: getattr(self, name) for name in names}


def dev_sources(run: Run, limit: int) -> list[Any]:
    """Return at most so many sources of the dev split, none where it cannot be found."""
    config = run.config
    try:
        if SOURCE_KINDS[config.source].tokens:
            return list(load_split(Texts.of(config), "dev", limit=limit)[0].sources)
        split = run.source.load_split(config, config.data, "dev", limit=limit)
        return list(split.sources)
    except UserError:
        return []


def examples(run: Run) -> list[str]:
    """Return examples for people: short texts, or `Source.shown` of the dev split."""
    if SOURCE_KINDS[run.config.source].tokens:
        texts = dict.fromkeys(dev_sources(run, _DRAWN))
        return [text for text in texts if len(text) <= _MOST_CHARACTERS][:COUNT]
    try:
        return run.source.shown(run.config, COUNT)
    except UserError:
        return []


def compared_sources(run: Run) -> list[Any]:
    """Return the sources that are compared: of the dev split, where it can be found."""
    texts = WARMUP_TEXTS if SOURCE_KINDS[run.config.source].tokens else ()
    return dev_sources(run, COMPARED) or list(texts)


def _translations(translate: Callable[..., Any], texts: Sequence[str]) -> list[np.ndarray]:
    """Return the translations of texts by a signature, `translate`, and their scores."""
    starts = range(0, len(texts), _TOGETHER)
    batches = [translate(text=tf.constant(texts[at : at + _TOGETHER])) for at in starts]
    return [np.concatenate([batch[key] for batch in batches]) for key in ("translation", "score")]


def _local_answers(run: Run, sources: Sequence[Any], folder: Path) -> list[np.ndarray]:
    """Return the texts and scores of an ONNX export, or the probabilities of histories."""
    from serving.portable.read import LocalPredictor, LocalReader, LocalTranslator

    if run.config.target == "label":
        outcomes = LocalPredictor(folder).outcome(sources)
        return [np.array([each.probability for each in outcomes])]
    answers: Sequence[Any] = (
        LocalTranslator(folder).translate(sources)
        if SOURCE_KINDS[run.config.source].tokens
        else LocalReader(folder).read(sources)
    )
    return [np.array([getattr(each, key) for each in answers]) for key in ("text", "score")]


def agreement(expected: Sequence[np.ndarray], rounded: Sequence[np.ndarray]) -> dict[str, float]:
    """Compare an export's texts and scores, or probabilities alone, with those in float32.

    Returns the number of `texts`, how many are the `same`, and the largest `score_difference` among
    those; or the number of `histories` and the largest `probability_difference`.
    """
    differences = np.abs(expected[-1] - rounded[-1])
    if len(expected) == 1:
        most = float(differences.max(initial=0))
        return {"histories": len(differences), "probability_difference": most}
    same = expected[0] == rounded[0]
    most = float(differences[same].max(initial=0))
    return {"texts": len(same), "same": int(same.sum()), "score_difference": most}


def export(
    runs: Sequence[Run],
    output: Path,
    *,
    tell: ReportStage = lambda what, share=None: None,
    form: str = "savedmodel",
    **keywords: Any,
) -> Path:
    """Write a new version of a servable model, of a run or of several as an ensemble.

    `output` is the model's base path; versions are numbered directories in it. `form` is
    "savedmodel" or "onnx"; for the keywords see `ExportSettings`. Returns the version's directory,
    which is written beside the versions and renamed when it is whole: a server never sees half of
    it. Where the export fails, nothing is left of it. Raises UserError if a weight is not finite,
    or the files cannot be written.
    """
    check_finite(runs)
    settings = ExportSettings(**keywords)
    check_search(replace(settings, precision="float32"), runs)
    if form == "onnx":
        return _export_onnx(runs, output, tell, settings)
    with _aside(output) as aside:
        exported = _exported(runs, settings)
        manifest = _manifest(runs, settings.written(runs[0], form))
        compares = isinstance(exported, Exported) and settings.is_rounded
        tell("tracing the model", 0.05)
        with exporting():
            signatures = exported.signatures()
        tell("writing the SavedModel", 0.3 if compares else 0.6)
        try:
            tf.saved_model.save(exported.module, str(aside), signatures=signatures)
            if compares:
                tell("comparing its translations with those in float32", 0.4)
                texts = compared_sources(runs[0])
                plain = Exported(runs, replace(settings, precision="float32"))
                with exporting():
                    translate = traced(plain.translate, {"text": ((None,), "string")})
                answers = (_translations(x, texts) for x in (translate, signatures["translate"]))
                manifest["agreement"] = agreement(*answers)
            extra = aside / "assets.extra"
            extra.mkdir()
            (aside / MANIFEST).write_text(json.dumps(manifest, indent=1))
            warmup = extra / "tf_serving_warmup_requests"
            _write_warmup(warmup, output.name, signatures, runs[0])
        except tf.errors.OpError as error:
            if "No space left" in error.message:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(output)) from error
            reason = re.sub(r"{{.*?}} ?", "", error.message.splitlines()[0])
            raise UserError(f"cannot write {output}: {reason}") from error
        return _number(aside, MANIFEST)


def _export_onnx(
    runs: Sequence[Run], output: Path, tell: ReportStage, settings: ExportSettings
) -> Path:
    """Write a new version as ONNX graphs: see `export`."""
    # Others need no onnx.
    from serving.portable.write.graphs import check_numbers, write_folder, write_manifest

    check_numbers(settings.precision, settings.weights)
    with _aside(output) as aside:
        tell("writing the ONNX graphs", 0.5)
        card = _manifest(runs, settings.written(runs[0], "onnx"))
        form: dict[str, Any] = {
            "tables": settings.tables,
            "coverage_penalty": settings.coverage_penalty,
        }
        try:
            write_folder(runs, aside, card, weights=settings.weights, **form)
            if settings.is_rounded and (sources := compared_sources(runs[0])):
                tell("comparing its answers with those in float32", 0.7)
                with tempfile.TemporaryDirectory() as plain:
                    write_folder(runs, Path(plain), card, **form)
                    folders = Path(plain), aside
                    answers = [_local_answers(runs[0], sources, folder) for folder in folders]
                write_manifest(aside, {"agreement": agreement(*answers)})
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(output)) from error
        return _number(aside, "manifest.json")


def _number(aside: Path, manifest: str) -> Path:
    """Give a whole version its number, the next where another export took it meanwhile.

    Its manifest gets the SHA-256 of each of the other files.
    """
    (aside / LOCK).unlink()
    about, files = json.loads((aside / manifest).read_text(encoding="utf-8")), {}
    for path in sorted(each for each in aside.rglob("*") if each.is_file()):
        with path.open("rb") as file:
            files[path.relative_to(aside).as_posix()] = file_digest(file, "sha256").hexdigest()
    del files[manifest]
    text = json.dumps({**about, "files": files}, ensure_ascii=False, indent=1)
    (aside / manifest).write_text(text + "\n", encoding="utf-8")
    output = aside.parent
    while True:
        version = max((int(p.name) for p in output.iterdir() if p.name.isdecimal()), default=0) + 1
        try:
            return move(aside, output / str(version))
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise


def check_finite(runs: Sequence[Run]) -> None:
    """Raise a UserError where a weight is NaN or infinite."""
    for run in runs:
        for weight in run.model.weights:
            if wrong := count_not_finite(keras.ops.convert_to_numpy(weight)):
                raise UserError(
                    f"{run.path} cannot be exported: {wrong:,} values of its weight {weight.path} "
                    "are not finite; train it again, with a lower learning rate or clip_norm"
                )


@contextlib.contextmanager
def _aside(output: Path) -> Iterator[Path]:
    """A directory beside the versions to write one to; without it, no directory that it needed."""
    for left in output.glob("writing-*"):  # by exports that were killed: nobody has their lock
        if left.name.removeprefix("writing-").isdecimal():
            with contextlib.suppress(UserError), locked_folder(left, left):
                remove(left)
    # A process's number is another's in another container.
    aside = output / f"writing-{uuid.uuid4().int}"
    with locked_folder(aside, output) as missing:
        try:
            yield aside
        finally:
            remove(aside)
            remove_empty(missing[1:])


def _exported(
    runs: Sequence[Run], settings: ExportSettings
) -> Exported | ExportedReader | ExportedPredictor:
    """Return what the runs' source makes of them: a translator, a reader or a predictor."""
    config = runs[0].config
    if SOURCE_KINDS[config.source].tokens:
        return Exported(runs, settings)
    if settings.precision != "float32":
        raise UserError(f"--precision expected runs with source = text. Received: {config.source}")
    if config.target == "label":
        return ExportedPredictor(runs)
    return ExportedReader(runs, settings)


def _manifest(runs: Sequence[Run], settings: dict[str, Any]) -> dict:
    """Return the manifest: runs, settings, examples and versions of libraries."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": settings,
        "examples": examples(runs[0]),
        "runs": [
            {
                "name": run.path.resolve().name,
                "config": run.config.values(),
                "history": (history := read_history(run.files.history)),
                "kept": kept(run.files) if history else None,
                "parameters": run.model.count_params(),
            }
            for run in runs
        ],
        "versions": {
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "python": sys.version.split()[0],
        },
    }


def _write_warmup(path: Path, name: str, signatures: Iterable[str], run: Run) -> None:
    """Write requests that TensorFlow Serving sends a version before it answers others."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature in signatures:
            request = predict_pb2.PredictRequest()
            request.model_spec.name = name
            request.model_spec.signature_name = signature
            if SOURCE_KINDS[run.config.source].tokens:
                inputs = dict.fromkeys(INPUTS[signature], WARMUP_TEXTS)
            else:
                inputs = run.source.examples(2)
            for alias, values in inputs.items():
                request.inputs[alias].CopyFrom(tf.make_tensor_proto(values))
            log = prediction_log_pb2.PredictionLog(
                predict_log=prediction_log_pb2.PredictLog(request=request)
            )
            writer.write(log.SerializeToString())
