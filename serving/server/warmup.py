"""Warm-up: requests recorded with a model that are replayed before it is available."""

import logging
import math
import time
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import tensor_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow_serving.apis import prediction_log_pb2

from serving.savedmodel.status import Code, StatusError
from serving.savedmodel.tensors import FIELDS
from serving.server import examples
from serving.server.call import Call
from serving.server.monitoring import Metrics
from serving.server.predict import DEFAULT_SIGNATURE, predict
from serving.server.servable import Servable

RECORDS = Path("assets.extra") / "tf_serving_warmup_requests"
_MOST_RECORDS = 1000
_MOST_WARM_VALUES = 10_000_000
_INIT_SIGNATURE = "__saved_model_init_op"

log = logging.getLogger(__name__)


def read_records(version_dir: Path) -> Iterator[prediction_log_pb2.PredictionLog]:
    """The warm-up records of a model version; none where it has none.

    Raises StatusError where the file is damaged or has more than a thousand.
    """
    path = version_dir / RECORDS
    if not path.is_file():
        return
    try:
        for number, record in enumerate(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()):
            if number == _MOST_RECORDS:
                raise StatusError(
                    Code.INVALID_ARGUMENT,
                    f"Number of warmup records exceeeds the maximum ({_MOST_RECORDS}) at {path}",
                )
            yield prediction_log_pb2.PredictionLog.FromString(record)
    except (tf.errors.DataLossError, DecodeError) as error:
        raise StatusError(
            Code.DATA_LOSS, f"Failed to read warmup record: {path} may be corrupted ({error})"
        ) from error


def replay(servable: Servable, record: prediction_log_pb2.PredictionLog) -> None:
    """Send one record to the model. Raises StatusError where it fails."""
    match record.WhichOneof("log_type"):
        case "predict_log":
            predict(servable, record.predict_log.request, Call())
        case "classify_log":
            examples.classify(servable, record.classify_log.request, Call())
        case "regress_log":
            examples.regress(servable, record.regress_log.request, Call())
        case "multi_inference_log":
            examples.multi_inference(servable, record.multi_inference_log.request, Call())
        case kind:
            raise StatusError(Code.UNIMPLEMENTED, f"Unsupported log_type for warmup: {kind}")


def warm_up(servable: Servable, version_dir: Path, metrics: Metrics) -> None:
    """Replay all records, then run every signature once that none of them asked for.

    The first run of a signature takes seconds, for which its first client would wait. It also
    settles how the kernels of products are laid out in memory, for the sizes that it has: those of
    a record are like a client's, those of zeros are not. Raises StatusError on the first record
    that fails.
    """
    started = time.perf_counter()
    warm = {_INIT_SIGNATURE}
    for record in read_records(version_dir):
        replay(servable, record)
        warm |= _signatures(record)
    for name, signature in servable.session.signatures.items():
        if name not in warm:
            _run_once(servable, name, signature)
    took = time.perf_counter() - started
    metrics.observe("model_warmup_latency", took, model_path=str(version_dir), status="OK")


def _signatures(record: prediction_log_pb2.PredictionLog) -> set[str]:
    """The signatures that a record runs."""
    request = getattr(record, record.WhichOneof("log_type")).request
    asked = getattr(request, "tasks", None) or [request]
    return {one.model_spec.signature_name or DEFAULT_SIGNATURE for one in asked}


def _run_once(servable: Servable, name: str, signature: meta_graph_pb2.SignatureDef) -> None:
    """Run a signature on one row of zeros, or of an empty text."""
    inputs = {}
    for alias, info in signature.inputs.items():
        sizes = [dim.size if dim.size > 0 else 1 for dim in info.tensor_shape.dim]
        proto = inputs[alias] = tensor_pb2.TensorProto(dtype=info.dtype)
        if (field := FIELDS.get(tf.dtypes.as_dtype(info.dtype))) is None:
            return
        if math.prod(sizes) > _MOST_WARM_VALUES:
            return
        for size in sizes:
            proto.tensor_shape.dim.add(size=size)
        zero = b"" if field == "string_val" else False if field == "bool_val" else 0
        per_value = 2 if field in ("scomplex_val", "dcomplex_val") else 1
        getattr(proto, field).extend([zero] * math.prod(sizes) * per_value)
    try:
        servable.session.run(signature, inputs)
    except StatusError as error:
        # Zeros need not make sense to a model; its graph is prepared all the same.
        log.info("Warming up the signature %s: %s", name, error.message[:200])
