"""CAPTCHAs with character boxes, from the PyPI package `captcha`; a seed determines them."""

from __future__ import annotations

import importlib.util
import io
import os
import random
import types
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from training.command.errors import UserError
from training.data.read._sentences import Split

CHARACTERS = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"  # without 0 and O, 1 and I
LENGTHS = (4, 6)
WIDTH, HEIGHT = 160, 60
_CHUNK = 250  # CAPTCHAs made with one seed


def make(count: int, seed: int) -> Split:
    """Make CAPTCHAs of 4 to 6 characters: PNG files, their texts, and each character's box."""
    try:
        import captcha.image  # noqa: F401
    except ImportError:
        raise UserError("CAPTCHAs need the package captcha: pip install captcha") from None
    starts = range(0, count, _CHUNK)
    counts, seeds = [min(_CHUNK, count - start) for start in starts], [[seed, i] for i in starts]
    with ProcessPoolExecutor(min(os.cpu_count() or 1, len(starts))) as pool:
        run: Any = pool.map if len(starts) > 1 else map  # one chunk needs no process
        made = [each for part in run(_make_chunk, counts, seeds) for each in part]
    files, texts, boxes = map(list, zip(*made, strict=True))
    return Split(files, [[text] for text in texts], boxes=boxes)


def _make_chunk(count: int, seed: Sequence[int]) -> list[tuple[bytes, str, list]]:
    rng = random.Random(" ".join(map(str, seed)))
    generator = _generator(rng)
    made = []
    for _ in range(count):
        text = "".join(rng.choices(CHARACTERS, k=rng.randint(*LENGTHS)))
        file = io.BytesIO()
        generator.generate_image(text).save(file, "png")
        made.append((file.getvalue(), text, generator.boxes))
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
    """Return an `ImageCaptcha` whose `boxes` has the character boxes of its last image."""
    from PIL.Image import new
    from PIL.ImageDraw import Draw

    package: Any = package_with(rng)
    base: Any = package.ImageCaptcha

    class WithBoxes(base):
        def create_captcha_image(self, chars: str, color: Any, background: Any) -> Any:
            """Do the same as the package, with the same random draws, and record the boxes."""
            secrets = package.secrets
            image = new("RGB", (self._width, self._height), background)
            draw = Draw(image)
            drawn = []
            for character in chars:
                if secrets.randbits(32) / 2**32 > self.word_space_probability:
                    drawn.append((False, self._draw_character(" ", draw, color)))
                drawn.append((True, self._draw_character(character, draw, color)))
            text_width = sum(part.size[0] for _, part in drawn)
            width = max(text_width, self._width)
            image = image.resize((width, self._height))
            average = text_width // len(chars)
            offset, overlap = int(average * 0.1), int(self.word_offset_dx * average)
            self.boxes = []
            for is_character, part in drawn:
                mask = part.convert("L").point(self.lookup_table)
                top = int((self._height - part.size[1]) / 2)
                image.paste(part, (offset, top), mask)
                if is_character:
                    left, upper, right, lower = mask.getbbox() or (0, 0, *part.size)
                    across = (offset + left) / width, (offset + right) / width
                    down = (top + upper) / self._height, (top + lower) / self._height
                    self.boxes.append((across[0], down[0], across[1], down[1]))
                offset += part.size[0] - secrets.randbelow(overlap + 1)
            return image.resize((self._width, self._height)) if width > self._width else image

    return WithBoxes(WIDTH, HEIGHT)
