"""The command lines of clients: the options of a server, and the exit status."""

from __future__ import annotations

import argparse
import importlib
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from serving.client.arguments import MOST_RETRIES, MOST_SECONDS
from serving.client.errors import ServingError
from serving.client.printing import escape_missing, install, print_error

_EXTRAS = {
    **dict.fromkeys(("grpc", "google"), "client"),
    **dict.fromkeys(("onnxruntime", "numpy", "sentencepiece", "PIL", "simplejpeg"), "onnx"),
}


class Parser(argparse.ArgumentParser):
    """A parser whose help ends in examples, and whose errors are one line, as of all commands."""

    def __init__(self, examples: Sequence[str], **settings: Any) -> None:
        super().__init__(**settings)
        self.examples = examples

    def format_help(self) -> str:
        """Return the help with the examples."""
        lines = "".join(f"  {self.prog} {words}\n" for words in self.examples)
        return f"{super().format_help()}\nexamples:\n{lines}"

    def error(self, message: str) -> NoReturn:
        """End the process with status 2."""
        self.exit(2, f"error: {message}; {self.prog} --help says more\n")


def seconds(text: str) -> float:
    """Read a time above 0 that gRPC can wait."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"expected seconds, at most 1e9 and more than 0. Received: {text}"
        )
    return number


def size(text: str, least: int = 1, most: float = math.inf) -> int:
    """Read a number of things, at least one."""
    if not text.isdecimal() or not least <= int(text) <= most:
        limit = f"at most {most}" if most < math.inf else f"at least {least}"
        raise argparse.ArgumentTypeError(f"expected a whole number of {limit}. Received: {text}")
    return int(text)


def file_to_write(text: str) -> Path:
    """Read the place of a picture, which is drawn last: find out now whether it can be written."""
    path = Path(text)
    if path.is_dir():
        reason = "it is a directory"
    elif not path.parent.is_dir():
        reason = f"there is no directory {path.parent}"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        reason = "permission denied"
    else:
        return path
    raise argparse.ArgumentTypeError(f"cannot write {path}: {reason}")


def add_connection(parser: argparse.ArgumentParser, rows: str) -> None:
    """Add the options by which `opened` finds a model."""
    add = parser.add_argument
    add(
        "--target",
        default="localhost:8500",
        metavar="HOST:PORT",
        help="the server, or unix:PATH; default: localhost:8500",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--model", metavar="NAME", help="name of the model on the server")
    where.add_argument(
        "--local",
        type=Path,
        metavar="DIR",
        help="no server: models/NAME/1, exported with --format onnx",
    )
    add(
        "--threads",
        type=size,
        default=1,
        metavar="N",
        help="with --local: that translate or read together; default: 1",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--version", type=int, metavar="N", help="version of the model; default: the latest"
    )
    which.add_argument("--label", metavar="NAME", help="label of the version")
    add(
        "--timeout",
        type=seconds,
        default=30.0,
        metavar="SECONDS",
        help="for each request, retries included; default: 30",
    )
    add("--call-timeout", type=seconds, metavar="SECONDS", help="for all requests together")
    add(
        "--retries",
        type=partial(size, least=0, most=MOST_RETRIES),
        default=MOST_RETRIES,
        metavar="N",
        help=f"further attempts at a busy or absent server; default: {MOST_RETRIES}",
    )
    add(
        "--batch-size",
        type=size,
        default=32,
        metavar="N",
        help=f"most {rows} in a request; default: 32",
    )
    add(
        "--wait-ready",
        type=seconds,
        metavar="SECONDS",
        help="wait so long for a server that is starting",
    )
    tls = parser.add_argument_group("encrypted connections (PEM files)")
    tls.add_argument("--tls", action="store_true", help="with the system's root certificates")
    for name, about in (
        ("--tls-roots", "root certificates of the server"),
        ("--tls-cert", "the client's certificate"),
        ("--tls-key", "the client's private key"),
    ):
        tls.add_argument(name, type=Path, metavar="FILE", help=about)
    tls.add_argument("--tls-server-name", metavar="NAME", help="name in the server's certificate")


def _connection_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of a `serving.client.protocol.Endpoint`."""
    from serving.client.protocol import Tls

    names = ("target", "model", "version", "label", "timeout", "batch_size", "retries")
    files = (arguments.tls_roots, arguments.tls_cert, arguments.tls_key)
    encrypted = arguments.tls or arguments.tls_server_name or any(files)
    return {
        **{name: getattr(arguments, name) for name in names},
        "call_timeout": arguments.call_timeout,
        "tls": Tls(*files, server_name=arguments.tls_server_name) if encrypted else False,
    }


@contextmanager
def opened(arguments: argparse.Namespace, name: str) -> Iterator[Any]:
    """Open the model that is asked, on a server or in this process, once it is ready."""
    client = importlib.import_module("serving.client")
    if arguments.local:
        options = {"batch_size": arguments.batch_size, "threads": arguments.threads or 1}
        model = getattr(client, f"Local{name}")(arguments.local, **options)
    else:
        model = getattr(client, name)(**_connection_options(arguments))
    with model:
        if arguments.wait_ready is not None:
            model.wait_ready(arguments.wait_ready)
        yield model


def ended(ask: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Return the exit status of a command that asks a server; an error is one line."""
    escape_missing()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # commands print their own
            return ask(arguments)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        extra = _EXTRAS.get(missing, "plot")
        print_error(f"{missing} is not installed: {install(extra)}")
    except (ServingError, OSError, ValueError, ImportError) as error:
        print_error(error)
    return 1
