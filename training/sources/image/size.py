"""The size at which images are read, and that of the grid that convolutions make of them."""

from __future__ import annotations

import math
import re
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np

from training.command.errors import ConfigError
from training.config.schema import Config
from training.data.pair_files import Split

SURVEYED = 500  # images
ENOUGH = 1.5  # columns of the grid for a character
MOST_PIXELS = 1 << 17  # at which images are read unless somebody says so
SQUEEZED = 1.5  # times that a side is shortened against the other, beyond which it is told
# The frame of a JPEG; a thumbnail has one of its own.
_FRAME = re.compile(rb"\xff[\xc0-\xc2]\0[\x0b\x11\x14]\x08(..)(..)", re.DOTALL)


def parse_convolutions(config: Config) -> list[tuple[int, int, int, int]]:
    """Return filters and kernel of each convolution, and the pooling after it, down and across.

    `convolutions` says them as `FILTERS:DOWNxACROSS`, or `FILTERSkKERNEL:DOWNxACROSS`.
    """
    layers = []
    for word in config.convolutions.split() or [""]:
        match = re.fullmatch(r"([1-9]\d*)(?:k([1-9]))?:([1-9]\d*)x([1-9]\d*)", word)
        if match is None:
            raise ConfigError(
                "convolutions expected FILTERS:DOWNxACROSS for each, such as 32:2x2 64k5:2x1. "
                f"Received: {config.convolutions}"
            )
        filters, kernel, down, across = (int(number or 3) for number in match.groups())
        layers.append((filters, kernel, down, across))
    return layers


def grid_size(config: Config) -> tuple[int, int]:
    """Return height and width of the grid that is attended to."""
    height, width = config.image_height, config.image_width
    for _, _, down, across in parse_convolutions(config):
        height, width = height // down, width // across
    if not height or not width:
        raise ConfigError(
            f"convolutions expected images larger than all their pooling. Received: "
            f"{config.image_height} x {config.image_width} pixels"
        )
    return height, width


def size_of(file: bytes | Path) -> tuple[int, int]:
    """Return width and height of a PNG or JPEG file, (0, 0) where they are not found."""
    contents = file.read_bytes() if isinstance(file, Path) else file
    if contents.startswith(b"\x89PNG"):
        width, height = struct.unpack(">II", contents[16:24].ljust(8, b"\0"))
        return width, height
    sizes = [struct.unpack(">HH", b"".join(frame)) for frame in _FRAME.findall(contents)]
    height, width = max(sizes, key=math.prod, default=(0, 0))
    return width, height


def fitting(config: Config, split: Split, keep_height: bool = False) -> Config:
    """Return the configuration with the size that fits images, which is printed.

    It has their median shape, the height that it had and, where that leaves too few columns for the
    characters of the labels, as much more as the images have; and at most MOST_PIXELS.
    """
    width, height, characters = _survey(split)
    if not width:
        return config
    high, across = config.image_height, _pooled_across(config)
    if not keep_height:
        needed = ENOUGH * characters * across * height / width
        most = min(height, math.sqrt(MOST_PIXELS * height / width))
        high = max(high, min(round(needed), int(most)))
        high = min(high, MOST_PIXELS // across)
    wide = max(across, min(round(high * width / height), round(MOST_PIXELS / high)))
    fits = replace(config, image_height=high, image_width=wide)
    print(
        f"Images of {width} x {height} pixels are read as {fits.image_width} x {high}: --set "
        "image_width=… and image_height=… choose another size."
    )
    return fits


def tell_squeezed(config: Config, split: Split) -> None:
    """Print what is lost at the size at which images are read, where that is much."""
    width, height, characters = _survey(split)
    columns = config.image_width // _pooled_across(config)
    ratio = width * config.image_height / (height * config.image_width) if height else 1.0
    if max(ratio, 1 / ratio) > SQUEEZED:
        print(
            f"Images of {width} x {height} pixels are squeezed to {config.image_width} x "
            f"{config.image_height}: image_width={round(width * config.image_height / height)} "
            "would keep their shape."
        )
    if columns < characters:
        print(
            f"Labels have up to {characters} characters, and the grid that is attended to has "
            f"{columns} columns: a larger image_width, or convolutions that pool less across, has "
            "more."
        )


def _survey(split: Split) -> tuple[int, int, int]:
    """Return the median width and height of images, 0 for none, and the characters of labels."""
    sizes = np.array([size for size in map(size_of, split.sources[:SURVEYED]) if all(size)])
    lengths = [len(text) for texts in split.references for text in texts]
    characters = int(np.quantile(lengths, 0.95)) if lengths else 0
    if not sizes.size:
        return 0, 0, characters
    height = float(np.median(sizes[:, 1]))
    return round(height * float(np.median(sizes[:, 0] / sizes[:, 1]))), round(height), characters


def _pooled_across(config: Config) -> int:
    """Return by how much convolutions shorten an image's width."""
    return math.prod(across for *_, across in parse_convolutions(config))
