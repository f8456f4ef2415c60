"""Shapes of batches (widths of sources and labels): which pad least, and how many are worth it.

XLA compiles a step anew for each shape. On a GPU, compiling takes so long that few shapes are best.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

FEW_SHAPES = 8  # most shapes, for a step that is compiled once for each shape
STEPS = 4  # steps in an iteration of a GPU's loops; at other widths, a second loop runs the rest
# Seconds on one H200 (TensorFlow 2.21, 2026-11-27) for a model of two layers: tatoeba-en-fr, 128
# sentences of 16 × 16. The first step ended after 18.9 s, with the flags of `command/native.py`. A
# later step took 6.2 ms; without XLA, 54.8 ms for sentences of 5 to 13 tokens (2026-11-26).
COMPILING = 20.0  # to compile a shape
POSITION = 0.2e-3  # a step, for each position of source and labels, padding included
GRAPH_POSITION = 2e-3  # the same without XLA


@dataclass(frozen=True)
class Costs:
    """The settings that decide how many seconds a training on a GPU takes.

    Attributes:
        epochs: passes over the pairs.
        layers: number of layers of encoder and decoder together. GNMT's eight layers launch 2.2
            times as many kernels a position as two layers (`make gpu-kernels`) and compile for 2.8
            times as long. Without XLA, a step took 466 ms instead of 54.8 ms. The factor
            `(layers + 2) / 4`, here 2.5, is used for all three.
        may_be_graph: whether the training may run without XLA.
    """

    epochs: int
    layers: int
    may_be_graph: bool

    @property
    def scale(self) -> float:
        """Cost of a model with this number of layers, relative to a model with two layers."""
        return (self.layers + 2) / 4


@dataclass(frozen=True)
class PredictedSeconds:
    """The choice of shapes that takes the least time, in predicted seconds on one H200."""

    compiling: float  # seconds to compile all shapes
    training: float  # seconds of the training after compiling
    # seconds of the training without XLA, if this is fastest; None otherwise
    graph: float | None = None

    def line(self, shapes: np.ndarray | None) -> str:
        """Return the choice and its reason as a message for people; `shapes` is `(n, 2)`."""
        takes = f"about {self.compiling:.0f} s, the training then about {self.training:.0f} s"
        if shapes is None:
            return (
                f"XLA is left out: the training takes about {self.graph:.0f} s without it; "
                f"compiling one shape would take {takes}. --set jit_compile=true has it."
            )
        listed = ", ".join(f"{source} × {target}" for source, target in shapes)
        many = len(shapes) > 1
        return (
            f"{len(shapes)} shape{'s' if many else ''}, {listed}: compiling "
            f"{'them' if many else 'it'} takes {takes}. --set batch_shapes=N has N."
        )


def predict_seconds(
    steps: list[np.ndarray], shapes: list[np.ndarray], costs: Costs
) -> tuple[int, PredictedSeconds]:
    """Return the index of the choice of shapes that takes the least time, and its seconds.

    Args:
        steps: for each choice, how many steps of an epoch each of its shapes has, `(shapes,)`.
        shapes: for each choice, the widths `(shapes, 2)`; the first choice has one shape.
        costs: the costs of the training.
    """
    positions = [float(n @ w.sum(1)) for n, w in zip(steps, shapes, strict=True)]  # (choices,)
    training = costs.epochs * costs.scale * POSITION * np.array(positions)
    compiling = costs.scale * COMPILING * np.array([np.count_nonzero(n) for n in steps])
    best = int((training + compiling).argmin())
    graph = float(training.min()) * GRAPH_POSITION / POSITION
    without = costs.may_be_graph and graph < training[best] + compiling[best]
    shown = 0 if without else best
    times = float(compiling[shown]), float(training[shown])
    return best, PredictedSeconds(*times, graph if without else None)


def choose_widths(source: np.ndarray, labels: np.ndarray, count: int) -> list[np.ndarray]:
    """Return the shapes with the least padding, for one shape, for two, and so on up to `count`.

    A pair goes into the first shape that it fits in. Dynamic programming over the corners (s, t) of
    the histogram of lengths finds the shapes. With C pairs in a corner, the padded tokens are
    f(s, t) = min over smaller corners of f' + (C - C')(s + t).

    Args:
        source: length of each source, `(n,)`, from 1.
        labels: length of each target with its END, `(n,)`, from 1.
        count: largest number of shapes.

    Returns:
        For each number of shapes, widths of source and labels, int `(shapes, 2)`, both ascending.
    """
    sizes = int(source.max()), int(labels.max())  # S, T
    index = (np.maximum(source, 1).astype(np.int64) - 1) * sizes[1] + labels - 1  # (n,)
    histogram = np.bincount(index, minlength=sizes[0] * sizes[1]).reshape(sizes)  # (S, T)
    within = histogram.cumsum(0).cumsum(1).astype(float)  # pairs that fit in each corner
    # s + t of each corner
    width = np.add.outer(np.arange(1, sizes[0] + 1), np.arange(1, sizes[1] + 1))
    costs = [within * width]  # padded tokens (S, T) with one shape, with at most two, …
    for _ in range(count - 1):
        best = costs[-1].copy()
        for total in range(2, sum(sizes) + 1):  # corners with the same s + t share a minimum
            smaller = costs[-1] - within * total
            # minimum over all smaller corners
            smaller = np.minimum.accumulate(np.minimum.accumulate(smaller, 0), 1)
            place = width == total
            best[place] = np.minimum(best[place], (smaller + within * total)[place])
        costs.append(best)

    def traced_back(costs: list[np.ndarray]) -> np.ndarray:
        corner = sizes[0] - 1, sizes[1] - 1
        chosen = [corner]
        for cost in costs[-2::-1]:
            smaller = (cost - within * width[corner])[: corner[0] + 1, : corner[1] + 1]
            row, column = np.unravel_index(smaller.argmin(), smaller.shape)
            corner = int(row), int(column)
            chosen.append(corner)
        return np.unique(np.array(chosen), axis=0) + 1  # (shapes, 2)

    return [traced_back(costs[: n + 1]) for n in range(count)]
