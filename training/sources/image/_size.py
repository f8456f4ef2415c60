"""How the user's own images are read: as lines of text or not, image size and grid size."""

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
from training.command.progress import print_choice, up_to
from training.config.schema import PRESETS, Config, load_config, with_values
from training.data.read._sentences import Split

SURVEYED = 500  # images in the sample
ENOUGH = 1.5  # columns of the grid for each character
MOST_CHOSEN_PIXELS = 1 << 17  # most pixels of a chosen image size
SQUEEZED = 1.5  # a greater change of the aspect ratio is printed
# A line of text is wide and has room for each character. Latin characters have a width of 0.35 of
# the line's height and more; in strings of digits in two rows it is 0.25 of the image's height.
NEARLY_ALL = 0.95
LINE_SHAPE, LINE_ROOM = 2.5, 0.3
FEWEST_IN_LINE = 4  # labels of lines have at least so many characters
FEW_IMAGES = 3_000  # fewer images are trained in small batches, as few texts are
MOST_CHARACTERS = 300
MOST_ALIGNED = 1 << 19  # columns of the characters of a batch: 2 GiB of memory
LINES = PRESETS / "own" / "lines.toml"
_ORIENTATION = 0x0112  # the EXIF tag; values 5 to 8 swap width and height


def parse_convolutions(config: Config) -> list[tuple[int, int, int, int]]:
    """Return `(filters, kernel size, pooling down, pooling across)` of each convolution.

    The key `convolutions` has `FILTERS:DOWNxACROSS` or `FILTERSkKERNEL:DOWNxACROSS` for each.
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
    """Return height and width of the grid that the model attends to."""
    height, width = config.image_height, config.image_width
    for _, _, down, across in parse_convolutions(config):
        height, width = height // down, width // across
    if not height or not width:
        size = f"{config.image_height} x {config.image_width} pixels"
        raise ConfigError(
            f"convolutions need images larger than all their pooling, but these are {size}"
        )
    if config.attention == "hard_monotonic" and height > 1:
        raise ConfigError(
            "attention = hard_monotonic needs convolutions that leave one row, but "
            f"{config.convolutions} leave {height}"
        )
    return height, width


def size_of(file: bytes | Path) -> tuple[int, int]:
    """Return width and height of an upright image file; (0, 0) if they are not found."""
    size, orientation = (0, 0), 1
    opened = file if isinstance(file, Path) else io.BytesIO(file)
    wrong = OSError, SyntaxError, ValueError, Image.DecompressionBombError
    with suppress(*wrong), warnings.catch_warnings(action="ignore"), Image.open(opened) as image:
        size = image.size
        orientation = image.getexif().get(_ORIENTATION, 1)
    return size[::-1] if orientation in (5, 6, 7, 8) else size


class Survey(NamedTuple):
    """Sizes of images and labels, measured on a sample."""

    width: int  # at the median aspect ratio; 0 if no size is known
    height: int  # the median; 0 if no size is known
    characters: int  # nearly all labels have at most so many
    room: float  # nearly all images have at least this width a character, in heights of the image
    leftward: bool  # whether a label has letters of a script that is written from right to left

    @property
    def in_line(self) -> bool:
        """Whether the images are lines of text, with labels in the same order."""
        return (
            self.width >= LINE_SHAPE * self.height
            and self.room >= LINE_ROOM
            and self.characters >= FEWEST_IN_LINE
            and not self.leftward
        )


def own_images(config: Config, split: Split, own: Mapping[str, Any]) -> Config:
    """Return the configuration that fits the user's own images, and print its choices.

    - Lines of text get the settings of `training/presets/own/lines.toml`, if these are compatible
      with the user's settings.
    - The image size has the median aspect ratio. The height stays, unless the grid of images that
      are not lines has too few columns for the labels. Then it grows, at most to the images' own
      height and MOST_CHOSEN_PIXELS.
    - Few images, and lines with many characters, are trained in small batches.
    - `max_target_length` grows to fit the labels, up to MOST_CHARACTERS.

    Args:
        config: the configuration to adapt.
        split: the images and labels.
        own: the settings that the user chose, which do not change.
    """
    survey, count = _survey(split), len(split.sources)
    width, height, characters = survey[:3]
    print(f"{config.data}: {count:,} images (to change a choice, add the option on the right)")
    file, kind, other = "images", "images, with attention to each place", "hard_monotonic"
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
            most = min(height, math.sqrt(MOST_CHOSEN_PIXELS * height / width))
            high = max(high, min(round(needed), int(most)))
            high = min(high, MOST_CHOSEN_PIXELS // across)
        wide = max(across, min(round(high * width / height), round(MOST_CHOSEN_PIXELS / high)))
        config = replace(config, image_height=high, image_width=wide)
        read = f"{width} x {height} pixels, read as {wide} x {high}"
        print_choice("images", read, "--set image_width=N --set image_height=N")
    if "batch_size" not in own:
        batch = 16 if count < FEW_IMAGES else config.batch_size
        if file == "lines":  # a step has a vector for each column and character
            batch = min(batch, MOST_ALIGNED // (config.max_target_length * grid_size(config)[1]))
        config = replace(config, batch_size=max(1, batch))
    room = f", each {survey.room:.2f} of the height wide or more" if width else ""
    print_choice("labels", f"{up_to(characters, longest, 'characters')}{room}")
    settings = f"{kind}, with the settings of training/presets/own/{file}.toml"
    print_choice("kind", settings, f"--set attention={other}")
    return config


def _lines(own: Mapping[str, Any]) -> Config | None:
    """Return the settings for lines of text with the user's `own`; None if they conflict."""
    try:
        lines = with_values(load_config(LINES), own)
        if "convolutions" not in own:  # pooling must leave one row
            rows = f"{max(1, lines.image_height // 8)}x1"
            lines = replace(lines, convolutions=re.sub(r"\d+x1$", rows, lines.convolutions))
        grid_size(lines)
    except ConfigError:
        return None
    return lines if lines.attention == "hard_monotonic" else None


def tell_squeezed(config: Config, split: Split) -> None:
    """Print a note if the image size distorts the images or has too few columns for labels."""
    width, height, characters, *_ = _survey(split)
    columns = config.image_width // _pooled_across(config)
    ratio = width * config.image_height / (height * config.image_width) if height else 1.0
    if max(ratio, 1 / ratio) > SQUEEZED:
        print(
            f"Images of {width} x {height} pixels are squeezed to {config.image_width} x "
            f"{config.image_height}. To keep their shape: --set "
            f"image_width={round(width * config.image_height / height)}"
        )
    longest = max((len(text) for texts in split.references for text in texts), default=0)
    if columns < characters:
        print(
            f"Labels: {up_to(characters, longest, 'characters')}, but the model attends to only "
            f"{columns} columns. Set a larger image_width, or convolutions that pool less across"
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
    """Return the factor by which convolutions divide an image's width."""
    return math.prod(across for *_, across in parse_convolutions(config))
