"""Images as they are given: the file of each."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

from serving.client.file_kind import FileKind

_PNG = b"\x89PNG\r\n\x1a\n"
_COLORS = {1: 0, 3: 2, 4: 6}  # PNG's colour type by number of channels


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
            f"Received: {type(image).__name__} {shape or ''} {dtype}".rstrip()
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
    from PIL import Image

    with Image.open(io.BytesIO(file)) as opened:
        return np.asarray(opened.convert("RGB"))


IMAGE = FileKind(
    name="image",
    endings=(".png", ".jpg", ".jpeg"),
    starts=(_PNG, b"\xff\xd8\xff"),
    input="image_bytes",
    row=image_file,
    inputs=lambda files: {"image_bytes": files},
    picture=_picture,
)
