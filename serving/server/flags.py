"""The flags of the stock server that this one understands, and its own."""

import argparse
from collections.abc import Callable
from pathlib import Path

from training.command.parser import Parser, between, count, port, positive_int

_MOST_INT = 2**31 - 1  # of gRPC
_DAY = 86_400


def _boolean(text: str) -> bool:
    values = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"expected true or false. Received: {text!r}")
    return values[text.lower()]


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
    _add_stock_flags(parser)
    _add_limits(parser.add_argument_group("limits (not of the stock server)"))
    return parser


def _add_stock_flags(parser: argparse.ArgumentParser) -> None:
    def add(
        name: str, default: object, metavar: str, text: str, kind: Callable[[str], object] = str
    ) -> None:
        parser.add_argument(f"--{name}", type=kind, default=default, metavar=metavar, help=text)

    def switch(name: str, text: str) -> None:
        about = {"type": _boolean, "nargs": "?", "const": True, "default": False}
        parser.add_argument(f"--{name}", **about, metavar="true|false", help=text)  # type: ignore[arg-type]

    add("port", 8500, "PORT", "TCP port of gRPC; 0 takes any that is free", port)
    add("host", "127.0.0.1", "ADDRESS", "address to listen on; 0.0.0.0 lets other machines in")
    add("grpc_socket_path", None, "PATH", "also listen for gRPC at this UNIX socket", Path)
    add("rest_api_port", 0, "PORT", "TCP port of REST; 0 for none", port)
    most = between(0, _MOST_INT)  # the stock server has them as int32, too
    add("rest_api_timeout_in_ms", 30000, "MS", "time of a REST request", between(1, _MOST_INT))
    add("model_name", "default", "NAME", "name of the model (not with --model_config_file)")
    add("model_base_path", None, "PATH", "directory of the model's numbered versions", Path)
    text = "text ModelServerConfig: several models, versions"
    add("model_config_file", None, "FILE", text, Path)
    text = "between reads of it; 0 reads once"
    add("model_config_file_poll_wait_seconds", 0, "SECONDS", text, most)
    text = "between looks for versions; 0 looks once"
    add("file_system_poll_wait_seconds", 1, "SECONDS", text, most)
    text = "that the ops of all requests share; 0 is automatic"
    add("tensorflow_inter_op_parallelism", 0, "THREADS", text, count)
    text = "that an op may use; 0 is automatic, of ONNX exports one"
    add("tensorflow_intra_op_parallelism", 0, "THREADS", text, count)
    switch("enable_batching", "run requests of several clients together")
    add("batching_parameters_file", None, "FILE", "text BatchingParameters", Path)
    text = "text MonitoringConfig: where metrics are, on REST"
    add("monitoring_config_file", None, "FILE", text, Path)
    add("ssl_config_file", None, "FILE", "text SSLConfig: TLS for gRPC", Path)
    switch("enable_grpc_healthcheck_service", "serve grpc.health.v1")


def _add_limits(group: argparse._ArgumentGroup) -> None:
    def limit(
        name: str, default: int, metavar: str, text: str, kind: Callable[[str], object]
    ) -> None:
        group.add_argument(f"--{name}", type=kind, default=default, metavar=metavar, help=text)

    limit("max_request_rows", 1000, "N", "rows of a request", positive_int)
    text = "of a request, over gRPC and REST"
    limit("max_request_bytes", 100 * 2**20, "BYTES", text, between(1, _MOST_INT))
    text = "time of a request, also of one whose client has gone"
    limit("max_request_seconds", 120, "SECONDS", text, between(1, _DAY))
    text = "requests that wait for one of 64 threads; more are refused with RESOURCE_EXHAUSTED"
    limit("max_waiting_requests", 960, "N", text, count)
    text = "for requests under way on SIGTERM, at most a day; then they are stopped"
    limit("shutdown_grace_seconds", 30, "SECONDS", text, between(0, _DAY))
