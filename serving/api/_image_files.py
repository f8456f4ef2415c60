"""Converts images to the files that clients send, and files to pixels."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

from serving.api._arguments import shown

_ENDINGS = (".png", ".jpg", ".jpeg")  # of names of files, in lower case
INPUT = "image_bytes"  # of the signatures of readers
_COLORS = {1: 0, 3: 2, 4: 6}  # PNG's colour type by number of channels


def is_image(name: str) -> bool:
    """Return whether a file name has the ending of an image."""
    return name.lower().endswith(_ENDINGS)


def image_file(image: Any) -> bytes:
    """Return the bytes of an image file.

    Args:
        image: a path, the bytes of a PNG or JPEG file, or a uint8 array `(H, W)` or `(H, W, C)`
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
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def read_picture(file: bytes) -> Any:
    """Return the pixels of an image file, uint8 `(H, W, 3)`: rotated by EXIF, on white."""
    import numpy as np
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(file)) as opened:
        image = ImageOps.exif_transpose(opened).convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    return np.asarray(Image.alpha_composite(white, image).convert("RGB"))
