"""Image files: a SavedModel's graph, Python and the page read and reject the same ones."""

import contextlib
import io
import zlib
from functools import cache

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from serving.portable.read._model import RUN_OPTIONS
from serving.portable.read._pixels import check_jpeg, check_png, read_image, resize
from tests.attack.conftest import within
from tests.serving.javascript import NODE, call, needs_node, refusals
from tests.serving.portable.read.image_files import (
    END,
    GAMMA,
    PLAIN,
    READ,
    REJECTED,
    SIGNATURE,
    STRIPE,
    chunk,
    png,
    saved,
)
from training.command.errors import UserError
from training.config.schema import load_preset, override
from training.sources.image._source import ImageSource
from training.sources.image._whole import checksum

DEEP = "has 16 bits a channel: expected 8 bits where there is no server"


@cache
def source_of(height, width, channels):
    """The source of images whose graph is a SavedModel's."""
    sizes = [f"image_height={height}", f"image_width={width}", f"image_channels={channels}"]
    return ImageSource(override(load_preset("captcha"), [*sizes, "convolutions=3:2x2"]))


def reasons(contents, source, size):
    """Why a file cannot be read, in Python and in the graph."""
    with pytest.raises(ValueError, match=r"^is |^has |^cannot ") as refused:
        read_image(contents, *size)
    with pytest.raises(UserError) as refused_by_graph:
        source.rows([contents])
    return str(refused.value), str(refused_by_graph.value).removeprefix("image 1 ")


@pytest.mark.parametrize("size", [(17, 41, 1), (23, 31, 3)], ids=str)
def test_all_readers_read_and_reject_the_same_files(size):
    source = source_of(*size)
    for (name, contents), wanted in zip(
        READ.items(), source.rows([*READ.values()]).values, strict=True
    ):
        np.testing.assert_array_equal(read_image(contents, *size), wanted, name)
    rejected = [(x, file) for x, files in REJECTED.items() for file in files.items()]
    by_page = refusals([*READ.values(), *(each for _, (_, each) in rejected)]) if NODE else []
    for name, reason in zip(READ, by_page, strict=False):
        assert reason in ("", DEEP), name
    assert not NODE or DEEP in by_page
    by_page = by_page[len(READ) :] or [None] * len(rejected)
    for (message, (name, contents)), said in zip(rejected, by_page, strict=True):
        found = reasons(contents, source, size)
        assert found[0].startswith(message), name
        assert {*found, said or found[0]} == {found[0]}, name


def flipped(contents, place, bit):
    return contents[:place] + bytes([contents[place] ^ bit]) + contents[place + 1 :]


def damaged(contents):
    """A PNG with a changed bit, cut, or with a hole."""
    size = len(contents)
    for place in [*range(8, 40), *range(40, 260, 11), *range(size - 20, size)]:
        yield flipped(contents, place, 1 << place % 8)
    yield from (contents[:place] for place in range(size - 30, size, 3))
    yield from (contents[:place] + contents[place + 3 :] for place in range(40, 300, 13))


def test_files_that_are_not_whole_are_rejected_by_all(rng):
    """Whatever bit is changed; browsers show a file as far as it goes."""
    pixels = np.minimum(rng.integers(0, 256, (23, 31, 3)), np.arange(31)[:, None] * 8)
    broken = [*damaged(png(pixels, 8, 2, GAMMA, STRIPE))]
    for whole in (contents for name, contents in READ.items() if "JPEG" in name):
        scan = whole.index(b"\xff\xda")
        broken += [whole[:-2], whole[: scan + 90], whole[: scan + 90] + b"\xff\x13\xff\xd9"]
        for mark in (whole.index(bytes([0xFF, each])) for each in (0xE0, 0xDB, 0xC4)):
            # The length of a segment, then bytes between two.
            broken += [flipped(whole, mark + 3, 1), whole[:mark] + b"\0" + whole[mark:]]
    source = source_of(23, 31, 3)
    for contents in broken:
        reasons(contents, source, (23, 31, 3))
    given = [each[:n] for each in (READ["interlaced"],) for n in range(8, len(each))]
    given += damaged(READ["RGB"])
    for whole in (READ["JPEG"], READ["progressive JPEG"]):
        given += [flipped(whole, n, 16) for n in range(3, 700)]
        given += [whole[:-1], whole[:200] + whole[210:]]
    for contents, said in zip(given, refusals(given) if NODE else [], strict=NODE is not None):
        if not said:  # what the page reads is whole in Python, too
            (check_jpeg if contents[:2] == b"\xff\xd8" else check_png)(contents)
        elif said != DEEP:
            with pytest.raises(ValueError, match=r"^is |^has |^cannot "):
                read_image(contents, 5, 7, 3)
    with pytest.raises(ValueError, match="has 0 x 0 pixels"):
        read_image(SIGNATURE, 5, 7, 1)


def test_pixels_are_those_of_pillow_on_white_and_turned():
    for name, contents in PLAIN.items():
        with Image.open(io.BytesIO(contents)) as opened:
            shown = ImageOps.exif_transpose(opened).convert("RGBA")
        white = Image.new("RGBA", shown.size, "white")
        wanted = np.asarray(Image.alpha_composite(white, shown).convert("RGB")).astype(int)
        pixels = read_image(contents, *wanted.shape[:2], 3)
        # Pillow rounds otherwise, and its JPEGs go through another cosine transform.
        assert np.abs(pixels - wanted).max() <= (6 if "jpeg" in name.lower() else 1), name


def test_bits_that_no_pixel_uses_are_left_out():
    levels = np.arange(256).reshape(16, 16)
    opaque, colors = np.stack([levels, levels.T, levels[::-1]], axis=-1), levels * 0 + 65535
    for shift in (0, 2, 8):
        alpha = np.stack([levels << shift, colors], axis=-1)
        for image, color in ((levels << shift, 0), (alpha, 4)):
            found = read_image(png(image, 16, color), 16, 16, 1)[..., 0]
            np.testing.assert_array_equal(found, levels)
        np.testing.assert_array_equal(read_image(png(opaque << shift, 16, 2), 16, 16, 3), opaque)


def test_images_of_all_sizes_are_resized_as_tensorflow_does(rng):
    sizes = [tf.TensorSpec([None] * 3, tf.uint8), tf.TensorSpec([2], tf.int32)]

    @tf.function(input_signature=sizes)
    def by_tensorflow(image, size):
        resized = tf.image.resize(image, size, antialias=True)
        return tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)

    given = []
    for h, w, height, width in [*rng.integers(1, 130, (40, 4)).tolist(), [9, 14, 18, 7]]:
        image = rng.integers(0, 256, (h, w, 3)).astype("uint8")
        wanted = by_tensorflow(image, [height, width]).numpy()
        np.testing.assert_array_equal(resize(image, height, width), wanted)
        given.append(([image.ravel().tolist(), image.shape, height, width], wanted))
    some = given[:2] + given[-1:]
    found = call("engine/pixels.js", "resize", [each for each, _ in some]) if NODE else []
    for pixels, (_, wanted) in zip(found, some, strict=False):
        np.testing.assert_array_equal(pixels, wanted.ravel())


@needs_node
def test_transparent_images_lie_on_white_in_the_page_too(rng):
    pixels = rng.integers(0, 256, (7, 11, 4)).astype("uint8")
    pixels[0, :3, 3] = 0, 255, 255
    pixels[1, :, :3] = pixels[1, :, :1]
    found = call("engine/pixels.js", "onWhite", [[pixels.ravel().tolist(), n] for n in (1, 3)])
    for channels, answer in zip((1, 3), found, strict=True):
        wanted = read_image(saved(Image.fromarray(pixels), "png"), 7, 11, channels)
        np.testing.assert_array_equal(answer, wanted.ravel())


def test_a_checksum_is_that_of_zlib(rng):
    for size in (4, 5, 63, 64, 1000):
        contents = rng.integers(0, 256, size).astype("uint8")
        assert int(checksum(tf.constant(contents))) == zlib.crc32(contents.tobytes())


def test_files_are_checked_in_time_that_grows_with_their_size(rng):
    """A PNG of many chunks, and JPEGs of one byte again and again; of squares it is minutes."""
    pixels = rng.integers(0, 256, (512, 512))
    whole, raw = png(pixels, 8, 0), b"".join(b"\0" + bytes(row.tolist()) for row in pixels)
    data = zlib.compress(raw, 0)
    parts = b"".join(chunk(b"IDAT", data[n : n + 1]) for n in range(len(data)))
    many = whole[:33] + parts + END
    with within(4):
        found = read_image(many, 32, 32, 1)
    np.testing.assert_array_equal(found, read_image(whole, 32, 32, 1))
    runs = b"\xff" * 1_000_000, b"\xff\0" * 500_000, b"\xff\xd0\0" * 300_000
    heads = b"\xff\xd8", b"\xff\xd8\xff\xda\0\2"
    runs = *runs, runs[0] + b"\0"
    given = [head + run + b"\xff\xd9" for head in heads for run in runs]
    for contents in given:
        with within(4), contextlib.suppress(ValueError):
            check_jpeg(contents)
    if NODE:
        with within(20):
            assert refusals([many, *given])[0] == ""


def test_a_png_is_given_up_where_nobody_waits(rng):
    stopped = onnxruntime.RunOptions()
    stopped.terminate = True
    token = RUN_OPTIONS.set(stopped)
    try:
        with pytest.raises(ValueError, match="the run was stopped"):
            read_image(png(rng.integers(0, 256, (3, 5)), 8, 0), 5, 7, 1)
    finally:
        RUN_OPTIONS.reset(token)
