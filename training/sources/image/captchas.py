"""CAPTCHAs of the PyPI package `captcha`, the same ones for the same seed, with boxes."""

from __future__ import annotations

import importlib.util
import io
import os
import random
import types
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any
from unittest import mock

import numpy as np

from training.command.errors import UserError
from training.sources.image.generated import Box, Example

CHARACTERS = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"  # without 0 and O, 1 and I
LENGTHS = (4, 6)
WIDTH, HEIGHT = 160, 60
_CHUNK = 250  # made with one seed


def make(count: int, seed: int) -> list[Example]:
    """Make CAPTCHAs of 4 to 6 characters: PNG, the text, and where each character is."""
    try:
        import captcha.image  # noqa: F401
    except ImportError:
        raise UserError("CAPTCHAs need the package captcha: pip install captcha") from None
    starts = range(0, count, _CHUNK)
    counts, seeds = [min(_CHUNK, count - start) for start in starts], [[seed, i] for i in starts]
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(starts))) as pool:
        run: Any = pool.map if len(starts) > 1 else map  # a few need no process
        return [each for part in run(_make_chunk, counts, seeds) for each in part]


def _make_chunk(count: int, seed: Sequence[int]) -> list[Example]:
    rng = random.Random(" ".join(map(str, seed)))
    generator = _generator(rng)
    made = []
    for _ in range(count):
        text = "".join(rng.choices(CHARACTERS, k=rng.randint(*LENGTHS)))
        file = io.BytesIO()
        generator.generate_image(text).save(file, "png")
        made.append(Example(file.getvalue(), text, generator.boxes))
    return made


def package_with(rng: random.Random) -> Any:
    """Return a copy of the module `captcha.image` that draws from `rng`.

    The module itself draws from `secrets`, which takes no seed.
    """
    spec = importlib.util.find_spec("captcha.image")
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    vars(package)["secrets"] = types.SimpleNamespace(
        choice=rng.choice, randbelow=rng.randrange, randbits=rng.getrandbits
    )
    return package


def _generator(rng: random.Random) -> Any:
    """Return an `ImageCaptcha` that has the boxes of the last image's characters."""
    from PIL.Image import Image

    base: Any = package_with(rng).ImageCaptcha
    paste = Image.paste

    class WithBoxes(base):
        def create_captcha_image(self, *args: Any) -> Image:
            """Do what the package does, and note where it pastes what has ink, as no blank has."""
            self.boxes: list[Box] = []

            def noted(canvas: Image, part: Image, place: tuple[int, int], mask: Image) -> None:
                paste(canvas, part, place, mask)
                if ink := mask.getbbox():
                    sides = (np.reshape(ink, (2, 2)) + place) / canvas.size
                    self.boxes.append(tuple(sides.ravel().tolist()))

            with mock.patch.object(Image, "paste", noted):
                return super().create_captcha_image(*args)

    return WithBoxes(WIDTH, HEIGHT)
