"""Heat-maps of attention weights."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

# For characters that matplotlib's own font lacks: the first of these that are installed.
CJK_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Droid Sans Fallback",
    "PingFang SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "SimHei",
    "Arial Unicode MS",
)


def plot_attention(
    source: Sequence[str],
    target: Sequence[str],
    weights: Any,
    path: str | None = None,
    title: str | None = None,
    ax: Any = None,
) -> Any:
    """Draw attention weights: source tokens across, target tokens down, darker is more.

    Warns where the tokens have characters that no installed font has.

    Args:
        source: the S source tokens.
        target: the T target tokens.
        weights: float array `(T, S)`; rows and columns past the tokens are left out.
        path: file to write (PNG, SVG, PDF by its ending), or None.
        title: text above the map.
        ax: matplotlib axes to draw on; a new figure by default.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: if the weights are not a matrix of at least T rows and S columns.
        ImportError: if matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    weights = np.asarray(weights, dtype="float32")
    if weights.ndim != 2 or weights.shape[0] < len(target) or weights.shape[1] < len(source):
        raise ValueError(
            f"plot_attention expected weights of shape ({len(target)}, {len(source)}), target by "
            f"source tokens. Received: {weights.shape}"
        )
    weights = weights[: len(target), : len(source)]
    if ax is None:
        size = (2.0 + 0.45 * len(source), 1.5 + 0.4 * len(target))
        ax = Figure(figsize=size, layout="constrained").add_subplot()
    ax.imshow(weights, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    font = {"fontfamily": _font_families()}
    ax.set_xticks(
        range(len(source)), source, rotation=60, ha="left", rotation_mode="anchor", **font
    )
    ax.set_yticks(range(len(target)), target, **font)
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    for row, column in np.argwhere(weights >= 0.1):
        weight = weights[row, column]
        color = "white" if weight > 0.5 else "black"
        ax.text(
            column,
            row,
            f"{weight:.2f}"[1:] if weight < 0.995 else "1",
            color=color,
            ha="center",
            va="center",
            fontsize=8,
        )
    if title:
        ax.set_title(title, **font)
    if path is not None:
        _save(ax.figure, path)
    return ax.figure


def _font_families() -> list[str]:
    from matplotlib import font_manager, rcParams

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return [*rcParams["font.family"], *(name for name in CJK_FONTS if name in installed)]


def _save(figure: Any, path: str) -> None:
    """Write the figure; of matplotlib's warnings for each missing glyph make one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(path, dpi=150)
    missing = []
    for warning in caught:
        code = re.match(r"Glyph (\d+) .* missing from", str(warning.message))
        if code:
            missing.append(chr(int(code[1])))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    if missing:
        warnings.warn(
            f"no installed font has {''.join(dict.fromkeys(missing))}: install one that does, "
            "such as Noto Sans CJK",
            stacklevel=3,
        )
