"""PNG files of any chunks."""

import struct
import zlib


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


def interlaced_png():
    """A PNG in seven passes of which each second, fourth or eighth pixel is a part."""
    sizes = [(3, 4), (3, 4), (3, 8), (6, 8), (6, 16), (12, 15), (11, 31)]  # of 23 x 31 pixels
    lines = b"".join((b"\0" + bytes(columns)) * rows for rows, columns in sizes)
    header = struct.pack(">IIBBBBB", 31, 23, 8, 0, 0, 0, 1)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
