"""The server's text-format configuration files, and the certificates in one of them."""

import os
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import text_format

from serving.client import serving_pb2
from serving.savedmodel.status import invalid

_METRICS_PATH = "/monitoring/prometheus/metrics"


def _read(path: Path, name: str) -> Any:
    """The message of that name in a file."""
    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), getattr(serving_pb2, name)())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise invalid(
            f"Invalid protobuf file: '{path}' (Error parsing text-format tensorflow.serving.{name}:"
            f" {error})",
        ) from error


@dataclass(frozen=True)
class Batching:
    """Parameters of batching. Sizes count rows."""

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = os.cpu_count() or 1


def read_batching(path: Path | None) -> Batching:
    """Batching parameters of a file, or the defaults. Raises StatusError or OSError."""
    if path is None:
        return Batching()
    values = {}
    for field, value in _read(path, "BatchingParameters").ListFields():
        values[field.name] = value.value
        if value.value < (0 if field.name == "batch_timeout_micros" else 1):
            raise invalid(f"{path}: {field.name} must be positive; was {value.value}")
    return Batching(**values)


def read_metrics_path(path: Path | None) -> str | None:
    """The path of the metrics page, or None if the monitoring file does not enable it."""
    if path is None:
        return None
    config = _read(path, "MonitoringConfig").prometheus_config
    return (config.path or _METRICS_PATH) if config.enable else None


def read_models(path: Path) -> Sequence[Any]:
    """The ModelConfigs of a ModelServerConfig file. Raises StatusError or OSError."""
    models = _read(path, "ModelServerConfig").model_config_list.config
    if not models:
        raise invalid(f"Expected a model_config_list in '{path}', and it has none")
    names = [model.name for model in models]
    for number, model in enumerate(models):
        if model.name in names[:number]:
            raise invalid(f"Illegal to list model {model.name} multiple times in config list")
        if not Path(model.base_path).is_absolute() or model.model_platform != "tensorflow":
            raise invalid(
                f"Expected model {model.name} to have an absolute base_path and model_platform: "
                f'"tensorflow". Received: "{model.base_path}", "{model.model_platform}"'
            )
    return models


def read_credentials(path: Path | None) -> grpc.ServerCredentials | None:
    """Credentials of an SSLConfig, None without one.

    Raises StatusError or OSError if the file or a certificate is not valid.
    """
    if path is None:
        return None
    config = _read(path, "SSLConfig")
    try:
        _check_certificates(config)
    except (ssl.SSLError, ValueError) as error:
        raise invalid(f"certificate not valid in '{path}': {error}") from error
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )


def _check_certificates(config: Any) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if config.custom_ca:
        context.load_verify_locations(cadata=config.custom_ca)
    elif config.client_verify:
        raise ValueError("client_verify needs custom_ca")
    # ssl reads certificates from files alone; only the owner can read this one.
    with tempfile.NamedTemporaryFile() as file:
        file.write(f"{config.server_key}\n{config.server_cert}".encode())
        file.flush()
        # Without this, an encrypted key would ask for its password on the terminal.
        context.load_cert_chain(file.name, password=lambda: "")
