"""Checks that an image file is complete and small enough to decode, in TensorFlow's graph."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from training.data.rules import MOST_PIXELS

Tensor = Any
_TAIL = 1024  # an unsound file without its end mark in so many last bytes is cut off


def reason_not_to_decode(contents: Tensor) -> tuple[Tensor, Tensor]:
    """Return the reason not to decode a file, or "", and its number of pixels."""
    png = tf.strings.substr(contents, 0, 8) == b"\x89PNG\r\n\x1a\n"
    jpeg = tf.strings.substr(contents, 0, 3) == b"\xff\xd8\xff"
    length = tf.strings.length(contents)
    size = tf.minimum(length, _TAIL)
    cut, damaged = "is cut off: its end is missing", "cannot be decoded"
    none = tf.constant(0, tf.int64)
    tail = tf.io.decode_raw(tf.strings.substr(contents, length - size, size), tf.uint8)

    def fault_of(sound: Tensor, end_mark: bytes) -> Tensor:
        """Return why a file is not sound; "" if it is, whatever follows its end mark."""
        starts = tf.maximum(size - len(end_mark) + 1, 0)
        equal = [tail[i : starts + i] == byte for i, byte in enumerate(end_mark)]
        ends = tf.reduce_any(tf.reduce_all(equal, axis=0))
        return tf.where(sound, "", tf.where(ends, damaged, cut))

    def check_png() -> tuple[Tensor, Tensor]:
        header = tf.strings.substr(tf.strings.join([contents, "\0" * 24]), 16, 8)
        sizes = tf.reshape(tf.cast(tf.io.decode_raw(header, tf.uint8), tf.int64), [2, 4])
        sizes = tf.reduce_sum(sizes * [1 << 24, 1 << 16, 1 << 8, 1], axis=1)
        reason, pixels = check_sizes(sizes[1], sizes[0])
        sound = tf.cond(reason == "", lambda: _is_sound_png(contents), lambda: tf.constant(True))
        return tf.where(reason == "", fault_of(sound, b"IEND"), reason), pixels

    def check_jpeg() -> tuple[Tensor, Tensor]:
        # First, because TensorFlow's error about a missing size does not name the image.
        reason = fault_of(_is_sound_jpeg(contents), b"\xff\xd9")
        return tf.cond(reason == "", check_jpeg_sizes, lambda: (reason, none))

    def check_jpeg_sizes() -> tuple[Tensor, Tensor]:
        sizes = tf.cast(tf.image.extract_jpeg_shape(contents), tf.int64)
        reason, pixels = check_sizes(sizes[0], sizes[1])
        is_cmyk = (reason == "") & (sizes[2] == 4)
        return tf.where(is_cmyk, "is a JPEG in CMYK: convert it to RGB", reason), pixels

    def check_sizes(height: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
        wanted = f"expected at least 1 and at most {MOST_PIXELS:,}"
        reason = joined("has", width, "x", height, f"pixels: {wanted}")
        fits = (height > 0) & (width > 0) & (height * width <= MOST_PIXELS)
        return tf.where(fits, "", reason), tf.where(fits, height * width, 0)

    cases: Sequence[tuple[Tensor, Callable]] = [(png, check_png), (jpeg, check_jpeg)]
    return tf.case(cases, default=lambda: (tf.constant("is neither PNG nor JPEG"), none))


def _number(raw: Tensor) -> Tensor:
    """Return the big-endian number of bytes `(n,)`, int64."""
    weights = tf.bitwise.left_shift(1, 8 * tf.range(tf.size(raw) - 1, -1, -1))
    return tf.reduce_sum(tf.cast(raw, tf.int64) * tf.cast(weights, tf.int64))


def _is_sound_png(contents: Tensor) -> Tensor:
    """Whether a PNG's chunks follow one another, and ancillary chunks have right checksums.

    Ancillary chunks have names that begin in lower case, such as tRNS, gAMA and eXIf, which are
    read. Decoders check the checksums of all other chunks.
    """
    raw, length = tf.io.decode_raw(contents, tf.uint8), tf.strings.length(contents)

    def check(place: Tensor, kind: Tensor, right: Tensor) -> list[Tensor]:
        end = place + 8 + tf.cast(tf.minimum(_number(raw[place : place + 4]), 1 << 30), tf.int32)
        right = end + 4 <= length
        checked = right & (raw[place + 4] > 96)
        right &= tf.cond(
            checked,
            lambda: checksum(raw[place + 4 : end]) == _number(raw[end : end + 4]),
            lambda: True,
        )
        return [end + 4, tf.strings.substr(contents, place + 4, 4), right]

    _, kind, right = tf.while_loop(
        lambda place, kind, right: right & (place + 12 <= length) & (kind != b"IEND"),
        check,
        [tf.constant(8), tf.constant(""), tf.constant(True)],
    )
    return right & (kind == b"IEND")


def checksum(raw: Tensor) -> Tensor:
    """Return the CRC-32 of 4 or more bytes, int64.

    CRC-32 is linear, so the states of neighbouring parts are combined in pairs, in parallel.
    """
    table = np.arange(256)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ 0xEDB88320, table >> 1)
    # For each of the four bytes of a state, its part of the state after a zero byte: (4, 256).
    after = np.stack([table, *(np.arange(256) << shift for shift in (0, 8, 16))])

    def moved(after: Tensor, states: Tensor) -> Tensor:
        bytes_of = [tf.bitwise.right_shift(states, np.int64(8 * n)) & 255 for n in range(4)]
        parts = [tf.gather(after[n], each) for n, each in enumerate(bytes_of)]
        return functools.reduce(tf.bitwise.bitwise_xor, parts)

    def join(states: Tensor, after: Tensor) -> list[Tensor]:
        states = tf.pad(states, [[tf.size(states) % 2, 0]])  # leading zeros change nothing
        halves = moved(after, states[::2]), states[1::2]
        return [tf.bitwise.bitwise_xor(*halves), moved(after, after)]

    first = tf.pad(tf.constant([255] * 4, tf.uint8), [[0, tf.size(raw) - 4]])
    states = tf.gather(table, tf.cast(tf.bitwise.bitwise_xor(raw, first), tf.int32))
    shapes = [tf.TensorShape([None]), tf.TensorShape([4, 256])]
    states, _ = tf.while_loop(
        lambda states, _: tf.size(states) > 1, join, [states, tf.constant(after)], shapes
    )
    return tf.bitwise.bitwise_xor(states[0], np.int64(0xFFFFFFFF))


def _is_sound_jpeg(contents: Tensor) -> Tensor:
    """Whether a JPEG's segments follow one another up to its end."""
    raw = tf.cast(tf.io.decode_raw(contents, tf.uint8), tf.int32)
    size, after = tf.size(raw), raw[1:]
    # Within a scan, FF 00 is a data byte FF, and the marks FF D0 to FF D7 only divide the scan.
    is_mark = (raw[:-1] == 255) & (after > 0) & (after < 255) & ((after < 0xD0) | (after > 0xD7))
    marks = tf.concat([tf.cast(tf.where(is_mark)[:, 0], tf.int32), [size]], 0)
    raw = tf.concat([raw, [0] * 4], 0)

    def check(place: Tensor, kind: Tensor, right: Tensor) -> list[Tensor]:
        mark = marks[tf.searchsorted(marks, [tf.minimum(place, size)])[0]]
        filled = tf.reduce_all(raw[place:mark] == 255) | (kind == 0xDA)
        kind, step = raw[mark + 1], tf.cast(_number(raw[mark + 2 : mark + 4]), tf.int32)
        known = ((kind >= 0xC0) & (kind < 0xF0)) | (kind == 0xFE)  # 0 at the end of the file
        return [mark + 2 + step, kind, filled & known & ((step > 1) | (kind == 0xD9))]

    return tf.while_loop(
        lambda place, kind, right: right & (kind != 0xD9),
        check,
        [tf.constant(2), tf.constant(0), tf.constant(True)],
    )[2]


def joined(*parts: Tensor) -> Tensor:
    """Return strings and numbers, joined by spaces, as one string."""
    texts = [part if isinstance(part, str) else tf.strings.as_string(part) for part in parts]
    return tf.strings.join(texts, " ")
