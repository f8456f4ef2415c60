"""The flags of the stock server that this one understands."""

import argparse
from pathlib import Path


def build_parser() -> argparse.ArgumentParser:
    """Parser of the server's command line."""
    parser = argparse.ArgumentParser(
        prog="python -m serving.server",
        description="Serves SavedModels with TensorFlow Serving's protocol and flags.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--port", type=int, default=8500, help="port of gRPC; 0 for none")
    add("--host", default="127.0.0.1", help="address to bind; 0.0.0.0 lets other machines in")
    add("--model_name", default="default", help="name of the model")
    add("--model_base_path", type=Path, help="directory of the model's numbered versions")
    add(
        "--file_system_poll_wait_seconds",
        type=int,
        default=1,
        help="seconds between looks for new versions; 0 looks once",
    )
    return parser
