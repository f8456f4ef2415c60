"""PNG files with odd chunks: TensorFlow, Python and the page read and reject the same files."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from serving.portable.read._pixels import read_image
from tests.serving.javascript import NODE, refusals
from tests.serving.portable.read.pngs import chunk, png
from training.command.errors import UserError
from training.config.schema import load_preset, override
from training.sources.image._source import ImageSource

SIZE = 5, 7
RNG = np.random.default_rng(1)
RGB = RNG.integers(0, 256, (*SIZE, 3))
GRAY, SHADES = RGB[..., 0], RNG.integers(0, 16, SIZE)
LARGE = zlib.compress(b"x" * 3_000_000)  # more than Pillow reads of a text
LARGE_TEXT, TEXT = chunk(b"zTXt", b"k\0\0" + LARGE), chunk(b"tEXt", b"k\0v")
PALETTE = chunk(b"PLTE", bytes(range(48)))
GAMMA, LINEAR = (chunk(b"gAMA", struct.pack(">I", number)) for number in (45_455, 100_000))
CLEAR = [chunk(b"tRNS", struct.pack(">HHH", *RGB[n, n].tolist())) for n in range(2)]


def of_chunks(*kinds, header=(8, 2, 0, 0, 0), rows=None):
    """A file with these chunks; "rows" is the chunk of the pixels."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", *SIZE[::-1], *header))
    rows = (
        b"".join(b"\0" + bytes(row) for row in RGB.reshape(5, -1).tolist())
        if rows is None
        else rows
    )
    packed = zlib.compress(rows)
    parts = {"head": head, "rows": chunk(b"IDAT", packed), "end": chunk(b"IEND", b"")}
    parts |= {"first": chunk(b"IDAT", packed[:20]), "others": chunk(b"IDAT", packed[20:])}
    parts |= {"none": chunk(b"IDAT", b"")}
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts.get(x, x) for x in kinds)


def with_text(compressed):
    info, file = PngImagePlugin.PngInfo(), io.BytesIO()
    info.add_itxt("XML:com.adobe.xmp", "v" * 2_000_000, zip=compressed)
    Image.fromarray(RGB.astype("uint8")).save(file, "PNG", pnginfo=info)
    return file.getvalue()


READ = {
    "a large text": png(RGB, 8, 2, LARGE_TEXT),
    "a large profile": png(RGB, 8, 2, chunk(b"iCCP", b"k\0\0" + LARGE)),
    "metadata of a photograph": with_text(False),
    "compressed metadata": with_text(True),
    "a large text after the pixels": of_chunks(
        "head", "rows", chunk(b"zTXt", b"k\0\0" + LARGE), "end"
    ),
    **{
        f"a bad {kind.decode()}": png(RGB, 8, 2, chunk(kind, content))
        for kind, content in {
            **{b"iCCP": b"k\0\1", b"pHYs": b"1", b"gAMA": b"1", b"cHRM": b"1", b"sRGB": b""},
            **{b"tRNS": b"\0", b"acTL": b"", b"tEXt": b"", b"tIME": b"1", b"eXIf": b"xx"},
        }.items()
    },
    "gamma after the pixels": of_chunks("head", "rows", GAMMA, "end"),
    "a clear colour after the pixels": of_chunks("head", "rows", CLEAR[0], "end"),
    "two gammas": png(RGB, 8, 2, GAMMA, LINEAR),
    "a gamma after a bad one": png(RGB, 8, 2, chunk(b"gAMA", b"1"), GAMMA),
    "a gamma after a palette": png(RGB, 8, 2, PALETTE, GAMMA),
    "a bad sRGB and a gamma": png(RGB, 8, 2, chunk(b"sRGB", b"\t"), GAMMA),
    "a gamma and a bad sRGB": png(RGB, 8, 2, GAMMA, chunk(b"sRGB", b"\t")),
    "two clear colours": png(RGB, 8, 2, *CLEAR),
    "a clear colour after a bad one": png(RGB, 8, 2, chunk(b"tRNS", b"\0"), CLEAR[1]),
    "a clear colour in a text": png(RGB, 8, 2, chunk(b"tEXt", b"k\0 tRNS"), GAMMA),
    "shades beyond the palette": png(SHADES + 20, 8, 3, PALETTE),
    "clear shades before the palette": png(SHADES, 8, 3, chunk(b"tRNS", b"\0\x50"), PALETTE),
    "clear shades beyond the palette": png(SHADES, 8, 3, PALETTE, chunk(b"tRNS", bytes(17))),
    "a palette of gray": png(GRAY, 8, 0, PALETTE),
    "a palette after the pixels": of_chunks("head", "rows", PALETTE, "end"),
    "pixels in two parts": of_chunks("head", "first", "others", "end"),
    "an empty part of the pixels": of_chunks("head", "none", "rows", "end"),
    "an end with content": of_chunks("head", "rows", chunk(b"IEND", b"xx"), "end"),
}
REFUSED = {
    "a text within the pixels": of_chunks("head", "first", TEXT, "others", "end"),
    "two headers": of_chunks("head", "head", "rows", "end"),
    "another compression": of_chunks("head", "rows", "end", header=(8, 2, 1, 0, 0)),
    "other filters": of_chunks("head", "rows", "end", header=(8, 2, 0, 64, 0)),
    "other passes": of_chunks("head", "rows", "end", header=(8, 2, 0, 0, 2)),
    "three bits": of_chunks("head", "rows", "end", header=(3, 0, 0, 0, 0)),
    "a colour of no kind": of_chunks("head", "rows", "end", header=(8, 5, 0, 0, 0)),
    "a row of no filter": of_chunks(
        "head", "rows", "end", rows=b"\t".join([b"\0" + bytes(21)] + [bytes(21)] * 4)
    ),
    "two palettes": png(SHADES, 8, 3, PALETTE, PALETTE),
    "two palettes of colours": png(RGB, 8, 2, PALETTE, PALETTE),
    **{f"a palette of {n}": png(SHADES, 8, 3, chunk(b"PLTE", bytes(n))) for n in (0, 47, 771)},
    "a critical part after the pixels": of_chunks("head", "rows", chunk(b"ABCD", b""), "end"),
}


@pytest.mark.parametrize("channels", [1, 3])
def test_all_readers_read_and_reject_the_same_chunks(channels):
    sizes = ["image_height=5", "image_width=7", f"image_channels={channels}"]
    source = ImageSource(override(load_preset("captcha"), [*sizes, "convolutions=3:2x2"]))
    for name, contents in READ.items():
        wanted = source.rows([contents]).values[0]
        np.testing.assert_array_equal(read_image(contents, 5, 7, channels), wanted, name)
    for name, contents in REFUSED.items():
        with pytest.raises(UserError) as refused:
            source.rows([contents])
        with pytest.raises(ValueError, match="cannot be decoded"):
            read_image(contents, 5, 7, channels)
        assert "cannot be decoded" in str(refused.value), name
    if NODE:
        found = refusals([*READ.values(), *REFUSED.values()])
        assert found == [""] * len(READ) + ["cannot be decoded"] * len(REFUSED)


def test_a_file_is_cut_off_without_its_end_and_may_have_more_behind_it():
    file = io.BytesIO()
    Image.fromarray(RGB.astype("uint8")).save(file, "JPEG")
    whole = [png(RGB, 8, 2), file.getvalue()]
    cut = [contents[:-9] for contents in whole]
    longer = [contents + 300 * b"\0film\xff" for contents in whole]  # a phone's moving photograph
    sizes = ["image_height=5", "image_width=7", "image_channels=3", "convolutions=3:2x2"]
    source = ImageSource(override(load_preset("captcha"), sizes))
    for contents in cut:
        with pytest.raises(ValueError, match="is cut off: its end is missing"):
            read_image(contents, 5, 7, 3)
        with pytest.raises(UserError, match="is cut off: its end is missing"):
            source.rows([contents])
    for contents, known in zip(longer, whole, strict=True):
        wanted = source.rows([known]).values[0]
        np.testing.assert_array_equal(source.rows([contents]).values[0], wanted)
        np.testing.assert_array_equal(read_image(contents, 5, 7, 3), wanted)
    found = refusals([*cut, *longer]) if NODE else []
    assert not NODE or found == ["is cut off: its end is missing"] * 2 + [""] * 2
