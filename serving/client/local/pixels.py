"""Image files as pixels: decoded and resized as a SavedModel does it, without TensorFlow."""

from __future__ import annotations

import io
import struct

import numpy as np

MOST_PIXELS = 1 << 24  # of an image as it comes, as in training: 16.8 million
_TAIL = 1024  # bytes at the end of a file among which its end mark is looked for
_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
_CUT = "is cut off: its end is missing"
_SRGB = 45455  # its gamma, in the units of PNG's chunk gAMA
_ONE = 100_000  # a gamma of 1 in these units
_LUMA = np.array([9797, 19234, 3737])  # red, green and blue of ITU-R 601, of 32768


def read_image(contents: bytes, height: int, width: int, channels: int) -> np.ndarray:
    """Return a PNG or JPEG file as uint8 `(height, width, channels)`; channels are 1 or 3.

    Raises:
        ValueError: for a file that cannot be read; the message says why.
    """
    if contents.startswith(_PNG):
        image = _decode_png(contents, channels)
    elif contents.startswith(_JPEG):
        image = _decode_jpeg(contents, channels)
    else:
        raise ValueError("is neither PNG nor JPEG")
    return resize(image, height, width)


def _check_size(height: int, width: int) -> None:
    if not 0 < height * width <= MOST_PIXELS:
        raise ValueError(
            f"has {width} x {height} pixels: expected at least 1 and at most {MOST_PIXELS:,}"
        )


def _decode_jpeg(contents: bytes, channels: int) -> np.ndarray:
    """Decode with libjpeg-turbo's fast DCT, which TensorFlow takes and Pillow does not."""
    import simplejpeg

    if b"\xff\xd9" not in contents[-_TAIL:]:
        raise ValueError(_CUT)
    try:
        height, width, space, _ = simplejpeg.decode_jpeg_header(contents, strict=False)
    except (ValueError, KeyError):  # this where not even the colours are known
        raise ValueError("cannot be decoded") from None
    _check_size(height, width)
    if space in ("CMYK", "YCCK"):
        raise ValueError(f"expected a JPEG in gray or RGB. Received: {space}")
    wanted = "GRAY" if channels == 1 else "RGB"
    try:
        image: np.ndarray = simplejpeg.decode_jpeg(contents, wanted, fastdct=True, strict=False)
    except ValueError:
        raise ValueError("cannot be decoded") from None
    return image


def _decode_png(contents: bytes, channels: int) -> np.ndarray:
    """Decode as libpng does when it is asked for 8 bits without alpha."""
    from PIL import Image

    width, height = struct.unpack(">II", (contents + bytes(24))[16:24])
    _check_size(height, width)
    if b"IEND" not in contents[-_TAIL:]:
        raise ValueError(_CUT)
    try:
        image = Image.open(io.BytesIO(contents))
        image.load()
    except (OSError, SyntaxError, ValueError):
        raise ValueError("cannot be decoded") from None
    if image.mode == "P":
        palette = np.zeros((256, 3), "uint8")
        colors = np.array(image.getpalette("RGB"), "uint8").reshape(-1, 3)
        palette[: len(colors)] = colors
        pixels = palette[np.asarray(image)]
    elif image.mode == "1":
        pixels = np.asarray(image.convert("L"))
    elif image.mode.startswith("I"):  # 16 bits, of which the upper eight are taken
        pixels = (np.asarray(image) >> 8).astype("uint8")
    else:
        pixels = np.asarray(image)
    pixels = pixels.reshape(height, width, -1)
    pixels = pixels[:, :, : 3 if pixels.shape[2] > 2 else 1]  # without alpha
    if channels == 1 and pixels.shape[2] == 3:
        gamma = _SRGB if "srgb" in image.info else round(image.info.get("gamma", 1.0) * _ONE)
        return _gray(pixels, gamma)
    return np.repeat(pixels, channels, axis=2) if pixels.shape[2] < channels else pixels


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
    """Return for each new place the first old one that it is made of, and float32 weights."""
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
    """Return sums of rows `(h, …)`, one after the other."""
    found = np.zeros((len(first), *values.shape[1:]), "float32")
    for number, column in enumerate(weights.T):
        rows = values[np.minimum(first + number, len(values) - 1)]
        found += rows * column.reshape(-1, *[1] * (values.ndim - 1))
    return found
