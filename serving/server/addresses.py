"""Addresses to listen on: claimed before models are loaded, so a wrong one is known at once."""

import socket
from pathlib import Path

_MOST_PATH_BYTES = 107  # of a UNIX socket


def claim(host: str, port: int) -> socket.socket:
    """A socket bound to the address, on which nothing listens yet.

    Whoever listens there next, in this process, binds it again before this one is closed.

    Raises OSError with one line, where the address cannot be had.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        claimed = socket.socket(family, kind, protocol)
    except OSError as error:
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    try:
        claimed.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        claimed.bind(address)
    except (OSError, OverflowError) as error:
        claimed.close()
        raise OSError(f"cannot listen on {host}:{port}: {error}") from error
    return claimed


def check_socket_path(path: Path) -> None:
    """Raises OSError where no UNIX socket can be made at `path`."""
    problem = None
    if len(str(path).encode()) > _MOST_PATH_BYTES:
        problem = f"the path has more than {_MOST_PATH_BYTES} bytes"
    elif not path.parent.is_dir():
        problem = f"there is no directory {path.parent}"
    elif path.exists() and not path.is_socket():
        problem = "there is a file"
    if problem:
        raise OSError(f"cannot listen on unix:{path}: {problem}")


def text(host: str, port: int) -> str:
    """`host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
