"""What an attention mechanism gives: the weights of queries over a prepared memory.

How they are asked for, all at once or one at a time, is in `attention`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_attention import distributions
from keras_attention.backend import average
from keras_attention.layer import BaseLayer
from keras_attention.shapes import both, join_heads, split_heads

Tensor = Any


class Memory(NamedTuple):
    """What is attended to, with everything that does not depend on the query done once.

    Attributes:
        value: `(B, Tv, dv)`, what contexts are averaged from.
        key: `(B, Tv, ·)`, the keys as the score function wants them, projected where it projects.
        mask: boolean `(B, Tv)`, True where there is something to attend to, or None.

    With several heads value and key are split among them, `(B, heads, Tv, ·)`.
    """

    value: Tensor
    key: Any
    mask: Tensor | None


class Weighing(BaseLayer):
    """Base class of `Attention`, whose docstring has the arguments."""

    # Whether a query's weights depend on those of the queries before it.
    sequential = False

    def __init__(
        self,
        distribution: str = "softmax",
        num_heads: int = 1,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._expect(
            distribution in distributions.BY_NAME,
            f"distribution to be one of {', '.join(distributions.BY_NAME)}",
            f"distribution={distribution!r}",
        )
        self._expect_count("num_heads", num_heads)
        self._expect(0 <= dropout < 1, "0 <= dropout < 1", f"dropout={dropout}")
        self.distribution = distribution
        self.num_heads = num_heads
        self.dropout = dropout
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed) if dropout else None
        self.supports_masking = True

    # What a mechanism provides.

    def build_score(self, query_dim: int, key_dim: int) -> None:
        """Make the weights of the score function."""

    def project_query(self, query: Tensor) -> Tensor:
        """Return the queries `(B, Tq, dq)` as the score function wants them."""
        return query

    def project_key(self, key: Tensor) -> Tensor:
        """Return the keys `(B, Tv, dk)` as the score function wants them."""
        return key

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores `(B, Tq, Tv)` of projected queries and projected keys.

        With several heads the arguments are `(B, heads, T, ·)`, the scores `(B, heads, Tq, Tv)`.
        """
        raise NotImplementedError

    def queries(self, query: Tensor) -> Any:
        """Return what `weigh` is to know of the queries `(B, n, dq)`."""
        return self.split_heads(self.project_query(query))

    def keys(self, key: Tensor, mask: Tensor | None) -> Any:
        """Return the memory's `key` of keys `(B, Tv, dk)` and its mask `(B, Tv)` or None."""
        return self.split_heads(self.project_key(key))

    def initial_state(self, memory: Memory) -> Any:
        """Return what the mechanism remembers before the first step: here nothing, `()`.

        A state is a structure of tensors whose first axis is the batch.
        """
        return ()

    def weigh(
        self, query: Any, memory: Memory, state: Any, mask: Tensor | None, noise: dict[str, Tensor]
    ) -> tuple[Tensor, Any]:
        """Return the attention weights of queries that do not depend on one another.

        Args:
            query: from `queries`: `(B, n, ·)` projected, with several heads `(B, heads, n, ·)`.
            memory: from `prepare`.
            state: from `initial_state` or the last step, with `B·n` rows.
            mask: boolean, broadcasts to the weights, or None.
            noise: from `noise`, for weights of this shape.

        Returns:
            The weights `(B, n, Tv)`, with several heads `(B, heads, n, Tv)`, and the next state.
        """
        scores = self.score(query, memory.key)
        return distributions.BY_NAME[self.distribution](scores, mask), state

    def noise(self, shape: tuple[Any, ...], training: bool | None) -> dict[str, Tensor]:
        """Draw, before any loop, what is random about attention weights of this shape.

        Args:
            shape: `(..., n, Tv)`.
            training: whether there is to be anything random.

        Returns:
            Tensors of this shape by name: `"dropout"`, factors for the weights.
        """
        if not (training and self.dropout):
            return {}
        ones = ops.ones(shape, self.compute_dtype)
        return {"dropout": keras.random.dropout(ones, self.dropout, seed=self.seed_generator)}

    # Shared by the mechanisms.

    def attend(
        self, query: Any, memory: Memory, state: Any, mask: Tensor | None, noise: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, Any]:
        """Weigh the memory and average it; arguments as those of `weigh`.

        Args:
            query: see `weigh`.
            memory: see `weigh`.
            state: see `weigh`.
            mask: boolean `(B | 1, n | 1, Tv | 1)` or None, combined with the memory's mask.
            noise: see `weigh`.

        Returns:
            The contexts `(B, n, dv)`, the weights of `weigh` in the compute dtype, and the state.
        """
        if memory.mask is not None:
            mask = both(ops.expand_dims(memory.mask, 1), mask)
        if mask is not None and self.num_heads > 1:
            mask = ops.expand_dims(mask, 1)
        weights, state = self.weigh(query, memory, state, mask, noise)
        weights = ops.cast(weights, self.compute_dtype)
        dropped = weights * noise["dropout"] if "dropout" in noise else weights
        context = average(dropped, memory.value)
        return (context if self.num_heads == 1 else join_heads(context)), weights, state

    def split_heads(self, x: Any) -> Any:
        """Split the last axis of `(B, T, ·)` among the heads: `(B, heads, T, ·)`."""
        return x if self.num_heads == 1 else split_heads(x, self.num_heads)

    def weights_shape(self, memory: Memory, queries: Any) -> tuple[Any, ...]:
        """Return the shape of the weights of so many queries, `(B, [heads,] queries, Tv)`."""
        *lead, length, _ = ops.shape(memory.value)
        return (*lead, queries, length)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "distribution": self.distribution,
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            "seed": self.seed,
        }
