"""The errors of clients, a type for each cause; each message says what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import grpc

_CLOSED = "Channel closed"  # gRPC's words where the client itself was closed during a call
# Of gRPC's libraries and of TensorFlow out of memory: fewer rows are taken.
_TOO_LARGE = re.compile(r"larger than max|exceeds maximum size|too large|OOM when allocating", re.I)


class ServingError(Exception):
    """A request that was not answered. `code` is the gRPC status, where there is one."""

    def __init__(self, message: str, code: grpc.StatusCode | None = None):
        super().__init__(message)
        self.code = code


class ServerUnavailableError(ServingError):
    """No connection, a server that is overloaded, or one that is stopping.

    `code` may be CANCELLED: gRPC servers drop calls so before they take them.
    """


class DeadlineExceededError(ServingError):
    """No answer within the timeout."""


class ModelNotFoundError(ServingError):
    """The server has no such model, version or label."""


class SignatureNotFoundError(ServingError):
    """The model has no such signature, for instance `align` without attention."""


class InvalidRequestError(ServingError):
    """The model does not take this input."""


class MessageTooLargeError(ServingError):
    """A request or an answer is larger than the server or the client takes."""


class RateLimitedError(ServingError):
    """The server takes no more requests now: a limit of its own, or of a proxy before it."""


class UnexpectedResponseError(ServingError):
    """The server answered something else than a translator does."""


def from_rpc_error(
    error: grpc.RpcError, target: str, model: str, timeout: float, has_tls: bool = False
) -> ServingError:
    """Return the typed error of a failed call."""
    code, kind = error.code(), ServingError
    detail = ((error.details() or "").splitlines() or [""])[0]
    message = f"the server at {target} failed with {code.name}"
    match code.name:
        case "UNAVAILABLE":
            kind, message = ServerUnavailableError, f"no answer from the server at {target}: "
            if "Hostname Verification" in detail:
                message += "its certificate has another name, which Tls(server_name=…) can give"
            elif any(part in detail.lower() for part in ("ssl", "handshake", "certificate")):
                message += "check the certificates, and that both sides use TLS"
            else:
                other = "the certificates" if has_tls else "whether it expects TLS"
                message += f"check that it runs, the address, and {other}"
        case "CANCELLED" if _CLOSED not in detail:
            kind = ServerUnavailableError
            message = f"the server at {target} gave the request up: it has too many, or stops"
        case "DEADLINE_EXCEEDED":
            kind, message = DeadlineExceededError, f"no answer from {target} within {timeout:g} s: "
            message += "check that it runs, allow more time, or send less"
        case "RESOURCE_EXHAUSTED" if _TOO_LARGE.search(detail):
            kind = MessageTooLargeError
            message = f"a message is too large for {target}: send fewer texts at once"
        case "RESOURCE_EXHAUSTED":
            kind, message = RateLimitedError, f"the server at {target} takes no more requests now: "
            message += "ask again later, or less often"
        case "FAILED_PRECONDITION" if "ignature" in detail:
            kind = SignatureNotFoundError
            message = f"model {model!r} cannot do this: see its signatures with metadata"
        case _ if code.name == "NOT_FOUND" or "servable version label" in detail:
            kind = ModelNotFoundError
            message = f"the server at {target} does not serve model {model!r} as asked: check the "
            message += "name, version and label"
        case "INVALID_ARGUMENT" | "FAILED_PRECONDITION":
            kind, message = InvalidRequestError, f"model {model!r} did not take the request"
    return kind(f"{message} ({detail})", code)
