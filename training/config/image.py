"""Keys of images as sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from training.config.keys import key


@dataclass(frozen=True)
class Image:
    """Images, see `training.sources.image`."""

    targets: ClassVar[tuple[str, ...]] = ("text",)

    image_height: int = key(64, "pixels, to which all are resized")
    image_width: int = key(256, "likewise")
    image_channels: int = key(1, "3 for colour", choices=(1, 3))
    convolutions: str = key(
        "32:2x2 64:2x2 96:2x1 128:1x1",
        "of each: filters:pooling, down x across; 64k5 has 64 filters that see 5 x 5 pixels, not 3",
    )
    shift: int = key(0, "pixels by which images are moved in training, at most", least=0)
