"""Heat-maps of attention weights."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import IO, Any, NoReturn

import numpy as np

# Fonts for characters that matplotlib's own font lacks. Installed ones are tried in this order.
_CJK_FONTS = (
    "Noto Sans CJK SC",
    "WenQuanYi Zen Hei",
    "PingFang SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "Arial Unicode MS",
)

_MAX_INCHES = 20.0  # of a figure's side: 3,000 dots, and 36 MB to draw it
_MAX_LABELS = 120  # along a side
_MAX_NUMBERS = 2500  # cells of which each shows its weight


def plot_attention(
    source: Any,
    target: Sequence[str],
    weights: Any,
    path: str | PathLike[str] | IO[bytes] | None = None,
    title: str | None = None,
    ax: Any = None,
) -> Any:
    """Draw attention weights: source tokens in columns, target tokens in rows, darker is more.

    For an image, each target token has a panel, which is brighter where the weight is greater. If
    labels do not fit, some are left out. If there are too many cells, no numbers are written.
    Matplotlib warns of characters that no installed font has.

    Args:
        source: the S source tokens; or the times of S events, an array of rising numbers `(S,)`;
            or the image that was read, an array `(H, W)` or `(H, W, channels)`.
        target: the T target tokens.
        weights: float array `(T, S)`; for an image the weights of its grid, `(T, rows, columns)`.
            Rows and columns past the tokens are padding: they must be 0, and are left out.
        path: file to write (PNG, SVG, PDF by its ending), an open one (PNG), or None.
        title: text above the map.
        ax: matplotlib axes to draw on, not for an image; a new figure by default.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: if the weights are not a matrix of T rows and S columns, which zeros may follow,
            or for an image `(T, rows, columns)`; if times do not rise; for `ax` with an image.
        ImportError: if matplotlib is not installed.

    Example:
        ```python
        plot_attention(["she", "eats"], ["elle", "mange"], [[0.9, 0.1], [0.2, 0.8]], path="map.png")
        ```
    """
    if hasattr(weights, "detach"):  # PyTorch's, which may have gradients or be bfloat16
        weights = weights.detach().float().cpu()
    weights = np.asarray(weights, dtype="float32")
    array = source if isinstance(source, np.ndarray) and source.dtype.kind in "biuf" else None
    if array is not None and array.ndim > 1:
        figure = _draw_over_image(array, target, weights, title, ax)
    else:
        figure = _draw_map(source, target, weights, title, ax, timed=array is not None)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure


def _refuse(expected: str, received: str) -> NoReturn:
    raise ValueError(f"plot_attention expected {expected}. Received: {received}")


def _draw_map(
    source: Any, target: Sequence[str], weights: Any, title: str | None, ax: Any, timed: bool
) -> Any:
    """Draw a matrix of weights over tokens or over times."""
    rows, columns = len(target), len(source)
    if weights.ndim != 2 or weights.shape[0] < rows or weights.shape[1] < columns:
        expected = f"weights of shape ({rows}, {columns}), target by source tokens"
        _refuse(expected, str(weights.shape))
    if weights[rows:].any() or weights[:, columns:].any():
        expected = f"zeros past {rows} target and {columns} source tokens, as padding has"
        _refuse(expected, f"weights of shape {weights.shape}")
    weights = weights[:rows, :columns]
    if ax is None:
        size = (min(2.0 + 0.45 * columns, _MAX_INCHES), min(1.5 + 0.4 * rows, _MAX_INCHES))
        ax = _figure(size).add_subplot()
    colors = {"cmap": "Blues", "vmin": 0.0, "vmax": 1.0}
    text = {"fontfamily": _font_families(), "parse_math": False}
    if timed:
        edges = _edges(np.asarray(source, "float64"))
        ax.pcolormesh(edges, np.arange(rows + 1) - 0.5, weights, rasterized=True, **colors)
        ax.set_ylim(rows - 0.5, -0.5)
    else:
        ax.imshow(weights, aspect="auto", **colors)
        shown = _some(columns)
        labels = [source[i] for i in shown]
        ax.set_xticks(shown, labels, rotation=60, ha="left", rotation_mode="anchor", **text)
        ax.xaxis.tick_top()
    shown = _some(rows)
    ax.set_yticks(shown, [target[i] for i in shown], **text)
    ax.tick_params(length=0, **({"axis": "y"} if timed else {}))
    if not timed and weights.size <= _MAX_NUMBERS:
        for row, column in np.argwhere(weights >= 0.1):
            weight = weights[row, column]
            number = f"{weight:.2f}"[1:] if weight < 0.995 else "1"
            style = {"color": "white" if weight > 0.5 else "black", "fontsize": 8}
            ax.text(column, row, number, ha="center", va="center", **style)
    if title:
        ax.set_title(title, **text)
    return ax.figure


def _draw_over_image(
    image: Any, target: Sequence[str], weights: Any, title: str | None, ax: Any
) -> Any:
    """Draw the weights of a grid over its image, a panel for each token."""
    if weights.ndim != 3 or weights.shape[0] < len(target) or image.ndim > 3 or not len(target):
        shape = f"({len(target)}, rows, columns)"
        expected = f"weights {shape} for an image (H, W) or (H, W, channels)"
        _refuse(expected, f"image {image.shape}, weights {weights.shape}")
    if ax is not None:
        _refuse("no ax for an image", "one")
    height, width = image.shape[:2]
    if image.dtype.kind == "f" and image.size:  # whatever its range
        image = (image - image.min()) / max(float(np.ptp(image)), 1e-9)
    if image.ndim == 3 and image.shape[-1] not in (3, 4):
        image = image.mean(-1)
    across = max(1, round((len(target) * height / width) ** 0.5))
    down = -(-len(target) // across)
    side = min(2.4, _MAX_INCHES / max(across, down * height / width))
    size = (across * side, down * (side * height / width + 0.3) + (0.4 if title else 0.0))
    figure = _figure(size)
    style = {"fontfamily": _font_families(), "parse_math": False}
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for panel, token, weight in zip(panels, target, weights, strict=False):
        place = {"extent": (0, width, height, 0)}
        panel.imshow(image, cmap="gray", **place)
        highest = max(float(weight.max()), 1e-9)
        panel.imshow(weight, cmap="inferno", alpha=0.6, vmin=0.0, vmax=highest, **place)
        panel.set_title(token, fontsize=9, **style)
    for panel in panels:
        panel.set_axis_off()
    if title:
        figure.suptitle(title, **style)
    return figure


def _figure(size: tuple[float, float]) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        needed = "plot_attention needs matplotlib: pip install -e '.[plot]' in the repository"
        raise ImportError(needed) from None
    return Figure(figsize=size, layout="constrained")


def _some(count: int) -> range:
    """Return the indices of the labels that there is room for, of `count` labels."""
    return range(0, count, -(-count // _MAX_LABELS) or 1)


def _edges(times: Any) -> Any:
    """Return the borders between events, `(S + 1,)`: half way from each to the next."""
    if times.ndim != 1 or not len(times) or (np.diff(times) <= 0).any():
        _refuse("times that rise, (S,)", np.array2string(times, threshold=5))
    half = np.diff(times) / 2 if len(times) > 1 else np.array([0.5])
    between = (times[1:] + times[:-1]) / 2
    return np.concatenate([times[:1] - half[:1], between, times[-1:] + half[-1:]])


def _font_families() -> list[str]:
    from matplotlib import font_manager, rcParams

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return [*rcParams["font.family"], *(name for name in _CJK_FONTS if name in installed)]
