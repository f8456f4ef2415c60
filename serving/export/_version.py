"""Writes a new version of a servable model from one run or several, with its manifest."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from keras_attention import exporting
from serving.api._export_files import ONNX_MANIFEST, SAVED_MANIFEST
from serving.api._results import TRANSLATE_LINES, are_sentences
from serving.api._versions import LARGEST_VERSION, version_number
from serving.export._modules import ExportedPredictor, ExportedReader, traced
from serving.export._texts import WARMUP_TEXTS, Exported
from serving.portable.write._settings import ExportSettings
from training.command.errors import UserError
from training.command.files import locked_aside, locked_folder, move, remove
from training.command.progress import ReportStage
from training.data.read.texts import Texts, load_split
from training.data.rules import ALPHABETS
from training.decode.search import check_search
from training.runs.checkpoints import check_finite
from training.runs.files import kept, read_history, sha256
from training.runs.run import Run
from training.sources.kinds import SOURCE_KINDS

_COUNT = 5
_DRAWN = 100  # sources from which examples are chosen
_MOST_CHARACTERS = 80
_COMPARED = 500  # most sources for the comparison with float32
_TOGETHER = 100


def _dev_sources(run: Run, limit: int) -> list[Any]:
    """Return at most `limit` sources of the dev split, none if the split cannot be found."""
    config = run.config
    try:
        if SOURCE_KINDS[config.source].tokens:
            return list(load_split(Texts.of(config), "dev", limit=limit)[0].sources)
        split = run.source.load_split(config, config.data, "dev", limit=limit)
        return list(split.sources)
    except UserError:
        return []


def _examples(run: Run) -> list[str]:
    """Return examples to show to users: short texts of the dev split, or `Source.shown`."""
    if SOURCE_KINDS[run.config.source].tokens:
        texts = dict.fromkeys(_dev_sources(run, _DRAWN))
        return [text for text in texts if len(text) <= _MOST_CHARACTERS][:_COUNT]
    try:
        return run.source.shown(run.config, _COUNT)
    except UserError:
        return []


def _has_sentences(run: Run) -> bool:
    """Return whether the sources of a translator are sentences: see `are_sentences`."""
    of_letters = run.source_tokenizer.kind in (*ALPHABETS, "symbols")
    return are_sentences(_dev_sources(run, _COMPARED), of_letters)


def _compared_sources(run: Run) -> list[Any]:
    """Return the sources on which exports are compared: the dev split, or the warm-up texts."""
    texts = WARMUP_TEXTS if SOURCE_KINDS[run.config.source].tokens else ()
    return _dev_sources(run, _COMPARED) or list(texts)


def _translations(translate: Callable[..., Any], texts: Sequence[str]) -> list[np.ndarray]:
    """Return translations `(B,)` of texts by the signature `translate`, and their scores `(B,)`."""
    starts = range(0, len(texts), _TOGETHER)
    batches = [translate(text=tf.constant(texts[at : at + _TOGETHER])) for at in starts]
    return [np.concatenate([batch[key] for batch in batches]) for key in ("translation", "score")]


def _local_answers(task: str, sources: Sequence[Any], folder: Path) -> list[np.ndarray]:
    """Return texts and scores, each `(B,)`, of an ONNX export, or probabilities `(B,)` only."""
    from serving.portable.read import MODELS

    model: Any = MODELS[task](folder)
    if task == "predict":
        return [np.array([each.probability for each in model.outcome(sources)])]
    answers = (model.translate if task == "translate" else model.read)(sources)
    return [np.array([getattr(each, key) for each in answers]) for key in ("text", "score")]


def _agreement(expected: Sequence[np.ndarray], rounded: Sequence[np.ndarray]) -> dict[str, float]:
    """Return how well a rounded export agrees with the float32 export.

    Args:
        expected: texts and scores, or probabilities only, in float32; each `(B,)`.
        rounded: the same of the rounded export.

    Returns the number of `texts`, how many are the `same`, and the largest `score_difference` among
    the same texts; or the number of `histories` and the largest `probability_difference`.
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
    """Write a new version of a servable model; return the version's directory.

    The version is written to a temporary directory and renamed when complete, so that a server
    never sees half a version. A failed export leaves nothing behind.

    Args:
        runs: one run, or several as an ensemble.
        output: the model's base path, which has a numbered directory for each version.
        tell: reports the progress.
        form: "savedmodel" or "onnx".
        keywords: see `ExportSettings`.

    Raises UserError if a weight is not finite, or the files cannot be written.
    """
    for run in runs:
        refusal = f"{run.path} cannot be exported; train with a lower learning rate or clip_norm"
        check_finite(run.model, refusal)
    settings = ExportSettings(**keywords)
    check_search(replace(settings, precision="float32"), runs)
    with _aside(output) as aside:
        if form == "onnx":
            return _number(aside, ONNX_MANIFEST, _write_onnx(runs, aside, output, tell, settings))
        return _number(
            aside, SAVED_MANIFEST, _write_saved_model(runs, aside, output, tell, settings)
        )


def _write_saved_model(
    runs: Sequence[Run], folder: Path, output: Path, tell: ReportStage, settings: ExportSettings
) -> dict[str, Any]:
    """Write a SavedModel into a folder; return its manifest, which is not written: see `export`."""
    exported = _exported(runs, settings)
    manifest = _manifest(runs, settings.written(runs[0], "savedmodel"))
    compares = isinstance(exported, Exported) and settings.is_rounded
    tell("tracing the model", 0.05)
    with exporting():
        signatures = exported.signatures()
    if not manifest.get("sentences", True):
        signatures[TRANSLATE_LINES] = signatures["translate"]
    tell("writing the SavedModel", 0.3 if compares else 0.6)
    try:
        tf.saved_model.save(exported.module, str(folder), signatures=signatures)
        if compares:
            tell("comparing its translations with those in float32", 0.4)
            texts = _compared_sources(runs[0])
            plain = Exported(runs, replace(settings, precision="float32"))
            with exporting():
                translate = traced(plain.translate, {"text": ((None,), "string")})
            answers = (_translations(x, texts) for x in (translate, signatures["translate"]))
            manifest["agreement"] = _agreement(*answers)
        warmup = folder / "assets.extra" / "tf_serving_warmup_requests"
        warmup.parent.mkdir()
        _write_warmup(warmup, output.name, signatures, runs[0])
    except tf.errors.OpError as error:
        if "No space left" in error.message:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(output)) from error
        reason = re.sub(r"{{.*?}} ?", "", error.message.splitlines()[0])
        raise UserError(f"cannot write {output}: {reason}") from error
    return manifest


def _write_onnx(
    runs: Sequence[Run], folder: Path, output: Path, tell: ReportStage, settings: ExportSettings
) -> dict[str, Any]:
    """Write the ONNX graphs into a folder; return their manifest: see `export`."""
    from serving.portable.write._graphs import write_folder  # SavedModels need no onnx

    tell("writing the ONNX graphs", 0.5)
    card = _manifest(runs, settings.written(runs[0], "onnx"))
    try:
        manifest = write_folder(runs, folder, card, settings)
        if settings.is_rounded and (sources := _compared_sources(runs[0])):
            tell("comparing its answers with those in float32", 0.7)
            with tempfile.TemporaryDirectory() as plain:
                write_folder(runs, Path(plain), card, replace(settings, weights="float32"))
                folders = Path(plain), folder
                answers = [_local_answers(manifest["task"], sources, each) for each in folders]
            manifest["agreement"] = _agreement(*answers)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(output)) from error
    return manifest


def _number(aside: Path, name: str, manifest: dict[str, Any]) -> Path:
    """Write the manifest of a complete version and rename the version to the next free number.

    The manifest, a file called `name`, gets the SHA-256 of every other file. Returns the version's
    directory.
    """
    (aside / name).unlink(missing_ok=True)
    files = {}
    for path in sorted(each for each in aside.rglob("*") if each.is_file()):
        files[path.relative_to(aside).as_posix()] = sha256(path)
    text = json.dumps({**manifest, "files": files}, ensure_ascii=False, indent=1)
    (aside / name).write_text(text + "\n", encoding="utf-8")
    output = aside.parent.parent
    while True:
        try:
            return move(aside, output / str(_next_number(output)))
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def _next_number(output: Path) -> int:
    """Return the number after the largest version in a folder. Raises UserError."""
    numbers = (version_number(path.name) for path in output.iterdir())
    largest = max((number for number in numbers if number is not None), default=0)
    if largest == LARGEST_VERSION:
        raise UserError(
            f"{output} has version {largest}, the largest that servers find. Choose another "
            "--output, or remove that version"
        )
    return largest + 1


@contextlib.contextmanager
def _aside(output: Path) -> Iterator[Path]:
    """Yield an empty folder within a locked folder next to the versions, which is removed later."""
    for left in output.glob("writing-*"):  # leftovers of killed exports, which hold no lock
        if left.name.removeprefix("writing-").isdecimal() and not left.is_symlink():
            with contextlib.suppress(UserError), locked_folder(left, left):
                remove(left)
    # Not a process id: processes in two containers may have the same one.
    with locked_aside(output / f"writing-{uuid.uuid4().int}", output, wait=True) as aside:
        yield aside


def _exported(
    runs: Sequence[Run], settings: ExportSettings
) -> Exported | ExportedReader | ExportedPredictor:
    """Return the exported runs: a translator, a reader or a predictor, by the kind of source."""
    config = runs[0].config
    if SOURCE_KINDS[config.source].tokens:
        return Exported(runs, settings)
    if settings.precision != "float32":
        raise UserError(f"--precision works only for texts, and the run reads {config.source}")
    if config.target == "label":
        return ExportedPredictor(runs)
    return ExportedReader(runs, settings)


def _manifest(runs: Sequence[Run], settings: dict[str, Any]) -> dict:
    """Return the manifest: runs, settings, examples and versions of libraries, without files."""
    is_text = SOURCE_KINDS[runs[0].config.source].tokens
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "settings": settings,
        "examples": _examples(runs[0]),
        **({"sentences": _has_sentences(runs[0])} if is_text else {}),
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


def _write_warmup(path: Path, name: str, signatures: Mapping[str, Any], run: Run) -> None:
    """Write the warm-up requests that TensorFlow Serving runs before it serves a version."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for signature, function in signatures.items():
            request = predict_pb2.PredictRequest()
            request.model_spec.name = name
            request.model_spec.signature_name = signature
            if SOURCE_KINDS[run.config.source].tokens:
                inputs = dict.fromkeys(function.structured_input_signature[1], WARMUP_TEXTS)
            else:
                inputs = run.source.examples(2)
            for alias, values in inputs.items():
                request.inputs[alias].CopyFrom(tf.make_tensor_proto(values))
            log = prediction_log_pb2.PredictionLog(
                predict_log=prediction_log_pb2.PredictLog(request=request)
            )
            writer.write(log.SerializeToString())
