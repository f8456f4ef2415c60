"""Pixels of image files in Python and in a browser against those of a SavedModel."""

import contextlib
import io
import struct
import zlib

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from serving.portable.read._model import RUN_OPTIONS
from serving.portable.read._pixels import check_jpeg, check_png, read_image, resize
from tests.attack.conftest import within
from tests.serving.javascript import NODE, call, needs_node, refusals
from tests.serving.portable.read.pngs import chunk, interlaced_png, png
from training.command.errors import UserError
from training.config.schema import load_preset, override
from training.sources.image._source import ImageSource
from training.sources.image._whole import checksum

REFUSED = "cut off|cannot be decoded|pixels|neither PNG|JPEG in CMYK"
JPEG_OPTIONS = {"jpeg": {"quality": 95}}


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
        (cmyk.getvalue(), "is a JPEG in CMYK: convert it to RGB"),
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


def damaged(contents):
    """Files of a PNG with a changed bit, cut, or with a hole, and what an attacker makes of it."""
    size = len(contents)
    for place in [*range(8, 40), *range(40, 260, 11), *range(size - 20, size)]:
        yield contents[:place] + bytes([contents[place] ^ 1 << place % 8]) + contents[place + 1 :]
    yield from (contents[:place] for place in range(size - 30, size, 3))
    yield from (contents[:place] + contents[place + 3 :] for place in range(40, 300, 13))


def test_a_png_that_is_not_whole_is_refused_by_both(rng):
    """Whatever bit is changed, in what is decoded or in what says how it is read."""
    pixels = np.minimum(rng.integers(0, 256, (23, 31, 3)), np.arange(31)[:, None] * 8)
    gamma = chunk(b"gAMA", struct.pack(">I", 45_455))
    whole = png(pixels, 8, 2, gamma, chunk(b"tRNS", bytes([0, 1, 0, 2, 0, 3])))
    lines = zlib.compress(b"".join(b"\0" + bytes(93) for _ in range(22)))
    head, end = whole[:33], chunk(b"IEND", b"")
    others = [head + chunk(b"IDAT", lines) + end]  # a line is missing
    others += [head + chunk(b"ABCD", b"x") + whole[33:]]  # a part that a decoder must know
    others += [png(pixels[..., 0], 8, 3)]  # a palette is missing
    size = ["image_height=23", "image_width=31", "image_channels=3", "convolutions=3:2x2"]
    source = ImageSource(override(load_preset("captcha"), size))
    source.rows([whole, whole + b"trailing"])
    read_image(whole + b"trailing", 23, 31, 3)
    for contents in [*damaged(whole), *others]:
        with pytest.raises(ValueError, match=r"cut off|cannot be decoded|pixels|neither PNG"):
            read_image(contents, 23, 31, 3)
        with pytest.raises(UserError):
            source.rows([contents])


def test_a_jpeg_whose_segments_do_not_fit_is_refused_by_both(rng):
    size = ["image_height=53", "image_width=71", "image_channels=3", "convolutions=3:2x2"]
    source = ImageSource(override(load_preset("captcha"), size))
    for whole in (contents for name, contents in files(rng).items() if "JPEG" in name):
        scan = whole.index(b"\xff\xda")
        marks = [whole.index(bytes([0xFF, mark])) for mark in (0xE0, 0xDB, 0xC4)]
        broken = [whole[:-2], whole[: scan + 90], whole[: scan + 90] + b"\xff\x13\xff\xd9"]
        for mark in marks:  # the length of a segment, then bytes between two
            broken.append(whole[: mark + 3] + bytes([whole[mark + 3] ^ 1]) + whole[mark + 4 :])
            broken.append(whole[:mark] + b"\0" + whole[mark:])
        for contents in broken:
            with pytest.raises(ValueError, match=r"cut off|cannot be decoded|neither"):
                read_image(contents, 53, 71, 3)
            with pytest.raises(UserError):
                source.rows([contents])
        filled = whole[:scan] + b"\xff\xff" + whole[scan:]  # which may stand before a mark
        wanted = read_image(whole, 53, 71, 3)
        np.testing.assert_array_equal(read_image(filled, 53, 71, 3), wanted)
        np.testing.assert_array_equal(source.rows([filled]).values[0], wanted)


@pytest.mark.parametrize("size", [4, 5, 63, 64, 1000])
def test_a_checksum_is_that_of_zlib(size, rng):
    contents = rng.integers(0, 256, size).astype("uint8")
    assert int(checksum(tf.constant(contents))) == zlib.crc32(contents.tobytes())


@needs_node
def test_images_are_resized_as_by_the_local_reader(rng):
    sizes = ((31, 17, 3), (13, 29)), ((5, 7, 1), (11, 3))
    pairs = [(rng.integers(0, 256, dims).astype("uint8"), size) for dims, size in sizes]
    given = [[image.ravel().tolist(), image.shape, *size] for image, size in pairs]
    found = call("engine/pixels.js", "resize", given)
    for (image, size), pixels in zip(pairs, found, strict=True):
        np.testing.assert_array_equal(pixels, resize(image, *size).ravel())


@needs_node
def test_transparent_images_lie_on_white_as_with_the_local_reader(rng):
    pixels = rng.integers(0, 256, (7, 11, 4)).astype("uint8")
    pixels[0, :3, 3] = 0, 255, 255
    pixels[1, :, :3] = pixels[1, :, :1]
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    found = call("engine/pixels.js", "onWhite", [[pixels.ravel().tolist(), n] for n in (1, 3)])
    for channels, answer in zip((1, 3), found, strict=True):
        wanted = read_image(file.getvalue(), 7, 11, channels)
        np.testing.assert_array_equal(answer, wanted.ravel())


@needs_node
def test_files_that_are_not_whole_are_those_that_python_refuses(rng):
    """Browsers show them as far as they go."""
    whole = {**files(rng), "interlaced": interlaced_png()}
    broken = [
        *damaged(whole["RGB"]),
        *(whole["interlaced"][:n] for n in range(8, len(whole["interlaced"]))),
    ]
    for name in ("JPEG", "progressive JPEG"):
        contents = whole[name]
        changed = (
            contents[:n] + bytes([contents[n] ^ 16]) + contents[n + 1 :] for n in range(3, 700)
        )
        broken += [*changed, contents[:-1], contents[:200] + contents[210:]]
    given = [*whole.values(), *broken]
    found = refusals(given)
    deep = "has 16 bits a channel: expected 8 bits where there is no server"
    assert all(reason in ("", deep) for reason in found[: len(whole)])
    assert deep in found

    for contents, reason in zip(given, found, strict=True):
        check = check_jpeg if contents[:2] == b"\xff\xd8" else check_png
        if not reason:
            check(contents)
        elif reason != deep:
            with pytest.raises(ValueError, match=REFUSED):
                read_image(contents, 5, 7, 3)


def no_photographs():
    """Files that browsers or Pillow show, but no reader reads, by name."""
    noise = np.random.default_rng(1).integers(0, 256, (23, 31, 3), "uint8")
    frames = [Image.fromarray(noise), Image.fromarray(noise[::-1])]
    made = {}
    for name, form, mode, options in [
        ("CMYK", "JPEG", "CMYK", {}),
        ("progressive CMYK", "JPEG", "CMYK", {"progressive": True}),
        *[(form, form, "RGB", {}) for form in ("GIF", "BMP", "WEBP", "TIFF")],
        ("moving GIF", "GIF", "RGB", {"save_all": True, "append_images": frames[1:]}),
    ]:
        file = io.BytesIO()
        frames[0].convert(mode).save(file, form, **options)
        made[name] = file.getvalue()
    adobe = made["CMYK"].index(b"Adobe")  # its last byte says how colours are meant: YCCK
    made["YCCK"] = made["CMYK"][: adobe + 11] + b"\2" + made["CMYK"][adobe + 12 :]
    made["too large"] = png(np.zeros((1, 1)).astype(int), 8, 0).replace(
        b"IHDR" + bytes(3), b"IHDR\x7f" + bytes(2)
    )
    return made


@pytest.mark.parametrize("channels", [1, 3])
def test_all_readers_refuse_the_same_kinds_of_files(channels):
    made = no_photographs()
    sizes = ["image_height=5", "image_width=7", f"image_channels={channels}"]
    source = ImageSource(override(load_preset("captcha"), [*sizes, "convolutions=3:2x2"]))
    found = {name: [] for name in made}
    for name, contents in made.items():
        with pytest.raises(ValueError, match=REFUSED) as refused:
            read_image(contents, 5, 7, channels)
        with pytest.raises(UserError) as refused_by_graph:
            source.rows([contents])
        found[name] = [str(refused.value), str(refused_by_graph.value).removeprefix("image 1 ")]
    by_page = refusals(made.values()) if NODE else [None] * len(made)
    for (name, reasons), reason in zip(found.items(), by_page, strict=True):
        assert {*reasons, reason or reasons[0]} == {reasons[0]}, name


def test_a_png_of_many_chunks_is_read_in_time_that_grows_with_its_size(rng):
    pixels = rng.integers(0, 256, (512, 512))
    whole = png(pixels, 8, 0)
    raw = b"".join(b"\0" + bytes(row.tolist()) for row in pixels)
    data = zlib.compress(raw, 0)
    parts = b"".join(chunk(b"IDAT", data[n : n + 1]) for n in range(len(data)))
    many = whole[:33] + parts + whole[-12:]
    with within(4):  # of squares it would be minutes
        found = read_image(many, 32, 32, 1)
    np.testing.assert_array_equal(found, read_image(whole, 32, 32, 1))
    with within(8):  # Node's start included
        assert not NODE or refusals([many]) == [""]


@pytest.mark.parametrize(
    "middle",
    [
        b"\xff" * 1_000_000 + b"\0",
        b"\xff\0" * 500_000,
        b"\xff" * 1_000_000,
        b"\xff\xd0\0" * 300_000,
    ],
    ids=["one run", "data", "fill", "divided"],
)
@pytest.mark.parametrize("head", [b"\xff\xd8", b"\xff\xd8\xff\xda\0\2"], ids=["header", "scan"])
def test_a_jpeg_of_one_byte_is_checked_in_time_that_grows_with_its_size(head, middle):
    with within(4), contextlib.suppress(ValueError):  # of squares it would be half an hour
        check_jpeg(head + middle + b"\xff\xd9")
    if NODE:
        with within(8):
            refusals([head + middle + b"\xff\xd9"])


def test_a_png_of_many_chunks_is_given_up_where_nobody_waits(rng):
    stopped = onnxruntime.RunOptions()
    stopped.terminate = True
    token = RUN_OPTIONS.set(stopped)
    try:
        with pytest.raises(ValueError, match="the run was stopped"):
            read_image(png(rng.integers(0, 256, (3, 5)), 8, 0), 5, 7, 1)
    finally:
        RUN_OPTIONS.reset(token)
