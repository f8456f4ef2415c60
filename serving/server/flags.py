"""The flags of the stock server that this one understands, and its own."""

import argparse
from collections.abc import Callable
from pathlib import Path

from serving.server.request_log import FORMATS
from training.command.parser import Parser, between, count, port, whole_number

MOST_INT = 2**31 - 1  # of gRPC
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
        description="Serves SavedModels and ONNX exports with TensorFlow Serving's protocol "
        "and flags.",
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
    _add_operation(parser.add_argument_group("operation (not of the stock server)"))
    return parser


def _add(
    group: argparse._ActionsContainer,
    name: str,
    default: object,
    metavar: str,
    text: str,
    kind: Callable[[str], object] = str,
) -> None:
    group.add_argument(f"--{name}", type=kind, default=default, metavar=metavar, help=text)


def _add_switch(group: argparse._ActionsContainer, name: str, default: bool, text: str) -> None:
    group.add_argument(
        f"--{name}",
        type=_boolean,
        nargs="?",
        const=True,
        default=default,
        metavar="true|false",
        help=text,
    )


def _add_stock_flags(parser: argparse.ArgumentParser) -> None:
    def add(
        name: str, default: object, metavar: str, text: str, kind: Callable[[str], object] = str
    ) -> None:
        _add(parser, name, default, metavar, text, kind)

    def switch(name: str, default: bool, text: str) -> None:
        _add_switch(parser, name, default, text)

    add("port", 8500, "PORT", "TCP port of gRPC; 0 takes any that is free", port)
    add("host", "127.0.0.1", "ADDRESS", "address to listen on; 0.0.0.0 lets other machines in")
    add("grpc_socket_path", None, "PATH", "also listen for gRPC at this UNIX socket", Path)
    add("rest_api_port", 0, "PORT", "TCP port of REST; 0 for none", port)
    most = between(0, MOST_INT)  # the stock server has them as int32, too
    add("rest_api_timeout_in_ms", 30000, "MS", "timeout of REST requests; 0 for none", most)
    add("model_name", "default", "NAME", "name of the model (not with --model_config_file)")
    add("model_base_path", None, "PATH", "directory of the model's numbered versions", Path)
    add(
        "model_config_file",
        None,
        "FILE",
        "text ModelServerConfig: several models, versions, labels",
        Path,
    )
    add(
        "model_config_file_poll_wait_seconds",
        0,
        "SECONDS",
        "between reads of it; 0 reads once",
        most,
    )
    add(
        "file_system_poll_wait_seconds",
        1,
        "SECONDS",
        "between looks for versions; 0 looks once",
        most,
    )
    switch("allow_version_labels_for_unavailable_models", False, "let new labels wait for versions")
    add("saved_model_tags", "serve", "TAGS", "of the meta graph to load, with commas between them")
    add(
        "tensorflow_inter_op_parallelism",
        0,
        "THREADS",
        "that the ops of all requests share, 0 is automatic; in threads of their own run "
        "those of texts beyond 1,000 bytes, and, without batching, of requests beside as many "
        "others as there are cores",
        count,
    )
    add(
        "tensorflow_intra_op_parallelism",
        0,
        "THREADS",
        "that an op may use; 0 is automatic",
        whole_number,
    )
    switch("enable_model_warmup", True, "replay the warm-up requests of a version before it serves")
    switch("enable_batching", False, "run requests of several clients together")
    add("batching_parameters_file", None, "FILE", "text BatchingParameters", Path)
    add(
        "monitoring_config_file",
        None,
        "FILE",
        "text MonitoringConfig: where metrics are, on REST",
        Path,
    )
    add("ssl_config_file", None, "FILE", "text SSLConfig: TLS for gRPC", Path)
    add(
        "grpc_channel_arguments",
        "",
        "KEY=VALUE,…",
        "of gRPC, such as grpc.max_connection_age_ms=60000",
    )
    switch(
        "enable_signature_method_name_check",
        False,
        "refuse Classify and Regress on a signature of another method",
    )
    switch("enable_grpc_healthcheck_service", False, "serve grpc.health.v1")


def _add_limits(group: argparse._ArgumentGroup) -> None:
    def limit(
        name: str,
        default: int,
        metavar: str,
        text: str,
        kind: Callable[[str], object] = count,
    ) -> None:
        _add(group, name, default, metavar, text, kind)

    limit("max_request_rows", 1000, "N", "rows of a request; 0 for any number")
    limit(
        "max_request_bytes",
        100 * 2**20,
        "BYTES",
        "of a request, unpacked, over gRPC and REST",
        between(1, MOST_INT),
    )
    limit(
        "max_waiting_requests",
        960,
        "N",
        "requests that wait for one of 64 runs; more are refused with RESOURCE_EXHAUSTED",
    )
    limit(
        "shutdown_grace_seconds",
        30,
        "SECONDS",
        "for requests under way on SIGTERM, at most a day; then they are stopped",
        between(0, _DAY),
    )


def _add_operation(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--request_log",
        choices=FORMATS,
        default="off",
        help="a line on stderr for each request: id, model, version, status, rows, milliseconds",
    )
    _add_switch(
        group,
        "enable_reload_config",
        True,
        "serve ModelService.HandleReloadConfigRequest to whoever reaches the port",
    )
