"""Show a model on a page: python -m serving.page --model NAME, or --static DIR without a server."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from serving.api._printing import escape_missing, not_installed, print_error
from serving.page._card import Card, read_card
from training.command.options import Parser, port, seconds

_MOST_SECONDS = 3.0  # for the first request, when the page starts
_EXTRAS = {
    **dict.fromkeys(("uvicorn", "starlette", "grpc", "google"), "page"),
    **{"onnx": "serving", "onnxruntime": "onnx", "sentencepiece": "onnx"},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    escape_missing()
    parser = _parser()
    options = parser.parse_args(arguments)
    if (options.static is None) != (options.output is None) or (
        options.single_file and options.static is None
    ):
        parser.error("expected --static DIR with --output SITE, and --single-file with them alone")
    try:
        return _write(options) if options.static else _serve(options)
    except ModuleNotFoundError as missing:
        name = (missing.name or "").split(".")[0]
        if name not in _EXTRAS:
            raise
        print_error(not_installed(name, _EXTRAS[name]))
    except (OSError, ValueError) as error:
        print_error(error)
    return 1


def _parser() -> Parser:
    parser = Parser(
        prog="python -m serving.page",
        description="A page for a model on a server, this project's or TensorFlow Serving. It "
        "sends requests over gRPC, and shows the answers and the attention weights. It stores and "
        "logs no input.",
        examples=(
            "--model en-fr --open",
            "--static models/en-fr-onnx/1 --output translator.html --single-file",
        ),
    )
    add = parser.add_argument
    text = "the server, or unix:PATH; default: localhost:8500"
    add("--target", default="localhost:8500", metavar="HOST:PORT", help=text)
    where = parser.add_mutually_exclusive_group(required=True).add_argument
    where("--model", metavar="NAME", help="name of the model on the server")
    text = "write a page without a server, for a translator or a reader; DIR is an ONNX export"
    where("--static", type=Path, metavar="DIR", help=text)
    text = "with --static: the folder to write, for any static host"
    add("--output", type=Path, metavar="SITE", help=text)
    text = "with --static: write SITE as one HTML file, which opens with a double click"
    add("--single-file", action="store_true", help=text)
    text = "assets.extra/manifest.json of the export; the page shows its facts about the model"
    add("--manifest", type=Path, metavar="FILE", help=text)
    add("--example", default="", metavar="TEXT", help="the text that the page begins with")
    text = "port of the page; default: 8080"
    add("--port", type=port, default=8080, metavar="PORT", help=text)
    text = (
        "address to listen on; default: 127.0.0.1, this machine alone. The page has no passwords: "
        "put a proxy that has them in front of any other"
    )
    add("--host", default="127.0.0.1", metavar="ADDRESS", help=text)
    text = "a further name by which browsers reach the page; may be given several times"
    add("--name", dest="names", action="append", default=[], metavar="HOST", help=text)
    text = "for each request; default: 10"
    add("--timeout", type=seconds, default=10.0, metavar="SECONDS", help=text)
    add("--open", action="store_true", help="open the page in a browser")
    return parser


def _write(options: argparse.Namespace) -> int:
    """Write a page that needs no server; return the exit status."""
    from serving.page._files import write

    write(options.static, options.output, options.single_file, options.example)
    print(f"Written {options.output}")
    return 0


def _serve(options: argparse.Namespace) -> int:
    """Serve the page until it is interrupted; return the exit status."""
    import uvicorn

    from serving.api._http import host_names
    from serving.page._app import HEADERS, PageSettings, build

    card = read_card(options.manifest) if options.manifest else Card()
    names = host_names(options.host, options.names)
    settings = PageSettings(
        options.target, options.model, options.timeout, card, options.example, hosts=names
    )
    config = uvicorn.Config(
        build(settings),
        headers=[*HEADERS.items()],
        host=options.host,
        port=options.port,
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # X-Forwarded-For of anyone would be believed
        limit_concurrency=256,
    )
    try:
        listening = config.bind_socket()
    except SystemExit:
        where = f"{options.host}:{options.port}"
        raise OSError(f"cannot listen on {where}. Choose another port: --port=N") from None
    address = f"http://localhost:{listening.getsockname()[1]}/"
    print(f"{options.model} of {options.target} is shown on {address}", flush=True)
    if reason := _reason_for_no_answer(options):
        print(f"warning: {reason}. The page asks again until there is an answer", file=sys.stderr)
    if options.open:
        threading.Timer(0.5, webbrowser.open, (address,)).start()
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
    return 0


def _reason_for_no_answer(options: argparse.Namespace) -> str:
    """Return why the server does not describe the model now; "" if it does."""
    from serving.client import ServingError, Translator

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC raises the same errors
    most = min(options.timeout, _MOST_SECONDS)
    with Translator(options.target, options.model, timeout=most, retries=0) as client:
        try:
            client.metadata()
        except ServingError as error:
            return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main())
