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
    from serving.api.errors import (
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
    from serving.api.results import (
        Alignment,
        Hypothesis,
        Metadata,
        Prediction,
        Reading,
        Regions,
        Score,
        Translation,
    )
    from serving.client.clients import (
        AsyncPredictor,
        AsyncReader,
        AsyncTranslator,
        Predictor,
        Reader,
        Translator,
    )
    from serving.client.drawing import draw_alignment
    from serving.client.protocol import Tls
    from serving.portable.read import LocalPredictor, LocalReader, LocalTranslator

_FILES = (
    *("serving.api.results", "serving.api.errors"),
    *("serving.client.clients", "serving.client.protocol"),
)
_OTHERS = {"draw_alignment": "serving.client.drawing"} | dict.fromkeys(
    ("LocalPredictor", "LocalReader", "LocalTranslator"), "serving.portable.read"
)


def __getattr__(name: str) -> Any:
    """Return a public name, imported on first use, so that a command's --help needs no gRPC."""
    files = (_OTHERS[name],) if name in _OTHERS else _FILES if name[0].isupper() else ()
    for file in files:
        if hasattr(module := import_module(file), name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
