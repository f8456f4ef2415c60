"""Image files as pixels: decoded and resized as a SavedModel does it, without TensorFlow."""

from __future__ import annotations

import io
import itertools
import re
import struct
import zlib
from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from serving.portable.read._model import check_running
from training.data.rules import MOST_PIXELS

_CHUNKS_TOGETHER = 4096  # of a PNG, between checks whether the answer is still waited for
_TAIL = 1024  # an unsound file without its end mark in so many last bytes is cut off
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_CUT, _DAMAGED = "is cut off: its end is missing", "cannot be decoded"
_CRITICAL = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
# By PNG's colour type: channels, bits of a channel, and sizes of a clear colour.
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_CLEAR = {0: (2,), 2: (6,)}
_PALETTES = range(3, 769, 3)
_SIZES = {b"gAMA": 4, b"sRGB": 1}
_INTENTS = 3  # greatest value of sRGB
_END = b"\0\0\0\0IEND\xae\x42\x60\x82"
# The passes of an interlaced PNG: first column, first row, column step, row step.
_PASSES = (
    *((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4)),
    *((0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)),
)
# A JPEG's marker is one or more FF and a byte; within a scan, FF 00 is data, FF D0 to D7 divide it.
_FILL = re.compile(rb"\xff+")
_NO_MARKS = frozenset((0, *range(0xD0, 0xD8)))
_SEGMENTS = frozenset((*range(0xC0, 0xD0), *range(0xDA, 0xF0), 0xFE))
_TIFF = 4096  # bytes of EXIF data that are read
_SRGB = 45455  # its gamma, in the units of PNG's chunk gAMA
_ONE = 100_000  # a gamma of 1 in these units
_LUMA = np.array([9797, 19234, 3737])  # red, green and blue of ITU-R 601, of 32768


def read_image(contents: bytes, height: int, width: int, channels: int) -> np.ndarray:
    """Return a PNG or JPEG file as uint8 `(height, width, channels)`; channels are 1 or 3.

    The image is rotated by its EXIF orientation. Transparent images are composited on white. Of 16
    bits a channel, eight are kept, from the highest bit that a pixel uses.

    Raises ValueError for a file that cannot be read; the message says why.
    """
    if contents.startswith(_PNG):
        image = _decode_png(contents, channels)
    elif contents.startswith(_JPEG):
        image = _decode_jpeg(contents, channels)
    else:
        raise ValueError("is neither PNG nor JPEG")
    orientation = _orientation(contents)
    image = image.transpose(1, 0, 2) if orientation > 4 else image
    image = image[:, ::-1] if orientation in (2, 3, 6, 7) else image
    image = image[::-1] if orientation in (3, 4, 7, 8) else image
    return resize(image, height, width)


def _orientation(contents: bytes) -> int:
    """Return the EXIF orientation of a file, 1 to 8; 1 where it has none."""
    before, _, tiff = contents.partition(b"eXIf" if contents.startswith(_PNG) else b"Exif\0\0")
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    # A JPEG's segment begins with a marker and two bytes of length.
    if order is None or (contents.startswith(_JPEG) and before[-4:-2] != b"\xff\xe1"):
        return 1
    tiff = tiff[:_TIFF].ljust(_TIFF, b"\0")
    directory = min(struct.unpack_from(f"{order}I", tiff, 4)[0], _TIFF // 2)
    count = min(struct.unpack_from(f"{order}H", tiff, directory)[0], _TIFF // 2 // 12 - 1)
    value = 0
    for entry in range(directory + 2, directory + 2 + 12 * count, 12):
        tag, _, _, number = struct.unpack_from(f"{order}HHIH", tiff, entry)
        value = max(value, number if tag == 0x0112 else 0)
    return value if 1 <= value <= 8 else 1


def _check_size(height: int, width: int) -> None:
    if not 0 < height * width <= MOST_PIXELS:
        raise ValueError(
            f"has {width} x {height} pixels: expected at least 1 and at most {MOST_PIXELS:,}"
        )


def check_png(contents: bytes) -> bytes:
    """Return a PNG with its pixels in one chunk, and without chunks that libpng does not use.

    Pillow reads texts, profiles and other chunks, and rejects files in which these are damaged or
    large; libpng ignores such chunks, and gamma or transparency out of place.

    Raises ValueError if a chunk is cut off or fails its checksum, or if pixels are missing; or
    where another thread has stopped this thread's runs.
    """
    place, kind, right = 8, b"", True
    view, packed, kept = memoryview(contents), bytearray(), bytearray()
    used, found = dict[bytes, int](), set[bytes]()
    try:
        width, height, depth, color, *methods = struct.unpack_from(">IIBBBBB", contents, 16)
        right = depth in _DEPTHS.get(color, ()) and methods[:2] == [0, 0] and methods[2] < 2
        for number in itertools.count():
            if not right or kind == b"IEND":
                break
            if number % _CHUNKS_TOGETHER == 0:
                check_running()
            before, (size, kind) = kind, struct.unpack_from(">I4s", contents, place)
            end = place + 8 + size
            (checksum,) = struct.unpack_from(">I", contents, end)
            right = zlib.crc32(view[place + 4 : end]) == checksum
            right &= kind[0] > 96 or kind in _CRITICAL
            right &= (kind == b"IHDR") == (place == 8)
            if kind == b"PLTE":
                right &= kind not in found and (color != 3 or size in _PALETTES)
            if kind == b"sRGB" and size == 1 and contents[end - 1] > _INTENTS:
                used |= {b"gAMA": 0, kind: 0}  # libpng uses neither from here on
            if kind == b"IDAT":
                right &= before == kind or kind not in found
                packed += view[place + 8 : end]
            elif b"IDAT" not in found and _is_used(kind, size, color, found, used):
                used[kind] = size
                kept += view[place : end + 4]
            found.add(kind)
            place = end + 4
        right &= b"PLTE" in used or color != 3
        stream, expected = zlib.decompressobj(), 0
        for x, y, across, down in _PASSES if methods[2] else ((0, 0, 1, 1),):
            columns, rows = -((x - width) // across), -((y - height) // down)
            bits = columns * depth * _CHANNELS.get(color, 1)
            expected += rows * (1 - -bits // 8) if columns > 0 and rows > 0 else 0
        whole = len(stream.decompress(packed, expected)) == expected
        pixels = b"IDAT" + packed
        # After the pixels comes more data, or the stream's end with a valid checksum.
        right &= whole and (stream.decompress(stream.unconsumed_tail, 1) != b"" or stream.eof)
    except (struct.error, zlib.error):
        right = False
    if not right:
        raise ValueError(_DAMAGED if b"IEND" in contents[-_TAIL:] else _CUT)
    chunk = struct.pack(">I", len(packed)), pixels, struct.pack(">I", zlib.crc32(pixels))
    return b"".join((contents[:8], kept, *chunk, _END))


def _is_used(
    kind: bytes, size: int, color: int, found: Container[bytes], used: Mapping[bytes, int]
) -> bool:
    """Return whether libpng uses a chunk before the pixels.

    Args:
        kind: the kind of the chunk.
        size: bytes of its content.
        color: the file's colour type.
        found: kinds of the chunks before it.
        used: of those that are used, the sizes.
    """
    if kind in used:
        return False
    if kind == b"tRNS":
        shades = range(1, used.get(b"PLTE", 0) // 3 + 1)
        return size in (shades if color == 3 else _CLEAR.get(color, ()))
    if kind == b"PLTE":
        return color == 3
    return kind == b"IHDR" or (size == _SIZES.get(kind) and b"PLTE" not in found)


def check_jpeg(contents: bytes) -> None:
    """Raise ValueError unless segments follow one another up to the end mark.

    More data may follow, such as the film of a phone's photograph.
    """
    place, kind, right = 2, 0, True
    while right and kind != 0xD9:
        start, end = _next_mark(contents, place)
        if right := end > 0 and (start == place or kind == 0xDA):
            kind, size = contents[end - 1], int.from_bytes(contents[end : end + 2], "big")
            place = end + size
            right = kind == 0xD9 or (kind in _SEGMENTS and size > 1)
    if not right:
        raise ValueError(_DAMAGED if b"\xff\xd9" in contents[-_TAIL:] else _CUT)


def _next_mark(contents: bytes, place: int) -> tuple[int, int]:
    """Return where the first marker from a place on begins and ends; -1 and -1 without one.

    Each run of FF is read once: one pattern for the whole marker would try each FF of a run.
    """
    for fill in _FILL.finditer(contents, place):
        end = fill.end()
        if end < len(contents) and contents[end] not in _NO_MARKS:
            return fill.start(), end + 1
    return -1, -1


def _decode_jpeg(contents: bytes, channels: int) -> np.ndarray:
    """Decode with libjpeg-turbo's fast DCT, which TensorFlow takes and Pillow does not."""
    import simplejpeg

    check_jpeg(contents)
    try:
        height, width, space, _ = simplejpeg.decode_jpeg_header(contents, strict=False)
    except (ValueError, KeyError):  # this where not even the colours are known
        raise ValueError(_DAMAGED) from None
    _check_size(height, width)
    if space in ("CMYK", "YCCK"):
        raise ValueError("is a JPEG in CMYK: convert it to RGB")
    wanted = "GRAY" if channels == 1 else "RGB"
    try:
        image: np.ndarray = simplejpeg.decode_jpeg(contents, wanted, fastdct=True, strict=False)
    except ValueError:
        raise ValueError(_DAMAGED) from None
    return image


def _decode_png(contents: bytes, channels: int) -> np.ndarray:
    from PIL import Image

    width, height = struct.unpack(">II", (contents + bytes(24))[16:24])
    _check_size(height, width)
    names_clear = b"tRNS" in contents  # anywhere, as `training.sources.image._decode` looks for it
    contents = check_png(contents)
    try:
        image = Image.open(io.BytesIO(contents))
        image.load()
    except (OSError, SyntaxError, ValueError):
        raise ValueError(_DAMAGED) from None
    depth, color = contents[24:26]
    if depth == 16:
        return _composite(*_sixteen_bits(image, contents), channels)
    if depth in (2, 4) and color == 0 and "transparency" in image.info:  # Pillow leaves it
        image.info["transparency"] *= 255 // ((1 << depth) - 1)
    if color >= 4 or names_clear:
        pixels = np.asarray(image.convert("RGBA")).astype("int64")
        return _composite(pixels[..., :3], pixels[..., 3:], channels)
    if image.mode == "1":
        image = image.convert("L")
    elif image.mode == "P":
        image = image.convert("RGB")
    pixels = np.asarray(image).reshape(height, width, -1)
    if channels == 1 and pixels.shape[2] == 3:
        gamma = _SRGB if "srgb" in image.info else round(image.info.get("gamma", 1.0) * _ONE)
        return _gray(pixels, gamma if 16 <= gamma <= 625_000_000 else _ONE)  # as libpng
    return np.repeat(pixels, channels, axis=2) if pixels.shape[2] < channels else pixels


def _sixteen_bits(image: Any, contents: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return colours `(H, W, 3)` and opacity `(H, W, 1)`, 0 to 255, of a file of 16 bits."""
    from PIL import Image

    pixels = np.asarray(image).astype("int64")
    if contents[25] == 4:  # gray and alpha: as RGBA of 8 bits, which has as many bytes, it has all
        header = contents[12:24] + b"\x08\x06" + contents[26:29]
        contents = contents[:12] + header + struct.pack(">I", zlib.crc32(header)) + contents[33:]
        pixels = np.asarray(Image.open(io.BytesIO(contents))).astype("int64")
        pixels = (pixels[..., ::2] << 8 | pixels[..., 1::2])[..., [0, 0, 0, 1]]
    elif pixels.ndim == 3:  # Pillow keeps the upper bytes; in the other order, it keeps the lower
        with Image.open(io.BytesIO(contents)) as other:
            other.tile = [(*tile[:3], tile[3].replace("16B", "16L")) for tile in other.tile]
            pixels = pixels << 8 | np.asarray(other)
    else:
        pixels = np.repeat(pixels[..., None], 3, axis=2)
    colors, alpha = pixels[..., :3], pixels[..., 3:] >> 8
    if not alpha.size:
        clear = image.info.get("transparency")
        opaque = True if clear is None else (colors != clear).any(axis=2, keepdims=True)
        alpha = np.where(opaque, 255, np.zeros_like(colors[..., :1]))
    return colors >> max(int(colors.max()).bit_length() - 8, 0), alpha


def _composite(colors: np.ndarray, alpha: np.ndarray, channels: int) -> np.ndarray:
    """Return colours `(H, W, 3)` of opacity `(H, W, 1)` on white, uint8 `(H, W, channels)`."""
    colors = (colors * alpha + 255 * (255 - alpha) + 127) // 255
    if channels == 1:
        colors = (colors @ _LUMA[:, None]) >> 15
    return colors.astype("uint8")


def _gray(pixels: np.ndarray, gamma: int) -> np.ndarray:
    """Return RGB `(H, W, 3)` as gray `(H, W, 1)`, of a file with a gamma mixed as linear light."""
    if abs(gamma - _ONE) <= _ONE // 20:  # libpng takes it as none
        mixed = (pixels @ _LUMA) >> 15
    else:
        linear = _curve(round(_ONE * _ONE / gamma))[pixels]
        mixed = _curve(gamma)[(linear @ _LUMA + (1 << 14)) >> 15]
    alike = (pixels == pixels[:, :, :1]).all(axis=2)
    return np.where(alike, pixels[:, :, 0], mixed).astype("uint8")[:, :, None]


def _curve(gamma: int) -> np.ndarray:
    """Return libpng's table of 256 entries for a gamma."""
    return np.floor(255 * (np.arange(256) / 255) ** (gamma / _ONE) + 0.5).astype("int64")


def resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resize uint8 `(h, w, C)`, bilinearly and with antialiasing, as `tf.image.resize` does.

    The rounding of pixels depends on the order of float32 sums, which is TensorFlow's.
    """
    rows = _weighed(image.astype("float32"), *_spans(image.shape[0], height))
    columns = _weighed(rows.transpose(1, 0, 2), *_spans(image.shape[1], width))
    return np.clip(np.round(columns.transpose(1, 0, 2)), 0, 255).astype("uint8")


def _spans(before: int, after: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first old row of each new row, `(after,)`, and float32 weights `(after, k)`."""
    one, half = np.float32(1), np.float32(0.5)
    inverse = np.float32(1.0 / np.float64(np.float32(after) / np.float32(before)))
    reach = max(inverse, one)
    centers = (np.arange(after, dtype="float32") + half) * inverse
    first = np.clip(np.ceil(centers - reach - half), 0, before - 1).astype("int64")
    last = np.clip(np.floor(centers + reach - half), 0, before - 1).astype("int64")
    places = first[:, None] + np.arange((last - first).max() + 1)
    away = np.abs((places.astype("float32") + half - centers[:, None]) * (one / reach))
    weights = np.where(places <= last[:, None], np.maximum(one - away, np.float32(0)), 0)
    weights = weights.astype("float32")
    total = np.zeros(after, "float32")
    for column in weights.T:
        total += column
    return first, weights * (one / total)[:, None]


def _weighed(values: np.ndarray, first: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return weighted sums `(after, …)` of rows `(h, …)`, added one row at a time."""
    sums = np.zeros((len(first), *values.shape[1:]), "float32")
    for number, column in enumerate(weights.T):
        rows = values[np.minimum(first + number, len(values) - 1)]
        sums += rows * column.reshape(-1, *[1] * (values.ndim - 1))
    return sums
