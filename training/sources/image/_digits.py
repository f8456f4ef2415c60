"""Strings of scikit-learn's handwritten digits on a canvas, with the box of each digit.

The 1,797 real digits of `load_digits` (8 x 8 pixels, Alpaydin and Kaynak 1998) are split. Training
strings use the first 70 % of the digits, test strings the last 30 %, so no digit of a test string
is in a training string. Dev strings are other strings of training digits. There are only 1,257
training digits, so each drawn digit is rotated, slanted, stretched and moved a little.
"""

from __future__ import annotations

import io

import numpy as np

from training.command.errors import UserError
from training.data.read._sentences import Split

HEIGHT, WIDTH = 32, 72
SHORTEST, LONGEST = 5, 9
_SIZE = 8  # width and height of a digit, in pixels
_TRAINING_SHARE = 0.7
_NOISE = 0.5  # standard deviation, of 16 levels
# Standard deviations: radians, shear, logarithms of both widths, pixels across and down.
_DISTORTION = np.array([0.1, 0.1, 0.08, 0.08, 0.3, 0.3])


def make(count: int, seed: int, *, test: bool = False) -> Split:
    """Make strings of 5 to 9 digits, in one row or two, with random gaps and heights.

    With `test`, they use the digits that are reserved for test strings, undistorted.
    """
    from PIL import Image

    digits, names = _pool(test)
    rng = np.random.default_rng(seed)
    files, texts, places = list[bytes](), list[str](), list[list]()
    for _ in range(count):
        canvas = np.zeros((HEIGHT, WIDTH), "float32")
        text, boxes = "", []
        for x, y in _places(rng):
            chosen = int(rng.integers(len(digits)))
            digit = digits[chosen] if test else _distorted(digits[chosen], rng)
            canvas[y : y + _SIZE, x : x + _SIZE] = digit
            text += str(names[chosen])
            boxes.append((x / WIDTH, y / HEIGHT, (x + _SIZE) / WIDTH, (y + _SIZE) / HEIGHT))
        levels = (canvas + rng.normal(0, _NOISE, canvas.shape)) * (255 / 16)
        file = io.BytesIO()
        Image.fromarray(np.clip(levels, 0, 255).astype("uint8")).save(file, "png")
        files.append(file.getvalue())
        texts.append(text)
        places.append(boxes)
    return Split(files, [[text] for text in texts], boxes=places)


def _pool(test: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return images of digits, `(n, 8, 8)` from 0 to 16, and their classes, `(n,)`."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UserError("digits need scikit-learn: pip install scikit-learn") from None
    bank = load_digits()
    cut = int(len(bank.images) * _TRAINING_SHARE)
    part = slice(cut, None) if test else slice(cut)
    return bank.images[part], bank.target[part]


def _distorted(digit: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a digit `(8, 8)`, rotated, slanted, stretched and moved a little."""
    from PIL import Image

    turn, slant, wide, high, *moved = rng.normal(0, _DISTORTION)
    cos, sin = np.cos(turn), np.sin(turn)
    turned = np.array([[cos, -sin], [sin, cos]])
    matrix = turned @ [[1, slant], [0, 1]] @ np.diag(np.exp([wide, high]))
    centre = np.full(2, _SIZE / 2)
    offset = centre - matrix @ centre + moved
    image = Image.fromarray(digit.astype("float32")).transform(
        (_SIZE, _SIZE),
        Image.Transform.AFFINE,
        (*matrix[0], offset[0], *matrix[1], offset[1]),
        resample=Image.Resampling.BICUBIC,
    )
    return np.asarray(image).clip(0, 16)


def _places(rng: np.random.Generator) -> list[tuple[int, int]]:
    """Return `(left, top)` of each digit, in pixels, in reading order."""
    count = int(rng.integers(SHORTEST, LONGEST + 1))
    rows = [count]
    if rng.integers(2):
        upper = int(rng.integers(2, count - 1))
        rows = [upper, count - upper]
    places = []
    for number, digits in enumerate(rows):
        height = HEIGHT // len(rows)
        lowest, highest = number * height, (number + 1) * height - _SIZE
        base = int(rng.integers(lowest, highest + 1))
        gaps = np.sort(rng.integers(0, WIDTH - _SIZE * digits + 1, digits))
        for position, gap in enumerate(gaps):
            y = int(np.clip(base + rng.integers(-2, 3), lowest, highest))
            places.append((int(gap) + _SIZE * position, y))
    return places
