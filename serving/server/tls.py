"""TLS of the gRPC port. Its file is checked first, and read again when it changes."""

import logging
import ssl
import tempfile
from pathlib import Path
from typing import Any

import grpc

from serving.savedmodel.status import StatusError, invalid
from serving.server import config_files

log = logging.getLogger(__name__)


def server_credentials(path: Path) -> grpc.ServerCredentials:
    """Credentials of the SSLConfig at `path`. They follow its changes.

    Raises StatusError or OSError if the file or a certificate is not valid.
    """
    certificates = _Certificates(path)
    return grpc.dynamic_ssl_server_credentials(
        certificates.current, certificates.fetch, certificates.client_verify
    )


class _Certificates:
    """The certificates in an SSLConfig, which has no static type."""

    def __init__(self, path: Path):
        self._path = path
        self._seen = _stamp(path)
        config = _read(path)
        self.client_verify = bool(config.client_verify)
        self.current = _configuration(config)

    def fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """The certificates if they have changed, else None; gRPC calls it for each handshake."""
        try:
            stamp = _stamp(self._path)
            if stamp == self._seen:
                return None
            # An invalid file is not read again until it changes.
            self._seen = stamp
            self.current = _configuration(_read(self._path))
        except (StatusError, OSError) as error:
            log.error("Reading %s again failed, the certificates stay: %s", self._path, error)
            return None
        log.info("The certificates of %s have changed", self._path)
        return self.current


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_ino


def _read(path: Path) -> Any:
    config = config_files.read_ssl(path)
    try:
        _check(config)
    except (ssl.SSLError, ValueError) as error:
        raise invalid(f"certificate not valid in '{path}': {error}") from error
    return config


def _check(config: Any) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if config.custom_ca:
        context.load_verify_locations(cadata=config.custom_ca)
    elif config.client_verify:
        raise ValueError("client_verify needs custom_ca")
    # ssl reads certificates from files alone; only the owner can read these.
    with tempfile.NamedTemporaryFile() as cert, tempfile.NamedTemporaryFile() as key:
        for file, text in ((cert, config.server_cert), (key, config.server_key)):
            file.write(text.encode())
            file.flush()
        # Without this, an encrypted key would ask for its password on the terminal.
        context.load_cert_chain(cert.name, key.name, password=lambda: "")


def _configuration(config: Any) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
    )
