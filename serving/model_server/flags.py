"""The flags of the stock server that this one understands."""

import argparse
from pathlib import Path


def _boolean(text: str) -> bool:
    values = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"expected true or false, received {text!r}")
    return values[text.lower()]


def build_parser() -> argparse.ArgumentParser:
    """Parser of the server's command line; `--flag` alone means true, as `--flag=true` does."""
    parser = argparse.ArgumentParser(
        prog="python -m serving.server",
        description="Serves SavedModels with TensorFlow Serving's protocol and flags.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )

    def add(name: str, default: object, text: str, kind: type = str) -> None:
        if isinstance(default, bool):
            parser.add_argument(
                f"--{name}", type=_boolean, nargs="?", const=True, default=default, help=text
            )
        else:
            parser.add_argument(f"--{name}", type=kind, default=default, help=text)

    add("port", 8500, "TCP port of gRPC; 0 takes any that is free", int)
    add("host", "127.0.0.1", "address to listen on; 0.0.0.0 lets other machines in")
    add("grpc_socket_path", None, "also listen for gRPC at this UNIX socket", Path)
    add("rest_api_port", 0, "TCP port of REST; 0 for none", int)
    add("rest_api_timeout_in_ms", 30000, "timeout of REST requests", int)
    add("model_name", "default", "name of the model (not with --model_config_file)")
    add("model_base_path", None, "directory of the model's numbered versions", Path)
    add("model_config_file", None, "text ModelServerConfig: several models, versions, labels", Path)
    add("model_config_file_poll_wait_seconds", 0, "seconds between reads of it; 0 reads once", int)
    add("file_system_poll_wait_seconds", 1, "seconds between looks for versions; 0 looks once", int)
    add("allow_version_labels_for_unavailable_models", False, "let new labels wait for versions")
    add("saved_model_tags", "serve", "comma-separated tags of the meta graph to load")
    add(
        "tensorflow_inter_op_parallelism",
        0,
        "threads that the ops of all requests share, 0 is automatic; -1 runs each request's in its "
        "own, as are those of texts beyond 1,000 bytes, and, without batching, of requests beside "
        "as many others as there are cores",
        int,
    )
    add("tensorflow_intra_op_parallelism", 0, "threads that an op may use; 0 is automatic", int)
    add("enable_model_warmup", True, "replay the warm-up requests of a version before it serves")
    add("enable_batching", False, "run requests of several clients together")
    add("batching_parameters_file", None, "text BatchingParameters", Path)
    add("monitoring_config_file", None, "text MonitoringConfig: where metrics are, on REST", Path)
    add("ssl_config_file", None, "text SSLConfig: TLS for gRPC", Path)
    add("grpc_channel_arguments", "", "comma-separated gRPC arguments, e.g. grpc.max_age_ms=5000")
    add("enable_grpc_healthcheck_service", False, "serve grpc.health.v1")
    return parser
