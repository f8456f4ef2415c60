"""Warm-up: requests recorded with a model that are replayed before it is available."""

import time
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import prediction_log_pb2

from serving.model_server import examples
from serving.model_server.metrics import Metrics
from serving.model_server.predict import predict
from serving.model_server.servable import Servable
from serving.status import Code, StatusError

RECORDS = Path("assets.extra") / "tf_serving_warmup_requests"
_MOST_RECORDS = 1000


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
            predict(servable, record.predict_log.request)
        case "classify_log":
            examples.classify(servable, record.classify_log.request)
        case "regress_log":
            examples.regress(servable, record.regress_log.request)
        case "multi_inference_log":
            examples.multi_inference(servable, record.multi_inference_log.request)
        case kind:
            raise StatusError(Code.UNIMPLEMENTED, f"Unsupported log_type for warmup: {kind}")


def warm_up(servable: Servable, version_dir: Path, metrics: Metrics) -> None:
    """Replay all records. Raises StatusError on the first that fails."""
    started = time.perf_counter()
    for record in read_records(version_dir):
        replay(servable, record)
    took = time.perf_counter() - started
    metrics.observe("model_warmup_latency", took, model_path=str(version_dir), status="OK")
