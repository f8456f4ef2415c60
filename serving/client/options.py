"""The options by which every client's command finds its server."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from serving.client.channel import Tls
from serving.client.retries import RETRIES


def add_connection(parser: argparse.ArgumentParser, rows: str) -> None:
    """Add the options that `connection_options` reads; `rows` is what a request holds."""
    add = parser.add_argument
    add("--target", default="localhost:8500", help="host:port of the server, or unix:PATH")
    add("--model", required=True, help="name of the model on the server")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", type=int, help="version of the model; default is the latest")
    which.add_argument("--label", help="label of the version")
    add("--timeout", type=float, default=30.0, help="seconds for each request, retries included")
    add("--call-timeout", type=float, metavar="SECONDS", help="for all requests together")
    add("--retries", type=int, default=RETRIES, help="further attempts at a busy or absent server")
    add("--batch-size", type=int, default=32, help=f"most {rows} in a request")
    add("--wait-ready", type=float, metavar="SECONDS", help="wait so long for the model first")
    tls = parser.add_argument_group("encrypted connections (PEM files)")
    tls.add_argument("--tls", action="store_true", help="with the system's root certificates")
    tls.add_argument("--tls-roots", type=Path, help="root certificates of the server")
    tls.add_argument("--tls-cert", type=Path, help="the client's certificate")
    tls.add_argument("--tls-key", type=Path, help="the client's private key")
    tls.add_argument("--tls-server-name", help="name in the server's certificate")


def connection_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of a `serving.client.protocol.Endpoint`."""
    names = ("target", "model", "version", "label", "timeout", "batch_size", "retries")
    files = (arguments.tls_roots, arguments.tls_cert, arguments.tls_key)
    encrypted = arguments.tls or arguments.tls_server_name or any(files)
    return {
        **{name: getattr(arguments, name) for name in names},
        "call_timeout": arguments.call_timeout,
        "tls": Tls(*files, server_name=arguments.tls_server_name) if encrypted else False,
    }
