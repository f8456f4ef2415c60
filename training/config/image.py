"""Keys of images as sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from training.config.keys import key


@dataclass(frozen=True)
class Image:
    """Images, see `training.sources.image`."""

    targets: ClassVar[tuple[str, ...]] = ("text",)

    image_height: int = key(64, "height to which images are resized, in pixels")
    image_width: int = key(256, "width to which images are resized, in pixels")
    image_channels: int = key(1, "channels: 1 for grey, 3 for colour", choices=(1, 3))
    convolutions: str = key(
        "32:2x2 64:2x2 96:2x1 128:1x1",
        "convolutions, each FILTERS:DOWNxACROSS with its pooling; 64k5:1x1 has a kernel of 5 "
        "x 5 pixels, not 3 x 3",
    )
    shift: int = key(0, "most pixels by which training images are moved at random", least=0)
