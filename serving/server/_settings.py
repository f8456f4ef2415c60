"""Flags of the server (the stock server's and its own), and readers of the files they name."""

import argparse
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from serving.loaded._status import invalid
from training.command.options import Parser, between, count, port, positive_int

if TYPE_CHECKING:
    import grpc

_INT32 = 2**31 - 1  # the largest number that gRPC and the stock server take
_DAY = 86_400
METRICS = "/monitoring/prometheus/metrics"
_WAIT = between(0, _INT32)
_LIMITS = (
    ("max_request_rows", 1000, "N", positive_int, "rows of a request"),
    ("max_request_positions", 100_000, "N", positive_int, "positions, such as events, in all rows"),
    ("max_request_bytes", 100 * 2**20, "BYTES", between(1, _INT32), "of a request"),
    ("max_request_seconds", 120, "SECONDS", between(1, _DAY), "most for a request"),
    ("max_waiting_requests", 960, "N", count, "requests waiting, in addition to 64 running"),
    ("shutdown_grace_seconds", 30, "SECONDS", between(0, _DAY), "for running requests, on SIGTERM"),
)


def _boolean(text: str) -> bool:
    values = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"needs true or false, but it is {text!r}")
    return values[text.lower()]


def _origins(text: str) -> list[str]:
    if wrong := [each for each in text.split(",") if not re.fullmatch(r"\*|https?://[^/]+", each)]:
        raise argparse.ArgumentTypeError(f"needs https://HOST or *, but it is {wrong[0]!r}")
    return text.split(",")


_names = partial(str.split, sep=",")
_SWITCH: dict[str, Any] = {"type": _boolean, "nargs": "?", "const": True}
_Flag = tuple[str, Any, str, Any, str]  # name, default, metavar, type or settings, help
_STOCK: tuple[_Flag, ...] = (
    ("port", 8500, "PORT", port, "TCP port of gRPC; 0 takes any free port"),
    ("host", "127.0.0.1", "ADDRESS", str, "to listen on; 0.0.0.0 lets other machines in"),
    ("rest_api_port", 0, "PORT", port, "TCP port of REST and metrics; 0 turns them off"),
    ("model_name", "default", "NAME", str, "name of the model (not with --model_config_file)"),
    ("model_base_path", None, "PATH", Path, "directory of the model's numbered versions"),
    ("rest_api_cors_origins", [], "ORIGIN,…", _origins, "whose web pages may call REST; * for all"),
    ("rest_api_hosts", [], "NAME,…", _names, "further names by which clients call REST"),
    ("rest_api_trusted_proxies", [], "ADDRESS,…", _names, "proxies that set X-Forwarded-For"),
    ("monitoring_config_file", None, "FILE", Path, "text MonitoringConfig: path of the metrics"),
    ("model_config_file", None, "FILE", Path, "text ModelServerConfig: several models, versions"),
    ("model_config_file_poll_wait_seconds", 0, "SECONDS", _WAIT, "between reads; 0 reads once"),
    ("file_system_poll_wait_seconds", 1, "SECONDS", _WAIT, "between searches; 0 searches once"),
    ("enable_batching", False, "true|false", _SWITCH, "run requests of several clients together"),
    ("batching_parameters_file", None, "FILE", Path, "text BatchingParameters"),
    ("ssl_config_file", None, "FILE", Path, "text SSLConfig: TLS for gRPC"),
)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the server's flags. A switch without a value, `--flag`, means true."""
    parser = Parser(
        prog="python -m serving.server",
        description="Serves SavedModels and ONNX exports with TensorFlow Serving's protocol and "
        "flags: for this machine, tests and small services.",
        examples=(
            "--port=8500 --model_name=en-fr --model_base_path=$PWD/models/en-fr",
            "--rest_api_port=8501 --model_config_file=models.config --enable_batching",
        ),
        usage="%(prog)s --model_base_path=PATH [--FLAG=VALUE ...]\n"
        "       %(prog)s --model_config_file=FILE [--FLAG=VALUE ...]",
        allow_abbrev=False,
    )
    limits = parser.add_argument_group("limits (not of the stock server)")
    for group, flags in ((parser, _STOCK), (limits, _LIMITS)):
        for name, default, metavar, kind, text in flags:
            settings = kind if isinstance(kind, dict) else {"type": kind}
            more = {"default": default, "metavar": metavar, "help": text, **settings}
            group.add_argument(f"--{name}", **more)
    return parser


def _read(path: Path, name: str) -> Any:
    """Return the protocol message of type `name` that a text file holds.

    Raises StatusError or OSError.
    """
    from google.protobuf import text_format  # --help needs none of it

    from serving.client import serving_pb2

    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), getattr(serving_pb2, name)())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise invalid(
            f"Invalid protobuf file: '{path}' (Error parsing text-format tensorflow.serving.{name}:"
            f" {error})"
        ) from error


@dataclass(frozen=True)
class Batching:
    """Parameters of batching; `max_batch_size` counts rows."""

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    num_batch_threads: int = os.cpu_count() or 1


def read_batching(path: Path | None, is_enabled: bool) -> Batching | None:
    """Return the batching parameters of a file, or the defaults; None if batching is not enabled.

    Raises StatusError or OSError.
    """
    values = {}
    for field, value in _read(path, "BatchingParameters").ListFields() if path else ():
        values[field.name] = value.value
        if value.value < (0 if field.name == "batch_timeout_micros" else 1):
            raise invalid(f"{path}: {field.name} must be positive; was {value.value}")
    values.pop("max_enqueued_batches", None)  # --max_waiting_requests replaces it
    if path and not is_enabled:
        message = "--batching_parameters_file has no effect without batching."
        raise invalid(f"{message} Add --enable_batching=true")
    return Batching(**values) if is_enabled else None


def read_metrics_path(path: Path | None) -> str:
    """Return the path of the metrics page, "" if disabled. Raises StatusError or OSError."""
    config = _read(path, "MonitoringConfig").prometheus_config if path else None
    return METRICS if config is None else (config.path or METRICS) if config.enable else ""


def read_models(path: Path) -> Sequence[Any]:
    """Return the ModelConfigs of a ModelServerConfig file. Raises StatusError or OSError."""
    models = _read(path, "ModelServerConfig").model_config_list.config
    if not models:
        raise invalid(f"Expected a model_config_list in '{path}', and it has none")
    names = [model.name for model in models]
    for model in models:
        if names.count(model.name) > 1:
            raise invalid(f"Illegal to list model {model.name} multiple times in config list")
        absolute = Path(model.base_path).is_absolute() and "\0" not in model.base_path
        if not absolute or model.model_platform != "tensorflow":
            raise invalid(
                f"Expected model {model.name} to have an absolute base_path and model_platform: "
                f'"tensorflow". Received: "{model.base_path}", "{model.model_platform}"'
            )
    return models


def read_credentials(path: Path | None) -> "grpc.ServerCredentials | None":
    """Return the credentials of an SSLConfig file, None without a file.

    Raises StatusError or OSError if the file or a certificate is not valid.
    """
    if path is None:
        return None
    import ssl

    import grpc

    config = _read(path, "SSLConfig")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # ssl reads certificates from files only. Only the owner can read this file.
    with tempfile.NamedTemporaryFile() as file:
        file.write(f"{config.server_key}\n{config.server_cert}".encode())
        file.flush()
        try:
            if config.custom_ca or config.client_verify:
                context.load_verify_locations(cadata=config.custom_ca)
            # Without a password, ssl would ask on the terminal for an encrypted key's password.
            context.load_cert_chain(file.name, password=lambda: "")
        except (ssl.SSLError, ValueError) as error:
            raise invalid(f"certificate not valid in '{path}': {error}") from error
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )
