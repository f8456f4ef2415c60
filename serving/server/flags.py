"""The flags of the stock server that this one understands."""

import argparse
from collections.abc import Callable
from pathlib import Path

from serving.server.request_log import FORMATS
from training.command.parser import Parser, count, port, whole_number


def _boolean(text: str) -> bool:
    values = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"expected true or false. Received: {text!r}")
    return values[text.lower()]


def build_parser() -> argparse.ArgumentParser:
    """Parser of the server's command line; `--flag` alone means true, as `--flag=true` does."""
    parser = Parser(
        prog="python -m serving.server",
        description="Serves SavedModels with TensorFlow Serving's protocol and flags.",
        allow_abbrev=False,
    )

    def add(name: str, default: object, text: str, kind: Callable[[str], object] = str) -> None:
        if isinstance(default, bool):
            parser.add_argument(
                f"--{name}", type=_boolean, nargs="?", const=True, default=default, help=text
            )
        else:
            parser.add_argument(f"--{name}", type=kind, default=default, help=text)

    add("port", 8500, "TCP port of gRPC; 0 takes any that is free", port)
    add("host", "127.0.0.1", "address to listen on; 0.0.0.0 lets other machines in")
    add("grpc_socket_path", None, "also listen for gRPC at this UNIX socket", Path)
    add("rest_api_port", 0, "TCP port of REST; 0 for none", port)
    add("rest_api_timeout_in_ms", 30000, "timeout of REST requests", count)
    add("model_name", "default", "name of the model (not with --model_config_file)")
    add("model_base_path", None, "directory of the model's numbered versions", Path)
    add("model_config_file", None, "text ModelServerConfig: several models, versions, labels", Path)
    add(
        "model_config_file_poll_wait_seconds",
        0,
        "seconds between reads of it; 0 reads once",
        count,
    )
    add(
        "file_system_poll_wait_seconds",
        1,
        "seconds between looks for versions; 0 looks once",
        count,
    )
    add("allow_version_labels_for_unavailable_models", False, "let new labels wait for versions")
    add("saved_model_tags", "serve", "comma-separated tags of the meta graph to load")
    add(
        "tensorflow_inter_op_parallelism",
        0,
        "threads that the ops of all requests share, 0 is automatic; in threads of their own run "
        "those of texts beyond 1,000 bytes, and, without batching, of requests beside as many "
        "others as there are cores",
        count,
    )
    add(
        "tensorflow_intra_op_parallelism",
        0,
        "threads that an op may use; 0 is automatic",
        whole_number,
    )
    add("enable_model_warmup", True, "replay the warm-up requests of a version before it serves")
    add("enable_batching", False, "run requests of several clients together")
    add("batching_parameters_file", None, "text BatchingParameters", Path)
    add("monitoring_config_file", None, "text MonitoringConfig: where metrics are, on REST", Path)
    add("ssl_config_file", None, "text SSLConfig: TLS for gRPC", Path)
    add(
        "grpc_channel_arguments",
        "",
        "comma-separated gRPC arguments, e.g. grpc.max_connection_age_ms=60000",
    )
    add(
        "enable_signature_method_name_check",
        False,
        "refuse Classify and Regress on a signature of another method",
    )
    add("enable_grpc_healthcheck_service", False, "serve grpc.health.v1")
    limits = parser.add_argument_group("limits (not of the stock server)")

    def limit(name: str, default: int, text: str) -> None:
        limits.add_argument(f"--{name}", type=count, default=default, help=text)

    limit("max_request_rows", 1000, "rows of a request; 0 for any number")
    limit("max_request_bytes", 100 * 2**20, "bytes of a request, unpacked, over gRPC and REST")
    limit(
        "max_waiting_requests",
        960,
        "requests that wait for one of 64 runs; more are refused with RESOURCE_EXHAUSTED",
    )
    limit(
        "shutdown_grace_seconds",
        30,
        "seconds for requests under way on SIGTERM; then they are stopped",
    )
    operation = parser.add_argument_group("operation (not of the stock server)")
    operation.add_argument(
        "--request_log",
        choices=FORMATS,
        default="off",
        help="a line on stderr for each request: id, model, version, status, rows, milliseconds",
    )
    operation.add_argument(
        "--enable_reload_config",
        type=_boolean,
        nargs="?",
        const=True,
        default=True,
        help="serve ModelService.HandleReloadConfigRequest to whoever reaches the port",
    )
    return parser
