"""Clients of served models. They need only grpcio and protobuf, not TensorFlow or NumPy.

    from serving.client import Translator

    with Translator("localhost:8500", "en-fr", timeout=10) as translator:
        print(translator.translate(["She is eating a green apple."])[0].text)

As a command, which reads the texts from its arguments or from lines of the standard input:

    python -m serving.client translate --target localhost:8500 --model en-fr [TEXT ...]

The distribution `keras-attention-client` has this package, `serving/api` and
`serving/portable/read`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from serving.api._errors import (
        DeadlineExceededError,
        InvalidRequestError,
        MessageTooLargeError,
        ModelNotFoundError,
        RateLimitedError,
        ServerUnavailableError,
        ServingError,
        SignatureNotFoundError,
        UnexpectedResponseError,
    )
    from serving.api._results import (
        Alignment,
        Hypothesis,
        Metadata,
        Prediction,
        Reading,
        Regions,
        Score,
        Translation,
    )
    from serving.client._clients import (
        AsyncPredictor,
        AsyncReader,
        AsyncTranslator,
        Predictor,
        Reader,
        Translator,
    )
    from serving.client._drawing import draw_alignment
    from serving.client._protocol import Query, Tls
    from serving.client._transport import AsyncClient, Client
    from serving.portable.read import LocalPredictor, LocalReader, LocalTranslator

_MODULES = {
    "serving.api._errors": (
        *("DeadlineExceededError", "InvalidRequestError", "MessageTooLargeError"),
        *("ModelNotFoundError", "RateLimitedError", "ServerUnavailableError", "ServingError"),
        *("SignatureNotFoundError", "UnexpectedResponseError"),
    ),
    "serving.api._results": (
        *("Alignment", "Hypothesis", "Metadata", "Prediction"),
        *("Reading", "Regions", "Score", "Translation"),
    ),
    "serving.client._clients": (
        *("AsyncPredictor", "AsyncReader", "AsyncTranslator"),
        *("Predictor", "Reader", "Translator"),
    ),
    "serving.client._drawing": ("draw_alignment",),
    "serving.client._protocol": ("Query", "Tls"),
    "serving.client._transport": ("AsyncClient", "Client"),
    "serving.portable.read": ("LocalPredictor", "LocalReader", "LocalTranslator"),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    """Return a public name, imported on first use, so that a command's --help needs no gRPC."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
