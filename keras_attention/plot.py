"""Heat-maps of attention weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def plot_attention(
    source: Sequence[str],
    target: Sequence[str],
    weights: Any,
    path: str | None = None,
    title: str | None = None,
    ax: Any = None,
) -> Any:
    """Draw attention weights: source tokens across, target tokens down, darker is more.

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
    ax.set_xticks(range(len(source)), source, rotation=60, ha="left", rotation_mode="anchor")
    ax.set_yticks(range(len(target)), target)
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
        ax.set_title(title)
    if path is not None:
        ax.figure.savefig(path, dpi=150)
    return ax.figure
