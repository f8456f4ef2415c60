"""The flags of the stock server that this one understands, and its own."""

import argparse
from pathlib import Path
from typing import Any

from training.command.options import Parser, between, count, port, positive_int

_INT32 = 2**31 - 1  # the largest number that gRPC and the stock server take
_DAY = 86_400


def _boolean(text: str) -> bool:
    values = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"expected true or false. Received: {text!r}")
    return values[text.lower()]


_SWITCH: dict[str, Any] = {"type": _boolean, "nargs": "?", "const": True}
_WAIT, _SIZE = between(0, _INT32), between(1, _INT32)
_STOCK = (  # name, default, metavar, type or settings, help
    ("port", 8500, "PORT", port, "TCP port of gRPC; 0 takes any that is free"),
    ("host", "127.0.0.1", "ADDRESS", str, "to listen on; 0.0.0.0 lets other machines in"),
    ("rest_api_port", 0, "PORT", port, "TCP port of REST; 0 for none"),
    ("rest_api_timeout_in_ms", 30000, "MS", _SIZE, "time of a REST request"),
    ("model_name", "default", "NAME", str, "name of the model (not with --model_config_file)"),
    ("model_base_path", None, "PATH", Path, "directory of the model's numbered versions"),
    ("model_config_file", None, "FILE", Path, "text ModelServerConfig: several models, versions"),
    ("model_config_file_poll_wait_seconds", 0, "SECONDS", _WAIT, "between reads of it; 0: one"),
    ("file_system_poll_wait_seconds", 1, "SECONDS", _WAIT, "between looks for versions; 0: one"),
    ("enable_batching", False, "true|false", _SWITCH, "run requests of several clients together"),
    ("batching_parameters_file", None, "FILE", Path, "text BatchingParameters"),
    ("monitoring_config_file", None, "FILE", Path, "text MonitoringConfig: metrics, on REST"),
    ("ssl_config_file", None, "FILE", Path, "text SSLConfig: TLS for gRPC"),
    ("enable_grpc_healthcheck_service", False, "true|false", _SWITCH, "serve grpc.health.v1"),
)
_LIMITS = (
    ("max_request_rows", 1000, "N", positive_int, "rows of a request"),
    ("max_request_bytes", 100 * 2**20, "BYTES", _SIZE, "of a request"),
    ("max_request_seconds", 120, "SECONDS", between(1, _DAY), "of a request, client or none"),
    ("max_waiting_requests", 960, "N", count, "that wait for one of 64 threads, not refused"),
    ("shutdown_grace_seconds", 30, "SECONDS", between(0, _DAY), "for requests, on SIGTERM"),
)


def build_parser() -> argparse.ArgumentParser:
    """Parser of the server's command line; `--flag` alone means true, as `--flag=true` does."""
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
