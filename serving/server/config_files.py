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
from google.protobuf.message import Message

from serving.client import serving_pb2
from serving.savedmodel.status import invalid

_METRICS_PATH = "/monitoring/prometheus/metrics"
_PLATFORM = "tensorflow"


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
    config = _read(path, "ModelServerConfig")
    if config.WhichOneof("config") != "model_config_list":
        raise invalid(f"Expected a model_config_list in '{path}', and it has none")
    models = config.model_config_list.config
    for number, model in enumerate(models):
        if any(other.name == model.name for other in models[:number]):
            raise invalid(f"Illegal to list model {model.name} multiple times in config list")
        if not Path(model.base_path).is_absolute():
            raise invalid(
                f"Expected model {model.name} to have an absolute path or URI; got "
                f"base_path()={model.base_path}"
            )
        if model.model_platform != _PLATFORM:
            raise invalid(
                f'Expected model_platform "{_PLATFORM}" of model {model.name}; got '
                f'"{model.model_platform}"'
            )
    return models


def one_model(name: str, base_path: Path) -> Message:
    """The ModelConfig of a model whose newest version is served."""
    return serving_pb2.ModelConfig(name=name, base_path=str(base_path.resolve()))


def read_credentials(path: Path) -> grpc.ServerCredentials:
    """Credentials of the SSLConfig at `path`.

    Raises StatusError or OSError if the file or a certificate is not valid.
    """
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
    # ssl reads certificates from files alone; only the owner can read these.
    with tempfile.NamedTemporaryFile() as cert, tempfile.NamedTemporaryFile() as key:
        for file, text in ((cert, config.server_cert), (key, config.server_key)):
            file.write(text.encode())
            file.flush()
        # Without this, an encrypted key would ask for its password on the terminal.
        context.load_cert_chain(cert.name, key.name, password=lambda: "")
