"""The masks that attention weights carry from the layer that made them to a loss.

A Keras mask has one axis of time, weights have two. So the masks go beside the tensor: a layer asks
for them with `carried`, and other layers do not notice.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

Tensor = Any


class Masks(NamedTuple):
    """The positions that count in weights `(B, T, S)`.

    Attributes:
        target: boolean `(B, T)`, or None for all.
        source: boolean `(B, S)`, or None for all.
    """

    target: Tensor | None = None
    source: Tensor | None = None


# Tensors that take no attributes (those of JAX), by identity, for as long as they live.
_by_id: dict[int, Masks] = {}


def carry(weights: Tensor, target: Tensor | None, source: Tensor | None) -> None:
    """Let the weights carry their masks."""
    try:
        weights._attention_masks = Masks(target, source)
    except AttributeError:
        _by_id[id(weights)] = Masks(target, source)
        weakref.finalize(weights, _by_id.pop, id(weights), None)


def carried(weights: Tensor) -> Masks:
    """Return the masks that the weights carry; those that they lack are None."""
    found: Masks = getattr(weights, "_attention_masks", None) or _by_id.get(id(weights), Masks())
    return found
