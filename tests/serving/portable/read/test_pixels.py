"""Pixels of image files without TensorFlow against those of a SavedModel."""

import io
import struct
import zlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from serving.portable.read.pixels import read_image, resize
from training.config.schema import load_preset, override
from training.sources.image.source import ImageSource

JPEG_OPTIONS = {"jpeg": {"quality": 95}}


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(values, depth, color, *more):
    """A PNG of rows of numbers that fill `depth` bits each."""
    height, width = values.shape[:2]
    rows = []
    for row in values.reshape(height, -1):
        bits = "".join(format(value, f"0{depth}b") for value in row.tolist())
        bits += "0" * (-len(bits) % 8)
        rows.append(b"\0" + int(bits, 2).to_bytes(len(bits) // 8, "big"))
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    body = [*more, chunk(b"IDAT", zlib.compress(b"".join(rows))), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(body)


def files(rng):
    """Files of every kind that both sides read, by name."""

    def numbers(depth, *channels):
        return rng.integers(0, 1 << depth, (23, 31, *channels))

    def jpeg(mode, **options):
        shades = np.add.outer(np.arange(53) * 3, np.arange(71) * 2)[..., None]
        noisy = np.clip(shades + rng.normal(0, 25, (53, 71, 3)), 0, 255).astype("uint8")
        file = io.BytesIO()
        Image.fromarray(noisy).convert(mode).save(file, format="JPEG", **options)
        return file.getvalue()

    def turned(form, orientation, order):
        exif, file = Image.Exif(), io.BytesIO()
        exif.endian, exif[0x010F], exif[0x0112] = order, "maker", orientation
        shades = np.add.outer(np.arange(23) * 5, np.arange(31) * 3).astype("uint8")
        Image.fromarray(shades).save(file, form, exif=exif.tobytes(), **JPEG_OPTIONS.get(form, {}))
        return file.getvalue()

    exif = {
        f"{form} {order} {n}": turned(form, n, order)
        for form in ("jpeg", "png")
        for order, n in [*(("<", n) for n in range(1, 9)), (">", 6), ("<", 9)]
    }
    palette = chunk(b"PLTE", rng.integers(0, 256, 48).astype("uint8").tobytes())
    clear, shade = (chunk(b"tRNS", bytes(each)) for each in ([0, 1, 0, 2, 0, 3], [0, 1]))
    gamma, linear = (chunk(b"gAMA", struct.pack(">I", number)) for number in (45_455, 99_000))
    return {
        **{f"gray {depth}": png(numbers(depth), depth, 0) for depth in (1, 2, 4, 8, 16)},
        **exif,
        "ten bits": png(rng.integers(0, 1 << 10, (23, 31)), 16, 0),
        "ten bits of a clear colour": png(numbers(10), 16, 0, chunk(b"tRNS", b"\0\7")),
        **{f"{n} bits of RGB": png(numbers(n, 3), 16, 2) for n in (7, 11, 16)},
        "RGB of a clear colour": png(np.tile([[1, 2, 3], [3, 2, 1]], (23, 20, 1)), 8, 2, clear),
        "11 bits of RGB and alpha": png(numbers(11, 4) * [1, 1, 1, 32], 16, 6),
        "16 bits of gray and alpha": png(numbers(16, 2), 16, 4),
        "11 bits of gray and alpha": png(numbers(11, 2) * [1, 32], 16, 4),
        **{f"gray {n} of a clear shade": png(numbers(n), n, 0, shade) for n in (1, 2, 4, 8)},
        "gray and alpha": png(numbers(8, 2), 8, 4),
        "RGB": png(numbers(8, 3), 8, 2),
        "RGB and alpha": png(numbers(8, 4), 8, 6),
        "RGB of gamma": png(numbers(8, 3), 8, 2, gamma),
        "RGB of a linear gamma": png(numbers(8, 3), 8, 2, linear),
        "RGB of no gamma": png(numbers(8, 3), 8, 2, chunk(b"gAMA", bytes(4))),
        "RGB of a great gamma": png(numbers(8, 3), 8, 2, chunk(b"gAMA", b"\x7f\xff\xff\xff")),
        "sRGB": png(numbers(8, 3), 8, 2, chunk(b"sRGB", b"\0")),
        "palette": png(numbers(4), 4, 3, palette),
        "palette and alpha": png(numbers(4), 8, 3, palette, chunk(b"tRNS", bytes([0, 99]))),
        "palette of gamma": png(numbers(4), 4, 3, gamma, palette),
        "JPEG": jpeg("RGB"),
        "JPEG of full colours": jpeg("RGB", subsampling=0, quality=95),
        "progressive JPEG": jpeg("RGB", progressive=True),
        "gray JPEG": jpeg("L"),
    }


@pytest.mark.parametrize(("channels", "height", "width"), [(1, 17, 41), (3, 23, 31)])
def test_pixels_are_those_of_the_saved_model(channels, height, width, rng):
    made = files(rng)
    sizes = [f"image_height={height}", f"image_width={width}", f"image_channels={channels}"]
    source = ImageSource(override(load_preset("captcha"), [*sizes, "convolutions=3:2x2"]))
    for (name, contents), image in zip(
        made.items(), source.rows([*made.values()]).values, strict=True
    ):
        pixels = read_image(contents, height, width, channels)
        np.testing.assert_array_equal(pixels, image, err_msg=name)


def test_pixels_are_those_of_pillow_on_white_and_turned(rng):
    for name, contents in files(rng).items():
        with Image.open(io.BytesIO(contents)) as opened:
            image = ImageOps.exif_transpose(opened)
        if any(x in name for x in ("gamma", "sRGB", "bits", "gray 16", "2 of a", "4 of a")):
            continue  # as gray, and the test below; Pillow compares the clear shade with 8 bits
        shown = image.convert("RGBA")
        white = Image.new("RGBA", shown.size, "white")
        wanted = np.asarray(Image.alpha_composite(white, shown).convert("RGB")).astype(int)
        pixels = read_image(contents, *wanted.shape[:2], 3)
        # Pillow rounds otherwise, and its JPEGs go through another cosine transform.
        assert np.abs(pixels - wanted).max() <= (6 if "jpeg" in name.lower() else 1), name


def test_bits_that_no_pixel_uses_are_left_out():
    levels = np.arange(256).reshape(16, 16)
    for shift in (0, 2, 8):
        image = read_image(png(levels << shift, 16, 0), 16, 16, 1)[..., 0]
        np.testing.assert_array_equal(image, levels)
        opaque = np.stack([levels << shift, levels * 0 + 65535], axis=-1)
        np.testing.assert_array_equal(read_image(png(opaque, 16, 4), 16, 16, 1)[..., 0], levels)
        colors = np.stack([levels, levels.T, levels[::-1]], axis=-1)
        image = read_image(png(colors << shift, 16, 2), 16, 16, 3)
        np.testing.assert_array_equal(image, colors)


def test_what_cannot_be_read_is_said(rng):
    whole = files(rng)
    cmyk = io.BytesIO()
    Image.new("CMYK", (5, 7)).save(cmyk, format="JPEG")
    too_many = chunk(b"IHDR", struct.pack(">IIBBBBB", 5000, 5000, 8, 0, 0, 0, 0))
    for contents, message in (
        (b"", "is neither PNG nor JPEG"),
        (whole["RGB"][:-9], "is cut off"),
        (whole["JPEG"][:-9], "is cut off"),
        (whole["JPEG"][:30] + b"\xff\xd9", "cannot be decoded"),
        (whole["RGB"][:40] + whole["RGB"][-12:], "cannot be decoded"),
        (b"\x89PNG\r\n\x1a\n" + too_many, "has 5000 x 5000 pixels: expected"),
        (b"\x89PNG\r\n\x1a\n", "has 0 x 0 pixels"),
        (cmyk.getvalue(), "expected a JPEG in gray or RGB. Received: CMYK"),
    ):
        with pytest.raises(ValueError, match=message):
            read_image(contents, 5, 7, 1)


def test_images_of_all_sizes_are_resized_as_tensorflow_does(rng):
    sizes = [tf.TensorSpec([None] * 3, tf.uint8), tf.TensorSpec([2], tf.int32)]

    @tf.function(input_signature=sizes)
    def wanted(image, size):
        resized = tf.image.resize(image, size, antialias=True)
        return tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)

    for h, w, height, width in [*rng.integers(1, 130, (40, 4)).tolist(), [9, 14, 18, 7]]:
        image = rng.integers(0, 256, (h, w, 3)).astype("uint8")
        np.testing.assert_array_equal(resize(image, height, width), wanted(image, [height, width]))
