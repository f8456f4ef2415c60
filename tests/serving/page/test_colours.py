"""The colours of ribbons, as colour-blind readers see them."""

import itertools
import re

import numpy as np
import pytest

from serving.page.app import STATIC

# Machado, Oliveira & Fernandes 2009, severity 1, of linear RGB.
SEEN = {
    "all cones": np.eye(3),
    "no red cones": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "no green cones": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "no blue cones": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]


def linear(colour):
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def cielab(rgb):
    xyz = XYZ @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def named(file, name):
    """The values of a custom property in a style sheet, in order."""
    return re.findall(rf"--{name}: (#[0-9a-f]{{6}})", (STATIC / file).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("file", "ground"), [("ribbons.css", 0), ("page.css", 1)], ids=["light", "dark"]
)
def test_ribbons_differ_to_everybody_and_stand_out_from_their_ground(file, ground):
    colours = [linear(colour) for n in range(6) for colour in named(file, f"hue-{n}")]
    assert len(colours) == 6
    for seen in SEEN.values():
        found = [cielab(seen @ colour) for colour in colours]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(found, 2)) >= 20
    below = linear(named("page.css", "raised")[ground])
    for colour in colours:
        light, dark = sorted((XYZ[1] @ colour, XYZ[1] @ below), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3  # WCAG 1.4.11
