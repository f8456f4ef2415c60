"""Requests to a reader of images, and its answers: no connection, no state."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.client import protobuf as messages
from serving.client.errors import UnexpectedResponseError
from serving.client.translation import Output, read_outputs

Message = Any
_PNG = b"\x89PNG\r\n\x1a\n"
_COLORS = {1: 0, 3: 2, 4: 6}  # PNG's colour type by number of channels


@dataclass(frozen=True)
class Reading:
    """What stands in an image; `score` is log-probability over the length penalty."""

    text: str
    score: float


@dataclass(frozen=True)
class Regions:
    """What stands in an image, and where the model looked.

    `attention_weights[t][row][column]` is the weight of a region as `tokens[t]` was written; the
    regions are a grid over the image.
    """

    text: str
    score: float
    tokens: tuple[str, ...]
    attention_weights: tuple[tuple[tuple[float, ...], ...], ...]


def image_file(image: Any) -> bytes:
    """Return the file of an image.

    Args:
        image: a path, what is in a PNG or JPEG file, or an array of bytes `(H, W)` or `(H, W, C)`
            with 1, 3 or 4 channels, which becomes a PNG.

    Raises OSError for a file that cannot be read, ValueError for anything else.
    """
    if isinstance(image, bytes):
        return image
    if isinstance(image, str | Path):
        return Path(image).read_bytes()
    shape, dtype = getattr(image, "shape", None), str(getattr(image, "dtype", ""))
    if shape is None or dtype != "uint8" or len(shape) not in (2, 3) or 0 in shape:
        raise ValueError(
            "expected an image as a path, bytes or an array of uint8 (height, width, channels); "
            f"received {type(image).__name__} {shape or ''} {dtype}".rstrip()
        )
    height, width, channels = (*shape, 1)[:3]
    if channels not in _COLORS:
        raise ValueError(f"expected an image of 1, 3 or 4 channels; received {channels}")
    data, row = image.tobytes(), width * channels
    lines = b"".join(b"\0" + data[start : start + row] for start in range(0, len(data), row))
    header = struct.pack(">IIBBBBB", width, height, 8, _COLORS[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return _PNG + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def write_images(files: Sequence[bytes]) -> dict[str, Message]:
    """The input `image_bytes` of a request."""
    return {"image_bytes": messages.string_tensor(files)}


def read_readings(response: Message, count: int) -> list[Reading]:
    """Answers of the signature `read`, one for each image."""
    outputs = read_outputs(
        response, count, text=Output(messages.STRING, 1), score=Output(messages.FLOAT, 1)
    )
    return [
        Reading(text.decode("utf-8", "replace"), score)
        for text, score in zip(*outputs, strict=True)
    ]


def read_regions(response: Message, count: int) -> list[Regions]:
    """Answers of the signature `regions`, without their padding."""
    outputs = read_outputs(
        response,
        count,
        text=Output(messages.STRING, 1),
        score=Output(messages.FLOAT, 1),
        tokens=Output(messages.STRING, 2),
        attention_weights=Output(messages.FLOAT, 4),
    )
    answers = []
    for text, score, tokens, weights in zip(*outputs, strict=True):
        if len(tokens) != len(weights):
            raise UnexpectedResponseError(
                f"the answer to an image has {len(tokens)} tokens and {len(weights)} grids of "
                "attention_weights"
            )
        length = tokens.index(b"") if b"" in tokens else len(tokens)
        answers.append(
            Regions(
                text.decode("utf-8", "replace"),
                score,
                tuple(token.decode("utf-8", "replace") for token in tokens[:length]),
                tuple(tuple(map(tuple, grid)) for grid in weights[:length]),
            )
        )
    return answers
