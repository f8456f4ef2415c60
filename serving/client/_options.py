"""What the commands of clients share: options, the opened model, and the exit status."""

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

from serving.api._arguments import MOST_RETRIES, MOST_SECONDS
from serving.api._errors import ServingError
from serving.api._printing import escape_missing, not_installed, print_error

_EXTRAS = {
    **dict.fromkeys(("grpc", "google"), "client"),
    **dict.fromkeys(("onnxruntime", "numpy", "sentencepiece", "PIL", "simplejpeg"), "onnx"),
}


class Parser(argparse.ArgumentParser):
    """The parser of a command that sends rows to a model.

    It has the options that `opened_model` reads, `--json` and `--png`. Its help ends with examples.
    Its errors are one line, as in all commands.

    Args:
        prog, description: as in argparse.
        examples: arguments of the command.
        rows, row: names of the rows in help texts, such as "texts" and "a text".
        png: help text of `--png`.
    """

    def __init__(
        self, prog: str, description: str, examples: Sequence[str], rows: str, row: str, png: str
    ) -> None:
        super().__init__(prog=prog, description=description)
        self.examples = examples
        add = self.add_argument
        add("--json", action="store_true", help=f"print one JSON object {row}")
        add("--png", type=file_to_write, metavar="FILE", help=png)
        text = "the server, or unix:PATH; default: localhost:8500"
        add("--target", default="localhost:8500", metavar="HOST:PORT", help=text)
        where = self.add_mutually_exclusive_group(required=True)
        where.add_argument("--model", metavar="NAME", help="name of the model on the server")
        text = "models/NAME/1, exported with --format onnx, to run without a server"
        where.add_argument("--local", type=Path, metavar="DIR", help=text)
        text = "with --local: threads of the model; default: 1"
        add("--threads", type=size, default=1, metavar="N", help=text)
        which = self.add_mutually_exclusive_group()
        text = "version of the model; default: the latest"
        which.add_argument("--version", type=int, metavar="N", help=text)
        which.add_argument("--label", metavar="NAME", help="label of the version")
        text = "for each request, retries included; default: 30"
        add("--timeout", type=seconds, default=30.0, metavar="SECONDS", help=text)
        few = partial(size, least=0, most=MOST_RETRIES)
        text = f"further attempts at a busy or absent server; default: {MOST_RETRIES}"
        add("--retries", type=few, default=MOST_RETRIES, metavar="N", help=text)
        text = f"most {rows} in a request; default: 32"
        add("--batch-size", type=size, default=32, metavar="N", help=text)
        text = "wait at most this long for a server that is starting"
        add("--wait-ready", type=seconds, metavar="SECONDS", help=text)
        add = self.add_argument_group("encrypted connections (PEM files)").add_argument
        add("--tls", action="store_true", help="with the system's root certificates")
        add("--tls-roots", type=Path, metavar="FILE", help="root certificates of the server")
        add("--tls-cert", type=Path, metavar="FILE", help="the client's certificate")
        add("--tls-key", type=Path, metavar="FILE", help="the client's private key")
        add("--tls-server-name", metavar="NAME", help="name in the server's certificate")

    def format_help(self) -> str:
        lines = "".join(f"  {self.prog} {words}\n" for words in self.examples)
        return f"{super().format_help()}\nexamples:\n{lines}"

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}. See {self.prog} --help\n")


def seconds(text: str) -> float:
    """Parse seconds: above 0, and at most what gRPC can wait."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"needs seconds, more than 0 and at most 1e9, but it is {text}"
        )
    return number


def size(text: str, least: int = 1, most: float = math.inf) -> int:
    """Parse a whole number from `least` to `most`."""
    if not text.isdecimal() or not least <= int(text) <= most:
        limit = f"at most {most}" if most < math.inf else f"at least {least}"
        raise argparse.ArgumentTypeError(f"needs a whole number of {limit}, but it is {text}")
    return int(text)


def file_to_write(text: str) -> Path:
    """Parse the path of a file that is written last; reject a path that is not writable now."""
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


def numbered(path: Path, number: int, count: int) -> Path:
    """Return the path of picture `number` (from 0) of `count`: FILE-1.png, FILE-2.png and so on."""
    return path.with_stem(f"{path.stem}-{number + 1}") if count > 1 else path


@contextmanager
def opened_model(arguments: argparse.Namespace, name: str) -> Iterator[Any]:
    """Yield a client of the model, or the model itself with `--local`; `--wait-ready` waits."""
    client = importlib.import_module("serving.client")
    if arguments.local:
        options = {"batch_size": arguments.batch_size, "threads": arguments.threads or 1}
        model = getattr(client, f"Local{name}")(arguments.local, **options)
    else:
        names = ("target", "model", "version", "label", "timeout", "batch_size", "retries")
        files = (arguments.tls_roots, arguments.tls_cert, arguments.tls_key)
        encrypted = arguments.tls or arguments.tls_server_name or any(files)
        tls = client.Tls(*files, server_name=arguments.tls_server_name) if encrypted else False
        options = {name: getattr(arguments, name) for name in names}
        model = getattr(client, name)(**options, tls=tls)
    with model:
        if arguments.wait_ready is not None:
            model.wait_ready(arguments.wait_ready)
        yield model


def ended(ask: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Run a client's command; return its exit status. Errors are printed on one line."""
    escape_missing()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC raises the same errors
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # commands print their own warnings
            if arguments.local and (arguments.version, arguments.label) != (None, None):
                raise ValueError(
                    "--version and --label choose a version on a server. With --local, name its "
                    "directory: --local models/NAME/1"
                )
            status = ask(arguments)
            sys.stdout.flush()
            return status
    except BrokenPipeError:  # the reader stopped, such as `head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        extra = _EXTRAS.get(missing, "plot")
        print_error(not_installed(missing, extra))
    except (ServingError, OSError, ValueError, ImportError) as error:
        print_error(error)
    return 1
