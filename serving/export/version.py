"""A new version of a model that can be served, made of a run or of an ensemble of several."""

from __future__ import annotations

import training.command.startup  # noqa: F401

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from keras_attention import exporting
from serving.check.stored_weights import count_not_finite
from serving.export.agreement import agreement, compared_sources, is_rounded, local_agreement
from serving.export.examples import examples
from serving.export.readers import ExportedPredictor, ExportedReader
from serving.export.texts import INPUTS, WARMUP_TEXTS, Exported, search_settings_of
from training.command.errors import UserError
from training.command.files import move, remove, remove_empty
from training.command.progress import Tell
from training.runs.files import kept, read_history
from training.runs.run import Run
from training.sources.kinds import KINDS

MANIFEST = "assets.extra/manifest.json"
_READER_SETTINGS = ("beam_width", "num_results", "length_penalty")
# The share of an export's time after which each begins: 7 million weights on two cores.
_TRACING, _WRITING, _COMPARING = 0.1, 0.6, 0.35


def export(
    runs: Sequence[Run],
    output: Path,
    *,
    tell: Tell = lambda what, share=None: None,
    form: str = "savedmodel",
    **settings: Any,
) -> Path:
    """Write a new version of a servable model.

    Args:
        runs: a run, or several that are used as an ensemble.
        output: the model's base path; versions are numbered directories in it.
        tell: is called with what is done next, see `training.command.progress.stages`.
        form: "savedmodel" or "onnx".
        **settings: see `Exported`; for ONNX `weights` may be "int8", and
            `tables` False, see `serving.export.onnx.products`.

    Returns:
        The version's directory. It is written beside the versions and renamed when it is whole, so
        that a server never sees half of it. Where the export fails, nothing is left of it.

    Raises:
        UserError: if a weight is not finite, or the files cannot be written.
    """
    check_finite(runs)
    search_settings_of({**settings, "precision": "float32"}).check(runs)
    if form == "onnx":
        return _export_onnx(runs, output, tell, settings)
    with _aside(output) as aside:
        settings = _settings_of(runs[0], settings)
        module, manifest = _module(runs, settings), _manifest(runs, settings)
        compares = isinstance(module, Exported) and is_rounded(settings)
        scale = _COMPARING if compares else 1.0
        tell("tracing the model", _TRACING * scale)
        with exporting():
            signatures = module.signatures()
        tell("writing the SavedModel", _WRITING * scale)
        try:
            tf.saved_model.save(module, str(aside), signatures=signatures)
            if compares:
                tell_on = _after(tell, _COMPARING)
                compared = compared_sources(runs[0]), signatures["translate"], settings
                manifest["agreement"] = agreement(runs, *compared, tell_on)
            extra = aside / "assets.extra"
            extra.mkdir()
            (aside / MANIFEST).write_text(json.dumps(manifest, indent=1))
            warmup = extra / "tf_serving_warmup_requests"
            _write_warmup(warmup, output.name, signatures, runs[0])
        except tf.errors.OpError as error:
            raise UserError(f"cannot write {output}: {error.message.splitlines()[0]}") from error
        return _number(aside)


def _export_onnx(runs: Sequence[Run], output: Path, tell: Tell, settings: dict[str, Any]) -> Path:
    """Write a new version as ONNX graphs: see `export`."""
    # Others need no onnx.
    from serving.export.onnx.folder import check_exports, write_folder, write_manifest

    check_exports(runs, settings)
    settings = {**vars(search_settings_of(settings)), **settings}
    settings = _settings_of(runs[0], settings, "weights")
    with _aside(output) as aside:
        tell("writing the ONNX graphs", 0.5)
        aside.mkdir()
        card = _manifest(runs, settings)
        try:
            write_folder(runs, aside, settings, card)
            if is_rounded(settings) and (sources := compared_sources(runs[0])):
                tell("comparing its answers with those in float32", 0.7)
                with tempfile.TemporaryDirectory() as plain:
                    write_folder(runs, Path(plain), {**settings, "weights": "float32"}, card)
                    difference = local_agreement(runs[0], sources, Path(plain), aside)
                write_manifest(aside, {"agreement": difference})
        except OSError as error:
            raise UserError(f"cannot write {output}: {error.strerror}") from error
        return _number(aside)


def _after(tell: Tell, share: float) -> Tell:
    """Return a function that tells of what comes after a share of the whole."""
    return lambda what, done=None: tell(what, share + (1 - share) * (done or 0.0))


def _number(aside: Path) -> Path:
    """Give a whole version its number."""
    output = aside.parent
    version = max((int(p.name) for p in output.iterdir() if p.name.isdecimal()), default=0) + 1
    return move(aside, output / str(version))


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
    missing = [path for path in (output, *output.parents) if not path.exists()]
    output.mkdir(parents=True, exist_ok=True)
    for left in output.glob("writing-*"):  # by exports that were killed
        number = left.name.removeprefix("writing-")
        if number.isdecimal() and not _is_alive(int(number)):
            remove(left)
    aside = output / f"writing-{os.getpid()}"
    try:
        yield aside
    finally:
        remove(aside)
        remove_empty(missing)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def _module(
    runs: Sequence[Run], settings: dict[str, Any]
) -> Exported | ExportedReader | ExportedPredictor:
    """Return what is saved of runs, by what they read."""
    config = runs[0].config
    if KINDS[config.source].tokens:
        return Exported(runs, **settings)
    if settings.get("precision", "float32") != "float32":
        raise UserError(f"--precision expected runs with source = text. Received: {config.source}")
    if config.target == "label":
        return ExportedPredictor(runs)
    return ExportedReader(runs, **settings)


def _settings_of(run: Run, settings: dict[str, Any], *more: str) -> dict[str, Any]:
    """Return the settings that an export of what the run reads and says has."""
    if KINDS[run.config.source].tokens:
        return settings
    keys = more if run.config.target == "label" else (*_READER_SETTINGS, *more)
    return {key: settings[key] for key in keys if key in settings}


def _manifest(runs: Sequence[Run], settings: dict) -> dict:
    """Return what the version was made of."""
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
            if KINDS[run.config.source].tokens:
                inputs = dict.fromkeys(INPUTS[signature], WARMUP_TEXTS)
            else:
                inputs = run.source.examples(2)
            for alias, values in inputs.items():
                request.inputs[alias].CopyFrom(tf.make_tensor_proto(values))
            log = prediction_log_pb2.PredictionLog(
                predict_log=prediction_log_pb2.PredictLog(request=request)
            )
            writer.write(log.SerializeToString())
