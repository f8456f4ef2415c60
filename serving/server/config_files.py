"""The server's text-format configuration files.

The stubs on PyPI have ModelServerConfig; the messages for batching, monitoring and TLS are
declared here.
"""

import dataclasses
import os
from pathlib import Path
from typing import TypeVar

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)
from google.protobuf.message import Message
from tensorflow_serving.config import model_server_config_pb2

from serving.savedmodel.status import Code, StatusError

DEFAULT_METRICS_PATH = "/monitoring/prometheus/metrics"
_FILE = """
name: "model_server/config.proto" package: "tensorflow.serving" syntax: "proto3"
dependency: "google/protobuf/wrappers.proto"
message_type {
  name: "SSLConfig"
  field { name: "server_key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "server_cert" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "custom_ca" number: 3 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "client_verify" number: 4 type: TYPE_BOOL label: LABEL_OPTIONAL }
}
message_type {
  name: "PrometheusConfig"
  field { name: "enable" number: 1 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "path" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
}
message_type {
  name: "MonitoringConfig"
  field {
    name: "prometheus_config" number: 1 type: TYPE_MESSAGE label: LABEL_OPTIONAL
    type_name: "PrometheusConfig"
  }
}
message_type {
  name: "BatchingParameters"
  field {
    name: "max_batch_size" number: 1 type: TYPE_MESSAGE label: LABEL_OPTIONAL
    type_name: ".google.protobuf.Int64Value"
  }
  field {
    name: "batch_timeout_micros" number: 2 type: TYPE_MESSAGE label: LABEL_OPTIONAL
    type_name: ".google.protobuf.Int64Value"
  }
  field {
    name: "max_enqueued_batches" number: 3 type: TYPE_MESSAGE label: LABEL_OPTIONAL
    type_name: ".google.protobuf.Int64Value"
  }
  field {
    name: "num_batch_threads" number: 4 type: TYPE_MESSAGE label: LABEL_OPTIONAL
    type_name: ".google.protobuf.Int64Value"
  }
  field {
    name: "thread_pool_name" number: 5 type: TYPE_MESSAGE label: LABEL_OPTIONAL
    type_name: ".google.protobuf.StringValue"
  }
  field { name: "allowed_batch_sizes" number: 6 type: TYPE_INT64 label: LABEL_REPEATED }
  field { name: "pad_variable_length_inputs" number: 7 type: TYPE_BOOL label: LABEL_OPTIONAL }
}
"""

M = TypeVar("M", bound=Message)


def _build() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(text_format.Parse(_FILE, descriptor_pb2.FileDescriptorProto()))
    return pool


_pool = _build()


def _message(name: str) -> type[Message]:
    return message_factory.GetMessageClass(
        _pool.FindMessageTypeByName(f"tensorflow.serving.{name}")
    )


def _read(path: Path, message: M) -> M:
    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), message)
    except (text_format.ParseError, UnicodeDecodeError) as error:
        name = message.DESCRIPTOR.full_name
        raise StatusError(
            Code.INVALID_ARGUMENT,
            f"Invalid protobuf file: '{path}' (Error parsing text-format {name}: {error})",
        ) from error


@dataclasses.dataclass(frozen=True)
class Batching:
    """How requests of several clients are run together; sizes count rows of the batch."""

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = os.cpu_count() or 1
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False

    def __post_init__(self) -> None:
        for name in ("max_batch_size", "max_enqueued_batches", "num_batch_threads"):
            if getattr(self, name) < 1:
                raise StatusError(
                    Code.INVALID_ARGUMENT, f"{name} must be positive; was {getattr(self, name)}"
                )
        if self.batch_timeout_micros < 0:
            raise StatusError(
                Code.INVALID_ARGUMENT,
                f"batch_timeout_micros must be non-negative; was {self.batch_timeout_micros}",
            )
        sizes = self.allowed_batch_sizes
        if list(sizes) != sorted(set(sizes)) or any(size < 1 for size in sizes):
            raise StatusError(
                Code.INVALID_ARGUMENT,
                "allowed_batch_sizes entries must be positive and in increasing order; were "
                f"{list(sizes)}",
            )
        if sizes and sizes[-1] != self.max_batch_size:
            raise StatusError(
                Code.INVALID_ARGUMENT,
                "Last entry in allowed_batch_sizes must match max_batch_size; last entry was "
                f"{sizes[-1]}; expected {self.max_batch_size}",
            )


def read_batching(path: Path | None) -> Batching:
    """Batching parameters of a file, the defaults where there is none. Raises StatusError."""
    if path is None:
        return Batching()
    message = _read(path, _message("BatchingParameters")())
    given = {
        field.name: getattr(message, field.name).value
        for field, _ in message.ListFields()
        if field.message_type and field.name != "thread_pool_name"
    }
    return Batching(
        **given,
        allowed_batch_sizes=tuple(message.allowed_batch_sizes),
        pad_variable_length_inputs=message.pad_variable_length_inputs,
    )


def read_metrics_path(path: Path | None) -> str | None:
    """Where metrics are served, or None where the monitoring file does not enable them."""
    if path is None:
        return None
    config = _read(path, _message("MonitoringConfig")()).prometheus_config
    return (config.path or DEFAULT_METRICS_PATH) if config.enable else None


def read_ssl(path: Path) -> Message:
    """SSLConfig with `server_key`, `server_cert`, `custom_ca` (PEM texts) and `client_verify`."""
    return _read(path, _message("SSLConfig")())


def read_models(path: Path) -> model_server_config_pb2.ModelServerConfig:
    """ModelServerConfig of a file. Raises StatusError or OSError."""
    return _read(path, model_server_config_pb2.ModelServerConfig())
