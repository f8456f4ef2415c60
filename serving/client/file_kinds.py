"""The kinds of files that readers read: what each declares, and images."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serving.client.arguments import shown

_PNG = b"\x89PNG\r\n\x1a\n"
_COLORS = {1: 0, 3: 2, 4: 6}  # PNG's colour type by number of channels


@dataclass(frozen=True)
class FileKind:
    """A kind of files, each of which has a text.

    Attributes:
        name: of one, in errors, outputs and on the page; the key `source` of its runs.
        endings: of names of its files, in lower case.
        starts: the first bytes of its files.
        input: of the signature `read`, by which a model's kind is known.
        row: from an example (a path, bytes, or another form) to a row of a request. Raises OSError
            or ValueError.
        inputs: from rows to the inputs of a request: bytes, or numbers in nested lists.
        picture: from a row to an array `(H, W, 3)` of uint8 that weights are drawn over.
    """

    name: str
    endings: tuple[str, ...]
    starts: tuple[bytes, ...]
    input: str
    row: Callable[[Any], Any]
    inputs: Callable[[Sequence[Any]], dict[str, Sequence[Any]]]
    picture: Callable[[Any], Any]

    def is_name(self, name: str) -> bool:
        """Whether a file of this name is of this kind."""
        return name.lower().endswith(self.endings)

    def is_one(self, example: Any) -> bool:
        """Whether an example shows to be of this kind, by the name or the bytes of a file."""
        if isinstance(example, bytes):
            return example.startswith(self.starts)
        return self.is_name(str(example))


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
            "expected an image as a path, bytes or an array of uint8 (height, width, channels). "
            f"Received: {shown(image)} {shape or ''} {dtype}".rstrip()
        )
    height, width, channels = (*shape, 1)[:3]
    if channels not in _COLORS:
        raise ValueError(f"expected an image of 1, 3 or 4 channels. Received: {channels}")
    data, row = image.tobytes(), width * channels
    lines = b"".join(b"\0" + data[start : start + row] for start in range(0, len(data), row))
    header = struct.pack(">IIBBBBB", width, height, 8, _COLORS[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return _PNG + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def _picture(file: bytes) -> Any:
    import numpy as np
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(file)) as opened:
        image = ImageOps.exif_transpose(opened).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image).convert("RGB"))


IMAGE = FileKind(
    name="image",
    endings=(".png", ".jpg", ".jpeg"),
    starts=(_PNG, b"\xff\xd8\xff"),
    input="image_bytes",
    row=image_file,
    inputs=lambda files: {"image_bytes": files},
    picture=_picture,
)

KINDS = (IMAGE,)


def kind_of(example: Any) -> FileKind:
    """Return the kind that a path or the bytes of a file show; the first where nothing does."""
    file = example if isinstance(example, str | Path | bytes) else b""
    return next((kind for kind in KINDS if kind.is_one(file)), KINDS[0])


def kind_of_name(name: str) -> FileKind | None:
    """Return the kind of files with a name of this ending, None for any other."""
    return next((kind for kind in KINDS if kind.is_name(name)), None)


def kind_of_inputs(inputs: Collection[str]) -> FileKind:
    """Return the kind that a model with these inputs reads; the first where it reads none."""
    return next((kind for kind in KINDS if kind.input in inputs), KINDS[0])
