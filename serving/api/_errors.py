"""The errors of clients: a type for each cause, with a message that says what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import grpc

_CLOSED = "Channel closed"  # gRPC's message if the client itself was closed during a call
# Messages of gRPC, and of TensorFlow out of memory. Fewer rows may succeed.
_TOO_LARGE = re.compile(r"larger than max|exceeds maximum size|too large|OOM when allocating", re.I)


class ServingError(Exception):
    """A request failed. `code` is the gRPC status, None without one."""

    def __init__(self, message: str, code: grpc.StatusCode | None = None):
        super().__init__(message)
        self.code = code


class ServerUnavailableError(ServingError):
    """There is no connection, or the server is overloaded or stopping.

    `code` may be CANCELLED: with it, gRPC servers drop calls that they have not accepted yet.
    """


class DeadlineExceededError(ServingError):
    """The server did not respond within the timeout."""


class ModelNotFoundError(ServingError):
    """The server has no such model, version or label."""


class SignatureNotFoundError(ServingError):
    """The model has no such signature, for instance `align` without attention."""


class InvalidRequestError(ServingError):
    """The model rejected the input."""


class MessageTooLargeError(ServingError):
    """A request or a response exceeds the size that the server or the client accepts."""


class RateLimitedError(ServingError):
    """The server, or a proxy in front of it, accepts no more requests now."""


class UnexpectedResponseError(ServingError):
    """The response is not one of this kind of model."""


def from_rpc_error(
    error: grpc.RpcError,
    target: str,
    model: str,
    timeout: float,
    has_tls: bool = False,
    proxy: str = "",
) -> ServingError:
    """Return the ServingError for a failed call, with a type and a message for its cause.

    `proxy` is the hint at a proxy that the call goes through.
    """
    code, kind = error.code(), ServingError
    detail = ((error.details() or "").splitlines() or [""])[0]
    message = f"the server at {target} failed with {code.name}"
    match code.name:
        case "UNAVAILABLE":
            kind, message = ServerUnavailableError, f"no answer from the server at {target}: "
            if "Hostname Verification" in detail:
                message += "its certificate has another name: give it as Tls(server_name=…)"
            elif any(part in detail.lower() for part in ("ssl", "handshake", "certificate")):
                message += "check the certificates, and that both sides use TLS"
            else:
                other = "the certificates" if has_tls else "whether it expects TLS"
                message += f"check that it runs, the address, and {other}{proxy}"
        case "CANCELLED" if _CLOSED not in detail:
            kind = ServerUnavailableError
            message = f"the server at {target} dropped the request, because it is overloaded or "
            message += "shutting down. Try again"
        case "DEADLINE_EXCEEDED":
            kind, message = DeadlineExceededError, f"no answer from {target} within {timeout:g} s: "
            message += f"check that it runs, allow more time, or send less{proxy}"
        case "RESOURCE_EXHAUSTED" if _TOO_LARGE.search(detail):
            kind = MessageTooLargeError
            message = f"a message is too large for {target}: send fewer texts at once"
        case "RESOURCE_EXHAUSTED":
            kind, message = (
                RateLimitedError,
                f"the server at {target} accepts no more requests now: ",
            )
            message += "try again later, or send fewer requests"
        case "FAILED_PRECONDITION" if "ignature" in detail:
            kind = SignatureNotFoundError
            message = (
                f"model {model!r} lacks this signature. List its signatures: "
                f"python -m serving.client translate --model {model} --metadata"
            )
        case _ if code.name == "NOT_FOUND" or "servable version label" in detail:
            kind = ModelNotFoundError
            message = f"the server at {target} does not serve model {model!r} as asked: check the "
            message += "name, version and label"
        case "INVALID_ARGUMENT" | "FAILED_PRECONDITION":
            kind, message = InvalidRequestError, f"model {model!r} rejected the request"
    return kind(f"{message} ({detail})", code)
