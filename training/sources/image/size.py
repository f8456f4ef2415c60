"""How images of one's own are read: as lines of text or not, their size, and that of the grid."""

from __future__ import annotations

import io
import math
import re
import unicodedata
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from training.command.errors import ConfigError
from training.command.progress import print_choice
from training.config.schema import PRESETS, Config, load_config, with_values
from training.data.pair_files import Split

SURVEYED = 500  # images
ENOUGH = 1.5  # columns of the grid for a character
MOST_PIXELS = 1 << 17  # at which images are read unless somebody says so
SQUEEZED = 1.5  # times that a side is shortened against the other, beyond which it is told
# A line of text is wide, and has room for each character: Latin ones are 0.35 of their line's
# height and more, strings of digits in two rows have 0.25 of the image's.
NEARLY_ALL = 0.95
LINE_SHAPE, LINE_ROOM = 2.5, 0.3
FEWEST_IN_LINE = 4  # characters, of labels that are read in line
FEW_IMAGES = 3_000  # as of texts, whose batches are small
MOST_CHARACTERS = 300
MOST_ALIGNED = 1 << 19  # columns of the characters of a batch: 2 GiB of memory
LINES = PRESETS / "own" / "lines.toml"
_ORIENTATION = 0x0112  # EXIF's tag; from 5 to 8 the image lies on its side


def parse_convolutions(config: Config) -> list[tuple[int, int, int, int]]:
    """Return filters and kernel of each convolution, and the pooling after it, down and across.

    `convolutions` says them as `FILTERS:DOWNxACROSS`, or `FILTERSkKERNEL:DOWNxACROSS`.
    """
    layers = []
    for word in config.convolutions.split() or [""]:
        match = re.fullmatch(r"([1-9]\d*)(?:k([1-9]))?:([1-9]\d*)x([1-9]\d*)", word)
        if match is None:
            wanted = "FILTERS:DOWNxACROSS for each, such as 32:2x2 64k5:2x1"
            raise ConfigError.expected("convolutions", wanted, config.convolutions)
        filters, kernel, down, across = (int(number or 3) for number in match.groups())
        layers.append((filters, kernel, down, across))
    return layers


def grid_size(config: Config) -> tuple[int, int]:
    """Return height and width of the grid that is attended to."""
    height, width = config.image_height, config.image_width
    for _, _, down, across in parse_convolutions(config):
        height, width = height // down, width // across
    if not height or not width:
        size = f"{config.image_height} x {config.image_width} pixels"
        raise ConfigError.expected("convolutions", "images larger than all their pooling", size)
    if config.attention == "hard_monotonic" and height > 1:
        received = f"{height} rows of {config.convolutions}"
        wanted = "convolutions that leave one row of columns"
        raise ConfigError.expected("attention = hard_monotonic", wanted, received)
    return height, width


def size_of(file: bytes | Path) -> tuple[int, int]:
    """Return width and height of an image file, upright, (0, 0) where they are not found."""
    size, orientation = (0, 0), 1
    opened = file if isinstance(file, Path) else io.BytesIO(file)
    wrong = OSError, SyntaxError, ValueError, Image.DecompressionBombError
    with suppress(*wrong), warnings.catch_warnings(action="ignore"), Image.open(opened) as image:
        size = image.size
        orientation = image.getexif().get(_ORIENTATION, 1)
    return size[::-1] if orientation in (5, 6, 7, 8) else size


class Survey(NamedTuple):
    """Images and their labels, measured on a sample."""

    width: int  # the median, 0 where there is none
    height: int
    characters: int  # at most, in nearly all labels
    room: float  # at least, in nearly all images: of a character's width, in heights of the image
    leftward: bool  # whether labels are of a script that is written from right to left

    @property
    def in_line(self) -> bool:
        """Whether images are lines of text, which their labels follow."""
        return (
            self.width >= LINE_SHAPE * self.height
            and self.room >= LINE_ROOM
            and self.characters >= FEWEST_IN_LINE
            and not self.leftward
        )


def own_images(config: Config, split: Split, own: Mapping[str, Any]) -> Config:
    """Return the configuration that fits images of one's own, whose choices are printed.

    Lines of text have the settings of `training/presets/own/lines.toml`, unless the user's `own`
    settings do not go with them. Images have their median shape, the height that they had and,
    where that leaves too few columns for the characters of the labels, as much more as the images
    have; and at most MOST_PIXELS. Few images make small batches, and no label is too long.
    """
    survey, count = _survey(split), len(split.sources)
    width, height, characters = survey[:3]
    print(f"{config.data}: {count:,} images")
    file, kind, other = "images", "images, looked at place by place", "hard_monotonic"
    if (survey.in_line or config.attention == other) and (lines := _lines(own)):
        file, kind, other = "lines", "lines of text, read from left to right", "additive"
        config = replace(lines, data=config.data)
    longest = max((len(text) for texts in split.references for text in texts), default=0)
    if longest > config.max_target_length and "max_target_length" not in own:
        config = replace(config, max_target_length=min(longest + 10, MOST_CHARACTERS))
    if width and "image_width" not in own:
        high, across = config.image_height, _pooled_across(config)
        if file == "images" and "image_height" not in own:
            needed = ENOUGH * characters * across * height / width
            most = min(height, math.sqrt(MOST_PIXELS * height / width))
            high = max(high, min(round(needed), int(most)))
            high = min(high, MOST_PIXELS // across)
        wide = max(across, min(round(high * width / height), round(MOST_PIXELS / high)))
        config = replace(config, image_height=high, image_width=wide)
        read = f"{width} x {height} pixels, read as {wide} x {high}"
        print_choice("images", read, "--set image_width=N --set image_height=N")
    if "batch_size" not in own:
        batch = 16 if count < FEW_IMAGES else config.batch_size
        if file == "lines":  # a step holds a vector for each column of each character
            batch = min(batch, MOST_ALIGNED // (config.max_target_length * grid_size(config)[1]))
        config = replace(config, batch_size=max(1, batch))
    room = f", each {survey.room:.2f} of the height wide or more" if width else ""
    print_choice("labels", f"up to {characters} characters{room}")
    settings = f"{kind}, with the settings of training/presets/own/{file}.toml"
    print_choice("kind", settings, f"--set attention={other}")
    return config


def _lines(own: Mapping[str, Any]) -> Config | None:
    """Return the settings for lines of text with the user's `own`; None where these do not go."""
    try:
        lines = with_values(load_config(LINES), own)
        if "convolutions" not in own:  # those of a line leave one row
            rows = f"{max(1, lines.image_height // 8)}x1"
            lines = replace(lines, convolutions=re.sub(r"\d+x1$", rows, lines.convolutions))
        grid_size(lines)
    except ConfigError:
        return None
    return lines if lines.attention == "hard_monotonic" else None


def tell_squeezed(config: Config, split: Split) -> None:
    """Print what is lost at the size at which images are read, where that is much."""
    width, height, characters, *_ = _survey(split)
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


def _survey(split: Split) -> Survey:
    sizes = np.array([size_of(file) for file in split.sources[:SURVEYED]]).reshape(-1, 2)
    lengths = np.array([len(texts[0]) for texts in split.references[:SURVEYED]])
    characters = int(np.quantile(lengths, NEARLY_ALL)) if len(lengths) else 0
    known = sizes.all(axis=1) & (lengths > 0)
    if not known.any():
        return Survey(0, 0, characters, 0.0, False)
    shapes, height = sizes[known, 0] / sizes[known, 1], float(np.median(sizes[known, 1]))
    room = float(np.quantile(shapes / lengths[known], 1 - NEARLY_ALL))
    letters = set("".join(texts[0] for texts in split.references[:SURVEYED]))
    leftward = any(unicodedata.bidirectional(letter) in ("R", "AL") for letter in letters)
    width = round(height * float(np.median(shapes)))
    return Survey(width, round(height), characters, room, leftward)


def _pooled_across(config: Config) -> int:
    """Return by how much convolutions shorten an image's width."""
    return math.prod(across for *_, across in parse_convolutions(config))
