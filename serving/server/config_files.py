"""The server's text-format configuration files."""

import dataclasses
import os
from pathlib import Path

from google.protobuf import text_format
from google.protobuf.message import Message

from serving.client.protobuf import message
from serving.savedmodel.status import invalid

DEFAULT_METRICS_PATH = "/monitoring/prometheus/metrics"


def _read(path: Path, name: str) -> Message:
    """The message of that name in a file."""
    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), message(name)())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise invalid(
            f"Invalid protobuf file: '{path}' (Error parsing text-format tensorflow.serving.{name}:"
            f" {error})",
        ) from error


@dataclasses.dataclass(frozen=True)
class Batching:
    """Parameters of batching. Sizes count rows."""

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = os.cpu_count() or 1
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False

    def __post_init__(self) -> None:
        for name in ("max_batch_size", "max_enqueued_batches", "num_batch_threads"):
            if getattr(self, name) < 1:
                raise invalid(f"{name} must be positive; was {getattr(self, name)}")
        if self.batch_timeout_micros < 0:
            raise invalid(
                f"batch_timeout_micros must be non-negative; was {self.batch_timeout_micros}",
            )
        sizes = self.allowed_batch_sizes
        if list(sizes) != sorted(set(sizes)) or any(size < 1 for size in sizes):
            raise invalid(
                "allowed_batch_sizes entries must be positive and in increasing order; were "
                f"{list(sizes)}",
            )
        if sizes and sizes[-1] != self.max_batch_size:
            raise invalid(
                "Last entry in allowed_batch_sizes must match max_batch_size; last entry was "
                f"{sizes[-1]}; expected {self.max_batch_size}",
            )


def read_batching(path: Path | None) -> Batching:
    """Batching parameters of a file, or the defaults. Raises StatusError."""
    if path is None:
        return Batching()
    found = _read(path, "BatchingParameters")
    given = {
        field.name: getattr(found, field.name).value
        for field, _ in found.ListFields()
        if field.message_type and field.name != "thread_pool_name"
    }
    return Batching(
        **given,
        allowed_batch_sizes=tuple(found.allowed_batch_sizes),
        pad_variable_length_inputs=found.pad_variable_length_inputs,
    )


def read_metrics_path(path: Path | None) -> str | None:
    """The path of the metrics, or None if the monitoring file does not enable them."""
    if path is None:
        return None
    config = _read(path, "MonitoringConfig").prometheus_config
    return (config.path or DEFAULT_METRICS_PATH) if config.enable else None


def read_ssl(path: Path) -> Message:
    """SSLConfig with `server_key`, `server_cert`, `custom_ca` (PEM texts) and `client_verify`."""
    return _read(path, "SSLConfig")


def read_models(path: Path) -> Message:
    """ModelServerConfig of a file. Raises StatusError or OSError."""
    return _read(path, "ModelServerConfig")
