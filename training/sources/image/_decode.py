"""Decodes PNG and JPEG files to pixels, in TensorFlow's graph.

`serving.portable.read._pixels` does the same with NumPy and Pillow; a test compares the two.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

Tensor = Any
_TIFF = 4096  # bytes of EXIF data that are read
_LUMA = [9797, 19234, 3737]  # weights of red, green and blue in ITU-R 601, times 32768


def decode(contents: Tensor, channels: int) -> Tensor:
    """Return the pixels of an image file, uint8 `(h, w, channels)`, in its EXIF orientation.

    Transparent images are drawn on white. Of 16-bit images, the bits above the highest bit in use
    are dropped; the next eight bits are kept.
    """
    is_png = tf.strings.substr(contents, 0, 4) == b"\x89PNG"
    image = tf.cond(
        is_png,
        lambda: _decode_png(contents, channels),
        lambda: tf.io.decode_jpeg(contents, channels),
    )
    orientation = _orientation(contents, is_png)
    image = tf.cond(orientation > 4, lambda: tf.transpose(image, [1, 0, 2]), lambda: image)
    for axis, mirrored in ((1, (2, 3, 6, 7)), (0, (3, 4, 7, 8))):
        flipped = tf.reduce_any(orientation == mirrored)
        image = tf.cond(flipped, partial(tf.reverse, image, [axis]), partial(tf.identity, image))
    return tf.ensure_shape(image, [None, None, channels])


def _decode_png(contents: Tensor, channels: int) -> Tensor:
    header = tf.io.decode_raw(tf.strings.substr(contents, 24, 2), tf.uint8)
    depth, color = header[0], header[1]
    deep = depth == 16
    has_alpha = (color >= 4) | (tf.size(tf.strings.split(contents, b"tRNS", 1)) > 1)

    def eight() -> tuple[Tensor, Tensor]:
        pixels = tf.cast(tf.io.decode_png(contents, 4), tf.uint16)
        return pixels[..., :3], pixels[..., 3:]

    def sixteen() -> tuple[Tensor, Tensor]:
        pixels = tf.io.decode_png(contents, 4, tf.uint16)
        colors, alpha = pixels[..., :3], pixels[..., 3:]
        brightest = tf.cast(tf.reduce_max(colors), tf.int32)
        surplus = tf.reduce_sum(tf.cast(brightest >= [2**n for n in range(8, 16)], tf.int32))
        colors = tf.bitwise.right_shift(colors, tf.cast(surplus, tf.uint16))
        return colors, tf.bitwise.right_shift(alpha, 8)

    def composite() -> Tensor:
        colors, alpha = tf.cond(deep, sixteen, eight)
        colors = (colors * alpha + 255 * (255 - alpha) + 127) // 255  # at most 65,152 before
        if channels == 1:
            bands = [tf.cast(colors[..., n], tf.int32) * weight for n, weight in enumerate(_LUMA)]
            colors = tf.bitwise.right_shift(tf.add_n(bands), 15)[..., None]
        return tf.cast(colors, tf.uint8)

    return tf.cond(deep | has_alpha, composite, lambda: tf.io.decode_png(contents, channels))


def _orientation(contents: Tensor, is_png: Tensor) -> Tensor:
    """Return the EXIF orientation of a file, 1 to 8; 1 if it has none."""
    mark = tf.where(is_png, b"eXIf", b"Exif\0\0")
    before, after = _split(contents, mark)
    # A JPEG's segment begins with a marker and two bytes of length.
    marker = tf.strings.substr(tf.strings.join([b"\0" * 4, before]), tf.strings.length(before), 2)
    is_exif = is_png | (marker == b"\xff\xe1")
    tiff = tf.strings.substr(tf.strings.join([after, b"\0" * _TIFF]), 0, _TIFF)
    raw = tf.cast(tf.io.decode_raw(tiff, tf.uint8), tf.int64)
    little = tf.strings.substr(tiff, 0, 4) == b"II*\0"
    is_tiff = little | (tf.strings.substr(tiff, 0, 4) == b"MM\0*")

    def numbers(starts: Tensor, size: int) -> Tensor:
        """Return the unsigned numbers of `size` bytes at the offsets `starts`, int64."""
        digits = tf.gather(raw, starts[:, None] + tf.range(size, dtype=tf.int64))
        weights = np.array([256**n for n in range(size)])  # int64
        return tf.reduce_sum(digits * tf.where(little, weights, weights[::-1]), axis=1)

    directory = tf.minimum(numbers(tf.constant([4], tf.int64), 4), _TIFF // 2)
    count = tf.minimum(numbers(directory, 2)[0], _TIFF // 2 // 12 - 1)
    entries = directory + 2 + 12 * tf.range(count)
    values = tf.where(numbers(entries, 2) == 0x0112, numbers(entries + 8, 2), 0)
    value = tf.reduce_max(tf.concat([values, [0]], 0))
    return tf.where(is_exif & is_tiff & (value >= 1) & (value <= 8), value, 1)


def _split(contents: Tensor, mark: Tensor) -> tuple[Tensor, Tensor]:
    """Return the bytes before and after the first occurrence of `mark`; "" if there are none."""
    parts = tf.concat([tf.strings.split(contents, mark, 1), [b""]], 0)
    return parts[0], parts[1]
