"""Warm-up: recorded requests are replayed before a version becomes available."""

import logging
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError, Message

from serving.client.protobuf import message
from serving.savedmodel.status import Code, StatusError, invalid
from serving.server.api import INFERENCE
from serving.server.call import Call
from serving.server.monitoring import Metrics
from serving.server.predict import DEFAULT_SIGNATURE
from serving.server.servable import Servable
from serving.server.tensors import DTYPES, packed

RECORDS = Path("assets.extra") / "tf_serving_warmup_requests"
_MOST_RECORDS = 1000
_MOST_WARM_VALUES = 10_000_000
_INIT_SIGNATURE = "__saved_model_init_op"
_LOGS = {
    "predict_log": "Predict",
    "classify_log": "Classify",
    "regress_log": "Regress",
    "multi_inference_log": "MultiInference",
}
_PredictionLog = message("PredictionLog")

log = logging.getLogger(__name__)


def read_records(version_dir: Path) -> Iterator[Message]:
    """The warm-up records of a version, if it has any.

    Raises StatusError for a damaged file, and for more than a thousand records.
    """
    path = version_dir / RECORDS
    if not path.is_file():
        return
    import tensorflow as tf  # takes seconds, and few models have records without it

    try:
        for number, record in enumerate(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()):
            if number == _MOST_RECORDS:
                raise invalid(
                    f"Number of warmup records exceeeds the maximum ({_MOST_RECORDS}) at {path}",
                )
            yield _PredictionLog.FromString(record)
    except (tf.errors.DataLossError, DecodeError) as error:
        raise StatusError(
            Code.DATA_LOSS, f"Failed to read warmup record: {path} may be corrupted ({error})"
        ) from error


def replay(servable: Servable, record: Message) -> None:
    """Send a record to the model. Raises StatusError if it fails."""
    kind = record.WhichOneof("log_type")
    if kind not in _LOGS:
        raise StatusError(Code.UNIMPLEMENTED, f"Unsupported log_type for warmup: {kind}")
    _, answer = INFERENCE[_LOGS[kind]]
    call = Call()
    call.apart = True
    answer(servable, getattr(record, kind).request, call)


def warm_up(servable: Servable, version_dir: Path, metrics: Metrics) -> None:
    """Replay all records, then run each remaining signature once.

    The first run of a signature takes seconds. It also fixes the memory layout of matrix products
    for its sizes: a record has a client's sizes, zeros have not. Raises StatusError for the first
    record that fails.
    """
    started = time.perf_counter()
    warm = {_INIT_SIGNATURE}
    for record in read_records(version_dir):
        replay(servable, record)
        warm |= _signatures(record)
    for name, signature in servable.signatures.items():
        if name not in warm:
            _run_once(servable, name, signature)
    took = time.perf_counter() - started
    metrics.observe("model_warmup_latency", took, model_path=str(version_dir), status="OK")


def _signatures(record: Message) -> set[str]:
    """The signatures that a record runs."""
    request = getattr(record, record.WhichOneof("log_type")).request
    asked = getattr(request, "tasks", None) or [request]
    return {one.model_spec.signature_name or DEFAULT_SIGNATURE for one in asked}


def _run_once(servable: Servable, name: str, signature: Message) -> None:
    """Run a signature on one row of zeros, or of an empty text."""
    inputs = {}
    for alias, info in signature.inputs.items():
        sizes = [dim.size if dim.size > 0 else 1 for dim in info.tensor_shape.dim]
        if info.dtype not in DTYPES or math.prod(sizes) > _MOST_WARM_VALUES:
            return
        zeros = np.zeros(sizes, DTYPES[info.dtype].numpy)
        inputs[alias] = packed(zeros if zeros.dtype != object else np.full(sizes, b"", object))
    try:
        servable.model.run(name, inputs)
    except StatusError as error:
        # A model may refuse zeros; its graph is prepared anyway.
        log.info("Warming up the signature %s: %s", name, error.message[:200])
