"""Draws attention weights as text for a terminal, and as pictures with matplotlib."""

from __future__ import annotations

import unicodedata
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from serving.api._printing import printable

if TYPE_CHECKING:
    from serving.api._results import Alignment, Prediction, Regions

_SHADES = " ░▒▓█"


def _width(text: str) -> int:
    """Return the number of terminal columns that a text takes."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _pad(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def draw_alignment(alignment: Alignment) -> str:
    """Return the weights as text: a row for each target token, darker cells for larger weights."""
    sources = [printable(token) for token in alignment.source_tokens]
    targets = [printable(token) for token in alignment.target_tokens]
    widths = [max(2, _width(token)) for token in sources]
    margin = max(map(_width, targets), default=0)
    header = (_pad(token, width) for token, width in zip(sources, widths, strict=True))
    lines = [" " * (margin + 1) + " ".join(header)]
    for token, weights in zip(targets, alignment.attention_weights, strict=True):
        shades = (_SHADES[min(4, max(0, round(weight * 4)))] for weight in weights)
        cells = (shade * width for shade, width in zip(shades, widths, strict=True))
        lines.append(_pad(token, margin) + " " + " ".join(cells))
    return "\n".join(line.rstrip() for line in lines)


def plot_attention(*arguments: Any, **options: Any) -> None:
    """Call `plot_attention` of `keras_attention/_plot.py`, loaded without importing its package.

    The package would import Keras and a backend. The client's own distribution has a copy of the
    file, `heat_map.py`. Raises ImportError if neither file is installed.
    """
    path, package = Path(__file__).with_name("heat_map.py"), find_spec("keras_attention")
    if package and package.origin and not path.is_file():
        path = Path(package.origin).with_name("_plot.py")
    module = ModuleType("keras_attention_plot")
    try:
        SourceFileLoader(module.__name__, str(path)).exec_module(module)
    except FileNotFoundError:
        raise ImportError("keras_attention is not installed") from None
    module.plot_attention(*arguments, **options)


def draw_regions(file: bytes, regions: Regions, path: str | Path) -> None:
    """Write a PNG that shows the image once for each token, with the token's weights over it."""
    from serving.api._image_files import read_picture

    pixels = read_picture(file)
    tokens = [printable(token) for token in regions.tokens]
    weights = regions.attention_weights
    if not tokens:
        tokens, weights = ["nothing"], (((0.0,),),)
    plot_attention(pixels, tokens, weights, path=path, title=printable(regions.text))


def draw_timeline(
    times: list[float], prediction: Prediction, path: str | Path, title: str = ""
) -> None:
    """Write a PNG of a history: the weight of each event over time.

    Raises ValueError if there is not one weight for each time.
    """
    weights = prediction.attention_weights
    if len(weights) != len(times):
        raise ValueError(f"a picture expected {len(times)} weights. Received: {len(weights)}")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.4), layout="constrained")
    axes = figure.add_subplot()
    axes.axhline(0, color="0.7", linewidth=1)
    axes.vlines(times, 0, weights, color="tab:red", linewidth=2)
    axes.scatter(times, weights, color="tab:red", s=20)
    axes.set_xlabel("time")
    axes.set_ylabel("attention weight")
    axes.set_ylim(0, 1.05 * max(1e-9, *weights, 0.0))
    heading = f"{title}  probability {prediction.probability:.3f}".strip()
    axes.set_title(heading, parse_math=False)
    figure.savefig(path, dpi=120)
