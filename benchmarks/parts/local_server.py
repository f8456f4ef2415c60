"""A local model server to measure; imports no TensorFlow."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from serving.client import Translator


def free_port() -> int:
    """A TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def server(base: Path, *flags: str, tree: Path | None = None) -> Iterator[tuple[str, int]]:
    """Run the local server, of another checkout if one is given.

    Gives its address and process number.
    """
    port = free_port()
    command = [sys.executable, "-m", "serving.server", f"--port={port}", "--model_name=load"]
    process = subprocess.Popen(
        [*command, f"--model_base_path={base.resolve()}", *flags],
        cwd=tree,
        stderr=subprocess.DEVNULL,
    )
    try:
        target = f"localhost:{port}"
        with Translator(target, "load") as translator:
            translator.wait_ready(120)
        yield target, process.pid
    finally:
        process.terminate()
        process.wait()
