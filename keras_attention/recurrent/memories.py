"""Layers with one memory or several: their arguments are lists for several, tuples inside."""

from __future__ import annotations

from typing import Any

from keras_attention.attention import Attention, Memory
from keras_attention.layer import BaseLayer
from keras_attention.shapes import alike, checked_mask


class MemoriesLayer(BaseLayer):
    """A layer with an attention layer for each of its memories.

    A subclass sets `attention`, a list of layers where `several` is True and one otherwise, and
    gives `prepare`.
    """

    attention: Any
    several: bool
    _inputs_rank, _inputs_form = 2, "inputs (B, dim)"

    def prepare(self, value: Any, key: Any = None, mask: Any = None) -> Any:
        """Prepare a memory for a step; for several, lists all through."""
        raise NotImplementedError

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """The attention layers, one for each memory."""
        return tuple(self.attention) if self.several else (self.attention,)

    def _each(self, x: Any) -> tuple[Any, ...]:
        """Return an argument as a tuple, one element for each memory."""
        if x is None:
            return (None,) * len(self.attentions)
        if not self.several:
            return (x,)
        count = len(self.attentions)
        self._expect(
            isinstance(x, (list, tuple)) and not isinstance(x[0], int) and len(x) == count,
            f"{count} memory(s), and lists of as many",
            f"{len(x)} elements" if isinstance(x, (list, tuple)) else f"{type(x).__name__}",
        )
        return tuple(x)

    def _memories(self, prepared: Any) -> tuple[Memory, ...]:
        return (prepared,) if isinstance(prepared, Memory) else tuple(prepared)

    def _one(self, xs: Any) -> Any:
        """Return the one element of a result, or all of them for several memories."""
        return xs if self.several else xs[0]

    def _check_shapes(self, inputs: tuple[Any, ...], memories: tuple[Any, ...]) -> None:
        described = ", ".join(f"memory {tuple(shape)}" for shape in memories)
        received = f"inputs {tuple(inputs)}, {described}"
        self._expect(
            len(inputs) == self._inputs_rank and all(len(shape) in (3, 4) for shape in memories),
            f"{self._inputs_form} and a memory (B, S, dim) or (B, H, W, dim)",
            received,
        )
        self._expect(
            all(alike(inputs[0], shape[0]) for shape in memories), "one batch size", received
        )

    def _checked_memories(
        self, inputs_shape: tuple[Any, ...], memory: Any, mask: Any, key: Any
    ) -> tuple[Memory, ...]:
        """Check the arguments of a call, and prepare the memories."""
        memories = self._each(memory)
        self._check_shapes(inputs_shape, tuple(m.shape for m in memories))
        pairs = zip(memories, self._each(mask), strict=True)
        checked = [checked_mask(self, "memory_mask", m, x.shape[:-1]) for x, m in pairs]
        return self._memories(self.prepare(memory, key, self._one(checked)))
