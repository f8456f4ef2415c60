"""A gRPC channel to a model server, encrypted or not."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

# Of an answer: a row of the largest that the export check lets through, and what is around it.
_MOST_BYTES = 65 * 2**20
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", _MOST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # Five minutes is the shortest interval that servers allow unless told otherwise.
    ("grpc.keepalive_time_ms", 300_000),
    ("grpc.keepalive_timeout_ms", 20_000),
]
_SPREAD = ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}')


@dataclass(frozen=True)
class Tls:
    """Files of an encrypted connection, all PEM.

    Args:
        root_certificates: of the authorities to trust; None means the system's.
        certificate, private_key: the client's own, where the server asks for them.
        server_name: the name in the server's certificate, where the target has another.
    """

    root_certificates: str | Path | None = None
    certificate: str | Path | None = None
    private_key: str | Path | None = None
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Channel credentials from the files. Raises OSError."""
        paths = (self.root_certificates, self.private_key, self.certificate)
        return grpc.ssl_channel_credentials(
            *(None if path is None else Path(path).read_bytes() for path in paths)
        )


def open_channel(library: Any, target: str, tls: Tls | None) -> Any:
    """A channel of `grpc` or `grpc.aio`. Raises OSError where a file of `tls` cannot be read.

    Args:
        library: whose channel it is.
        target: `host:port`, `unix:PATH`, or `dns:///NAME:PORT`, which spreads the requests over all
            addresses of the name.
        tls: None for plain text.
    """
    options = list(_OPTIONS)
    if target.startswith("dns:"):
        options.append(_SPREAD)
    if tls is None:
        return library.insecure_channel(target, options=options)
    if tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return library.secure_channel(target, tls.credentials(), options=options)
