"""Pictures of attention: over an image, and along a history. They need matplotlib."""

from __future__ import annotations

import io
from pathlib import Path

from serving.client.histories import Prediction
from serving.client.reading import Regions


def draw_regions(image: bytes, regions: Regions, path: str | Path) -> None:
    """Draw the image once for each token, with the weights of the regions over it, into a PNG."""
    from matplotlib.figure import Figure
    from PIL import Image

    with Image.open(io.BytesIO(image)) as opened:
        pixels = opened.convert("RGB")
    count = max(1, len(regions.tokens))
    columns = min(3, count)
    rows = -(-count // columns)
    width, height = pixels.size
    size = 3.2 * columns, (3.2 * height / width + 0.4) * rows + 0.4
    figure = Figure(figsize=size, layout="constrained")
    figure.suptitle(regions.text)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid:
        axes.axis("off")
    extent = (0, width, height, 0)
    for axes, token, weights in zip(grid, regions.tokens, regions.attention_weights, strict=False):
        axes.imshow(pixels, extent=extent)
        axes.imshow(weights, cmap="Reds", alpha=0.6, extent=extent, vmin=0.0)
        axes.set_title(token)
    figure.savefig(path, dpi=120)


def draw_timeline(
    times: list[float], prediction: Prediction, path: str | Path, title: str = ""
) -> None:
    """Draw a history as a line of events with their weights, into a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.4), layout="constrained")
    axes = figure.add_subplot()
    axes.axhline(0, color="0.7", linewidth=1)
    weights = prediction.attention_weights
    axes.vlines(times, 0, weights, color="tab:red", linewidth=2)
    axes.scatter(times, weights, color="tab:red", s=20)
    axes.set_xlabel("time")
    axes.set_ylabel("attention weight")
    axes.set_ylim(0, 1.05 * max(1e-9, *weights, 0.0))
    axes.set_title(f"{title}  probability {prediction.probability:.3f}".strip())
    figure.savefig(path, dpi=120)
