"""The browser's reader of images, in Node, against `LocalReader`."""

import base64
import contextlib
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from serving.portable.read import pixels
from serving.portable.read.pixels import read_image, resize
from tests.serving.javascript import needs_node, run
from tests.serving.portable.read.test_pixels import chunk, damaged, files

pytestmark = needs_node
RESIZE = """
import { readFileSync } from "node:fs";
import { resize } from "engine/pixels.js";
const { pixels, dims, size } = JSON.parse(readFileSync(0, "utf8"));
const found = resize(Float32Array.from(pixels), dims, ...size);
process.stdout.write(JSON.stringify(Array.from(found)));
"""
ON_WHITE = """
import { readFileSync } from "node:fs";
import { onWhite } from "engine/pixels.js";
const { data, channels } = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(Array.from(onWhite(Uint8Array.from(data), channels))));
"""


@pytest.mark.parametrize(("dims", "size"), [((31, 17, 3), (13, 29)), ((5, 7, 1), (11, 3))])
def test_images_are_resized_as_by_the_local_reader(dims, size, rng):
    pixels = rng.integers(0, 256, dims).astype("uint8")
    given = {"pixels": pixels.ravel().tolist(), "dims": dims, "size": size}
    np.testing.assert_array_equal(run(RESIZE, given=given), resize(pixels, *size).ravel())


@pytest.mark.parametrize("channels", [1, 3])
def test_transparent_images_lie_on_white_as_with_the_local_reader(channels, rng):
    pixels = rng.integers(0, 256, (7, 11, 4)).astype("uint8")
    pixels[0, :3, 3] = 0, 255, 255
    pixels[1, :, :3] = pixels[1, :, :1]
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    given = {"data": pixels.ravel().tolist(), "channels": channels}
    wanted = read_image(file.getvalue(), 7, 11, channels)
    np.testing.assert_array_equal(run(ON_WHITE, given=given), wanted.ravel())


WHOLE = """
import { readFileSync } from "node:fs";
import { isWhole } from "engine/whole.js";
const read = (text) => new Uint8Array(Buffer.from(text, "base64"));
const files = JSON.parse(readFileSync(0, "utf8")).map(read);
process.stdout.write(JSON.stringify(await Promise.all(files.map(isWhole))));
"""


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
    found = run(WHOLE, given=[base64.b64encode(each).decode() for each in given])
    assert all(found[: len(whole)])

    for contents, whole in zip(given, found, strict=True):
        check = pixels.check_jpeg if contents[:2] == b"\xff\xd8" else pixels.check_png
        with contextlib.nullcontext() if whole else pytest.raises(ValueError, match="c"):
            check(contents)


def interlaced_png():
    """A PNG in seven passes of which each second, fourth or eighth pixel is a part."""
    sizes = [(3, 4), (3, 4), (3, 8), (6, 8), (6, 16), (12, 15), (11, 31)]  # of 23 x 31 pixels
    lines = b"".join((b"\0" + bytes(columns)) * rows for rows, columns in sizes)
    header = struct.pack(">IIBBBBB", 31, 23, 8, 0, 0, 0, 1)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
