"""The figure of growth.py: processor time and peak memory over sizes, both axes logarithmic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Works of each pair of rows, time above memory.
PANELS = (("layer, forward", "layer, with gradients"), ("training step",), ("translation",))
TITLES = {
    "source": "source tokens",
    "batch": "sentences",
    "units": "units",
    "beam": "beam width",
}
MEASURES = {"processor_ms": ("processor", "processor ms"), "peak_mb": ("memory", "peak, MB")}
STYLES = {"fast paths": "-o", "plain formulas": "--x"}


def draw(
    curves: dict[tuple[str, str, str], list[dict[str, Any]]],
    fitted: dict[str, dict[str, float | None]],
    path: Path,
) -> None:
    """Draw a panel for each work's measure over each size.

    Args:
        curves: rows by work, the size that varies and variant.
        fitted: exponents by the curve's name.
        path: of the PNG.
    """
    from matplotlib.ticker import NullFormatter

    from lab.shared import new_figure

    groups = [works for works in PANELS if {work for work, *_ in curves} & set(works)]
    overs = {
        works: list(dict.fromkeys(over for work, over, _ in curves if work in works))
        for works in groups
    }
    columns = max(map(len, overs.values()))
    figure, panels = new_figure(2 * len(groups), columns, 3.6, 2.5)
    for number, (works, measure) in enumerate((w, m) for w in groups for m in MEASURES):
        for axes, over in zip(panels[number], overs[works], strict=False):
            name, unit = MEASURES[measure]
            for (work, varied, variant), rows in curves.items():
                if work not in works or varied != over:
                    continue
                slope = fitted[f"{work} over {over}, {variant}"]
                known = [row for row in rows if row[measure]]
                color = f"C{works.index(work)}"
                x, y = ([row[key] for row in known] for key in ("size", measure))
                kind = work.removeprefix("layer, ") if len(works) > 1 else ""
                label = f"{kind} {variant}: exponent {slope[name]}".strip()
                axes.plot(x, y, STYLES[variant], color=color, markersize=4, label=label)
                if len(known) < len(rows) and all(row["ms"] is None for row in rows[-1:]):
                    axes.annotate(" stops: 4 GiB", (x[-1], y[-1]), fontsize=6, color=color)
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.set_ylim(top=axes.get_ylim()[1] * 8)  # room for the legend
            axes.set_xlabel(TITLES[over], fontsize=8)
            axes.set_ylabel(f"{works[0].split(',')[0]}: {unit}", fontsize=8)
            axes.tick_params(labelsize=7)
            axes.grid(alpha=0.3)
            axes.legend(fontsize=6, loc="upper left")
        for axes in panels[number][len(overs[works]) :]:
            axes.axis("off")
    figure.savefig(path, dpi=80)
