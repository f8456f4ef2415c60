"""One memory or several: what a layer is given as itself, or as a list."""

from __future__ import annotations

from typing import Any

from keras_attention.layer import BaseLayer
from keras_attention.shapes import alike, checked_mask


class OfMemories(BaseLayer):
    """Base class of `AttentionCell`, with an attention layer for each memory.

    Attributes:
        several: whether arguments are lists, one element for each memory.
        attention: the attention layer, or a list of them.
    """

    several: bool
    attention: Any
    _inputs_rank: int
    _inputs_form: str

    def _list(self, x: Any) -> list[Any]:
        return list(x) if self.several else [x]

    def _list_or_nones(self, x: Any) -> list[Any]:
        return [None] * len(self._list(self.attention)) if x is None else self._list(x)

    def _one(self, xs: Any) -> Any:
        return xs if self.several else xs[0]

    def _check_shapes(self, inputs: tuple[Any, ...], memories: list[tuple[Any, ...]]) -> None:
        described = ", ".join(f"memory {tuple(shape)}" for shape in memories)
        received = f"inputs {tuple(inputs)}, {described}"
        self._expect(
            len(memories) == len(self._list(self.attention)),
            f"{len(self._list(self.attention))} memory(s), one for each attention layer",
            received,
        )
        self._expect(
            len(inputs) == self._inputs_rank and all(len(shape) in (3, 4) for shape in memories),
            f"{self._inputs_form} and a memory (B, S, dim) or (B, H, W, dim)",
            received,
        )
        self._expect(
            all(alike(inputs[0], shape[0]) for shape in memories), "one batch size", received
        )

    def _checked_memory_masks(self, memory: Any, mask: Any) -> Any:
        """Return the mask of the memory, or a list of those of the memories."""
        pairs = zip(self._list(memory), self._list_or_nones(mask), strict=True)
        return self._one([checked_mask(self, "memory_mask", m, x.shape[:-1]) for x, m in pairs])
