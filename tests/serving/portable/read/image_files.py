"""Image files of every kind, by name: what all readers read, and what all of them reject."""

import io
import struct
import zlib

import numpy as np
from PIL import Image, PngImagePlugin

SIGNATURE = b"\x89PNG\r\n\x1a\n"
RNG = np.random.default_rng(1)
HEIGHT, WIDTH = 23, 31


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def head(width, height, depth, color, *more):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, *more or (0, 0, 0)))


END = chunk(b"IEND", b"")


def png(values, depth, color, *more):
    """A PNG of rows of numbers that fill `depth` bits each, with more chunks before the pixels."""
    height, width = values.shape[:2]
    rows = []
    for row in values.reshape(height, -1):
        bits = "".join(format(value, f"0{depth}b") for value in row.tolist())
        bits += "0" * (-len(bits) % 8)
        rows.append(b"\0" + int(bits, 2).to_bytes(len(bits) // 8, "big"))
    body = chunk(b"IDAT", zlib.compress(b"".join(rows)))
    return SIGNATURE + head(width, height, depth, color) + b"".join(more) + body + END


def interlaced_png():
    """A PNG in seven passes of which each second, fourth or eighth pixel is a part."""
    sizes = [(3, 4), (3, 4), (3, 8), (6, 8), (6, 16), (12, 15), (11, 31)]  # of 23 x 31 pixels
    lines = b"".join((b"\0" + bytes(columns)) * rows for rows, columns in sizes)
    header = head(WIDTH, HEIGHT, 8, 0, 0, 0, 1)
    return SIGNATURE + header + chunk(b"IDAT", zlib.compress(lines)) + END


def numbers(depth, *channels):
    return RNG.integers(0, 1 << depth, (HEIGHT, WIDTH, *channels))


def saved(image, form, **options):
    """The contents of a file that Pillow writes."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def jpeg(mode, **options):
    shades = np.add.outer(np.arange(53) * 3, np.arange(71) * 2)[..., None]
    noisy = np.clip(shades + RNG.normal(0, 25, (53, 71, 3)), 0, 255).astype("uint8")
    return saved(Image.fromarray(noisy).convert(mode), "JPEG", **options)


def turned(form, orientation, order):
    exif = Image.Exif()
    exif.endian, exif[0x010F], exif[0x0112] = order, "maker", orientation
    shades = np.add.outer(np.arange(HEIGHT) * 5, np.arange(WIDTH) * 3).astype("uint8")
    options = {"quality": 95} if form == "jpeg" else {}
    return saved(Image.fromarray(shades), form, exif=exif.tobytes(), **options)


COLORS, SHADES = numbers(8, 3), numbers(4)
GRAY = COLORS[..., 0]
LARGE = zlib.compress(b"x" * 3_000_000)  # more than Pillow reads of a text
LARGE_TEXT, TEXT = chunk(b"zTXt", b"k\0\0" + LARGE), chunk(b"tEXt", b"k\0v")
PALETTE, COLORFUL = chunk(b"PLTE", bytes(range(48))), chunk(b"PLTE", RNG.bytes(48))
GAMMA, LINEAR = (chunk(b"gAMA", struct.pack(">I", number)) for number in (45_455, 100_000))
CLEAR = [chunk(b"tRNS", struct.pack(">HHH", *COLORS[n, n].tolist())) for n in range(2)]
STRIPES = np.tile([[1, 2, 3], [3, 2, 1]], (HEIGHT, 20, 1))
STRIPE = chunk(b"tRNS", bytes([0, 1, 0, 2, 0, 3]))


def rgb(*more):
    return png(COLORS, 8, 2, *more)


def clear_shade(depth):
    return png(numbers(depth), depth, 0, chunk(b"tRNS", b"\0\1"))


def palette(*more, values=SHADES, depth=8):
    return png(values, depth, 3, *more)


def of_chunks(names, header=(8, 2, 0, 0, 0), rows=None, **more):
    """A file with these chunks: "rows" has the pixels, which "first" and "others" share."""
    lines = [b"\0" + bytes(row) for row in COLORS.reshape(HEIGHT, -1).tolist()]
    packed = zlib.compress(b"".join(lines) if rows is None else rows)
    parts = {"head": head(WIDTH, HEIGHT, *header), "end": END, "none": chunk(b"IDAT", b"")}
    for name, data in {"rows": packed, "first": packed[:20], "others": packed[20:]}.items():
        parts[name] = chunk(b"IDAT", data)
    return SIGNATURE + b"".join((parts | more)[name] for name in names.split())


def with_text(compressed):
    info = PngImagePlugin.PngInfo()
    info.add_itxt("XML:com.adobe.xmp", "v" * 2_000_000, zip=compressed)
    return saved(Image.fromarray(COLORS.astype("uint8")), "PNG", pnginfo=info)


# What Pillow reads as we do: it compares clear shades with eight bits, and knows no gamma.
PLAIN = {
    **{f"gray {depth}": png(numbers(depth), depth, 0) for depth in (1, 2, 4, 8)},
    **{
        f"{form} {order} {n}": turned(form, n, order)
        for form in ("jpeg", "png")
        for order, n in [*(("<", n) for n in range(1, 9)), (">", 6), ("<", 9)]
    },
    "RGB of a clear colour": png(STRIPES, 8, 2, STRIPE),
    **{f"gray {n} of a clear shade": clear_shade(n) for n in (1, 8)},
    "gray and alpha": png(numbers(8, 2), 8, 4),
    "RGB": rgb(),
    "RGB and alpha": png(numbers(8, 4), 8, 6),
    "palette": palette(COLORFUL, depth=4),
    "palette and alpha": palette(COLORFUL, chunk(b"tRNS", bytes([0, 99]))),
    "JPEG": jpeg("RGB"),
    "JPEG of full colours": jpeg("RGB", subsampling=0, quality=95),
    "progressive JPEG": jpeg("RGB", progressive=True),
    "gray JPEG": jpeg("L"),
    "JPEG with fill before a mark": jpeg("L").replace(b"\xff\xda", b"\xff\xff\xff\xda", 1),
}
READ = PLAIN | {
    "gray 16": png(numbers(16), 16, 0),
    "ten bits": png(numbers(10), 16, 0),
    "ten bits of a clear colour": png(numbers(10), 16, 0, chunk(b"tRNS", b"\0\7")),
    **{f"{n} bits of RGB": png(numbers(n, 3), 16, 2) for n in (7, 11, 16)},
    "11 bits of RGB and alpha": png(numbers(11, 4) * [1, 1, 1, 32], 16, 6),
    "16 bits of gray and alpha": png(numbers(16, 2), 16, 4),
    "11 bits of gray and alpha": png(numbers(11, 2) * [1, 32], 16, 4),
    **{f"gray {n} of a clear shade": clear_shade(n) for n in (2, 4)},
    "interlaced": interlaced_png(),
    "trailing bytes": rgb() + b"trailing",
    "gamma": rgb(GAMMA),
    "another gamma": rgb(chunk(b"gAMA", struct.pack(">I", 99_000))),
    "no gamma": rgb(chunk(b"gAMA", bytes(4))),
    "a great gamma": rgb(chunk(b"gAMA", b"\x7f\xff\xff\xff")),
    "sRGB": rgb(chunk(b"sRGB", b"\0")),
    "palette of gamma": palette(GAMMA, COLORFUL, depth=4),
    "a large text": rgb(LARGE_TEXT),
    "a large profile": rgb(chunk(b"iCCP", b"k\0\0" + LARGE)),
    "metadata of a photograph": with_text(False),
    "compressed metadata": with_text(True),
    "a large text after the pixels": of_chunks("head rows text end", text=LARGE_TEXT),
    **{
        f"a bad {kind.decode()}": rgb(chunk(kind, content))
        for kind, content in {
            **{b"iCCP": b"k\0\1", b"pHYs": b"1", b"gAMA": b"1", b"cHRM": b"1", b"sRGB": b""},
            **{b"tRNS": b"\0", b"acTL": b"", b"tEXt": b"", b"tIME": b"1", b"eXIf": b"xx"},
        }.items()
    },
    "gamma after the pixels": of_chunks("head rows gamma end", gamma=GAMMA),
    "a clear colour after the pixels": of_chunks("head rows clear end", clear=CLEAR[0]),
    "two gammas": rgb(GAMMA, LINEAR),
    "a gamma after a bad one": rgb(chunk(b"gAMA", b"1"), GAMMA),
    "a gamma after a palette": rgb(PALETTE, GAMMA),
    "a bad sRGB and a gamma": rgb(chunk(b"sRGB", b"\t"), GAMMA),
    "a gamma and a bad sRGB": rgb(GAMMA, chunk(b"sRGB", b"\t")),
    "two clear colours": rgb(*CLEAR),
    "a clear colour after a bad one": rgb(chunk(b"tRNS", b"\0"), CLEAR[1]),
    "a clear colour in a text": rgb(chunk(b"tEXt", b"k\0 tRNS"), GAMMA),
    "shades beyond the palette": palette(PALETTE, values=SHADES + 20),
    "clear shades before the palette": palette(chunk(b"tRNS", b"\0\x50"), PALETTE),
    "clear shades beyond the palette": palette(PALETTE, chunk(b"tRNS", bytes(17))),
    "a palette of gray": png(GRAY, 8, 0, PALETTE),
    "a palette after the pixels": of_chunks("head rows palette end", palette=PALETTE),
    "pixels in two parts": of_chunks("head first others end"),
    "an empty part of the pixels": of_chunks("head none rows end"),
    "an end with content": of_chunks("head rows last", last=chunk(b"IEND", b"xx")),
}

FILM = 300 * b"\0film\xff"  # which a phone appends to a moving photograph
READ |= {"pixels before a film": READ["RGB"] + FILM, "a photograph": READ["JPEG"] + FILM}

FRAMES = [Image.fromarray(RNG.integers(0, 256, (HEIGHT, WIDTH, 3), "uint8")) for _ in range(2)]
CMYK = saved(FRAMES[0].convert("CMYK"), "JPEG")
ADOBE = CMYK.index(b"Adobe") + 11  # this byte says how colours are meant: YCCK
NO_FILTER = b"\t".join([b"\0" + bytes(3 * WIDTH)] + [bytes(3 * WIDTH)] * (HEIGHT - 1))
REJECTED = {
    "is neither PNG nor JPEG": {
        "nothing": b"",
        **{form: saved(FRAMES[0], form) for form in ("GIF", "BMP", "WEBP", "TIFF")},
        "a moving GIF": saved(FRAMES[0], "GIF", save_all=True, append_images=FRAMES[1:]),
    },
    "is a JPEG in CMYK: convert it to RGB": {
        "CMYK": CMYK,
        "progressive CMYK": saved(FRAMES[0].convert("CMYK"), "JPEG", progressive=True),
        "YCCK": CMYK[:ADOBE] + b"\2" + CMYK[ADOBE + 1 :],
    },
    "has 5000 x 5000 pixels: expected": {"5000 x 5000": SIGNATURE + head(5000, 5000, 8, 0)},
    "has 2130706433 x 1 pixels: expected": {
        "a wide one": png(GRAY[:1, :1], 8, 0).replace(b"IHDR" + bytes(3), b"IHDR\x7f" + bytes(2))
    },
    "is cut off: its end is missing": {
        "half a PNG": rgb()[:-9],
        "half a JPEG": READ["JPEG"][:-9],
    },
    "cannot be decoded": {
        "a JPEG without a frame": READ["JPEG"][:30] + b"\xff\xd9",
        "no pixels": rgb()[:40] + rgb()[-12:],
        "a missing row": of_chunks("head rows end", rows=bytes(1 + 3 * WIDTH) * (HEIGHT - 1)),
        "a missing palette": palette(),
        "an unknown part": rgb(chunk(b"ABCD", b"x")),
        "an unknown part after the pixels": of_chunks("head rows x end", x=chunk(b"ABCD", b"")),
        "a text within the pixels": of_chunks("head first text others end", text=TEXT),
        "two headers": of_chunks("head head rows end"),
        "another compression": of_chunks("head rows end", header=(8, 2, 1, 0, 0)),
        "other filters": of_chunks("head rows end", header=(8, 2, 0, 64, 0)),
        "other passes": of_chunks("head rows end", header=(8, 2, 0, 0, 2)),
        "three bits": of_chunks("head rows end", header=(3, 0, 0, 0, 0)),
        "a colour of no kind": of_chunks("head rows end", header=(8, 5, 0, 0, 0)),
        "a row of no filter": of_chunks("head rows end", rows=NO_FILTER),
        "two palettes": palette(PALETTE, PALETTE),
        "two palettes of colours": rgb(PALETTE, PALETTE),
        **{f"a palette of {n}": palette(chunk(b"PLTE", bytes(n))) for n in (0, 47, 771)},
    },
}
