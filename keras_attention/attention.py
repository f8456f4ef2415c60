"""The contract that every attention mechanism keeps.

A mechanism is a Keras layer that can be used in two ways that give the same result:

- all at once: `layer(query, value, key, ...)` for queries `(B, Tq, dq)`;
- one step at a time: `memory = layer.prepare(value)`, `state = layer.initial_state(memory)`, then
  `context, weights, state = layer.step(query, memory, state)` for each query `(B, dq)`.

Who calls whom, from what users call to what a mechanism gives:

    call ──> prepare, then attend_all ──┬─ queries that do not depend on one another ──> attend
             keys, project_key          └─ `sequential`: one after the other ─────────> attend
             queries, project_query

    step ──> look, with noise drawn outside any loop ─────────────────────────────────> attend

    attend: masks, then weigh, then the average of the values
            weigh: score, then the distribution; a mechanism with a past overrides it

A memory may also be a grid, `(B, H, W, dim)`, as convolutions over an image make it: it is read
row by row as a sequence of `Tv = H · W` positions (Xu et al. 2015, arXiv 1502.03044).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_attention import distributions, masks
from keras_attention.fast import choice
from keras_attention.fast.backend import average
from keras_attention.layer import BaseLayer
from keras_attention.sequential import attend_in_turn
from keras_attention.shapes import (
    batched_mask,
    both,
    causal_mask,
    check_shapes,
    checked_mask,
    flat_length,
    flat_mask,
    flat_memory,
    join_heads,
    split_heads,
)

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


class Attention(BaseLayer):
    """Base class of the mechanisms.

    A subclass makes its weights in `build_score(query_dim, key_dim)` and gives `project_query`,
    `project_key` and `score`. One that remembers something from query to query sets
    `sequential = True` and overrides `initial_state` and `weigh`.

    Args:
        distribution: what makes weights out of scores: `"softmax"`, `"sparsemax"`, `"entmax15"`,
            `"sigmoid"` or `"smoothing"`, see `keras_attention.distributions`.
        num_heads: number of heads (Vaswani et al. 2017, arXiv 1706.03762, section 3.2.2). Each
            scores with its part of the projected query and key, averages its part of the value's
            dimensions, and the contexts are joined.
        dropout: fraction of the attention weights dropped in training. The weights that are
            returned are those before dropout.
        seed: integer seed of the dropout.
        **kwargs: `kernel_initializer`, `kernel_regularizer`, `kernel_constraint` of all kernels
            that a mechanism has; `name`, `dtype`.

    Call arguments:
        query: `(B, Tq, dq)`, or one step `(B, dq)`.
        value: `(B, Tv, dv)`, or a grid `(B, H, W, dv)`.
        key: `(B, Tv, dk)`, or a grid; the value if not given.
        query_mask: boolean `(B, Tq)`; weights and context are 0 where it is False, and what the
            mechanism remembers stays.
        value_mask: boolean `(B, Tv)`, or of the grid `(B, H, W)`; what is False gets weight 0.
        key_mask: like `value_mask`, and combined with it.
        attention_mask: boolean `(B, Tq, Tv)` or `(Tq, Tv)`, B and Tq of which may be 1; combined
            with the others.
        return_attention_scores: whether to return the attention weights as well.
        training: whether dropout is applied.
        use_causal_mask: whether query `i` sees only positions up to `i`, combined with the masks.

    Output:
        The contexts `(B, Tq, dv)`, or `(B, dv)` for one step; with `return_attention_scores` a
        pair of them and the weights `(B, Tq, Tv)`, or `(B, Tv)` for one step. With several heads
        the weights are `(B, heads, Tq, Tv)`, or `(B, heads, Tv)`.

    Raises:
        ValueError: if ranks, batch sizes, lengths or widths do not fit.

    Example:
        ```python
        class CosineAttention(Attention):
            def score(self, query, key):
                query, key = (keras.ops.normalize(x, axis=-1) for x in (query, key))
                return scores.dot(query, key)

        query, value = keras.random.normal((2, 3, 6)), keras.random.normal((2, 7, 6))
        context = CosineAttention()(query, value)  # (2, 3, 6)
        ```
    """

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

    # All queries at once.

    def build(
        self,
        query_shape: tuple[Any, ...],
        value_shape: tuple[Any, ...],
        key_shape: tuple[Any, ...] | None = None,
    ) -> None:
        """Make the weights for queries, values and keys of these shapes."""
        check_shapes(self, query_shape, value_shape, key_shape)
        self._expect(
            value_shape[-1] % self.num_heads == 0,
            f"a value of a width that num_heads={self.num_heads} divides",
            f"value {tuple(value_shape)}",
        )
        self.build_score(query_shape[-1], (key_shape or value_shape)[-1])

    def call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        key_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
        use_causal_mask: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend; arguments and result as the class says."""
        check_shapes(self, query.shape, value.shape, None if key is None else key.shape)
        query_mask = checked_mask(self, "query_mask", query_mask, query.shape[:-1])
        value_mask = checked_mask(self, "value_mask", value_mask, value.shape[:-1])
        key_mask = checked_mask(self, "key_mask", key_mask, (*value.shape[:-1],))
        attention_mask = checked_mask(
            self, "attention_mask", attention_mask, (*query.shape[:-1], flat_length(value.shape))
        )
        one_step = len(query.shape) == 2
        if one_step:
            query = ops.expand_dims(query, 1)
            query_mask = None if query_mask is None else ops.expand_dims(query_mask, 1)
            if attention_mask is not None:
                attention_mask = ops.expand_dims(attention_mask, -2)
        attention_mask = batched_mask(attention_mask)
        memory = self.prepare(value, key, both(flat_mask(value_mask), flat_mask(key_mask)))
        if use_causal_mask:
            sizes = ops.shape(query)[1], ops.shape(memory.value)[-2]
            attention_mask = both(attention_mask, causal_mask(*sizes))
        with choice.training(training):
            context, weights = self.attend_all(query, memory, query_mask, attention_mask, training)
        if one_step:
            context, weights = ops.squeeze(context, 1), ops.squeeze(weights, -2)
        if not return_attention_scores:
            return context
        if not one_step:
            masks.carry(weights, query_mask, memory.mask)
        return context, weights

    def attend_all(
        self,
        query: Tensor,
        memory: Memory,
        query_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend with a sequence of queries to a prepared memory.

        Args:
            query: `(B, Tq, dq)`.
            memory: from `prepare`.
            query_mask: boolean `(B, Tq)` or None.
            attention_mask: boolean `(B | 1, Tq, Tv)` or None.
            training: whether there is dropout and noise.

        Returns:
            Contexts `(B, Tq, dv)` and weights `(B, Tq, Tv)`, with heads `(B, heads, Tq, Tv)`.
        """
        query = ops.cast(query, self.compute_dtype)
        length, mask = ops.shape(query)[1], attention_mask
        if query_mask is not None:
            mask = both(mask, ops.expand_dims(query_mask, -1))
        query = self.queries(query)
        if self.sequential:
            noise = self.noise((length, *self.weights_shape(memory, 1)), training)

            def attend(query: Any, state: Any, mask: Any, noise: Any) -> tuple[Tensor, Tensor, Any]:
                return self.attend(query, memory, state, mask, noise)

            state = self.initial_state(memory)
            return attend_in_turn(attend, query, state, noise, query_mask, mask, self.compute_dtype)
        noise = self.noise(self.weights_shape(memory, length), training)
        state = self.states_at_once(memory, query_mask, length)
        return self.attend(query, memory, state, mask, noise)[:2]

    def states_at_once(self, memory: Memory, query_mask: Tensor | None, length: Any) -> Any:
        """Return the states before each of `Tq` queries, `(B·Tq, ...)`, if not `sequential`."""
        return ()

    # One query at a time.

    def prepare(
        self, value: Tensor, key: Tensor | None = None, mask: Tensor | None = None
    ) -> Memory:
        """Do once what does not depend on the query: project the keys.

        Args:
            value: `(B, Tv, dv)`, or a grid `(B, H, W, dv)`.
            key: `(B, Tv, dk)`, or a grid; the value if not given.
            mask: boolean `(B, Tv)`, or of the grid `(B, H, W)`, or None.

        Returns:
            A `Memory` to pass to `initial_state` and `step`.
        """
        self._expect_built()
        mask = flat_mask(checked_mask(self, "mask", mask, value.shape[:-1]))
        value = flat_memory(ops.cast(value, self.compute_dtype))
        key = value if key is None else flat_memory(ops.cast(key, self.compute_dtype))
        return Memory(self.split_heads(value), self.keys(key, mask), mask)

    def step(
        self, query: Tensor, memory: Memory, state: Any, training: bool | None = None
    ) -> tuple[Tensor, Tensor, Any]:
        """Attend with one query.

        Several queries may share a memory, as the beams of a search do: `query` has `n` rows for
        each row of the memory, those of one memory row next to one another.

        Args:
            query: `(B·n, dq)`.
            memory: from `prepare`, with batch size B.
            state: from `initial_state` or the last step, with `B·n` rows.
            training: whether dropout is applied.

        Returns:
            The context `(B·n, dv)`, the attention weights `(B·n, Tv)`, with several heads
            `(B·n, heads, Tv)`, and the next state.
        """
        noise = {}
        if training:
            queries = ops.shape(query)[0] // ops.shape(memory.value)[0]
            noise = self.noise(self.weights_shape(memory, queries), training)
        return self.look(query, memory, state, noise)

    def look(
        self, query: Tensor, memory: Memory, state: Any, noise: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, Any]:
        """Do the work of `step`, with given noise."""
        query = ops.cast(query, self.compute_dtype)
        rows, batch = query.shape[0], memory.value.shape[0]
        self._expect(
            not (rows and batch) or rows % batch == 0,
            f"a multiple of {batch} queries, those of one memory row next to one another: a memory "
            "is shared by the beams of a search, and never tiled",
            f"query {tuple(query.shape)}",
        )
        if rows is not None and rows == batch:
            query = ops.expand_dims(query, 1)
        else:
            query = ops.reshape(query, (ops.shape(memory.value)[0], -1, query.shape[-1]))
        query = self.queries(query)
        context, weights, state = self.attend(query, memory, state, None, noise)
        # (B, n, dv) and (B, [heads,] n, Tv): beams join the batch axis
        length = ops.shape(memory.value)[-2]
        context = ops.reshape(context, (-1, context.shape[-1]))
        if self.num_heads == 1:
            return context, ops.reshape(weights, (-1, length)), state
        weights = ops.reshape(ops.moveaxis(weights, 1, 2), (-1, self.num_heads, length))
        return context, weights, state

    # Shared by the mechanisms.

    @property
    def wide_dtype(self) -> str:
        """What is summed over many positions or queries is in this: float32 or wider."""
        return "float64" if self.compute_dtype == "float64" else "float32"

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

    # Keras.

    def compute_output_shape(
        self,
        query_shape: tuple[Any, ...],
        value_shape: tuple[Any, ...],
        key_shape: tuple[Any, ...] | None = None,
    ) -> tuple[Any, ...]:
        """Return the shape of the contexts."""
        return (*query_shape[:-1], value_shape[-1])

    def compute_output_spec(
        self, query: Any, value: Any, key: Any = None, **kwargs: Any
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, keras.KerasTensor]:
        """Return the symbolic contexts, and weights where they are asked for."""
        check_shapes(self, query.shape, value.shape, None if key is None else key.shape)
        context = keras.KerasTensor((*query.shape[:-1], value.shape[-1]), self.compute_dtype)
        if not kwargs.get("return_attention_scores"):
            return context
        batch, *steps = query.shape[:-1]
        heads = [self.num_heads] if self.num_heads > 1 else []
        shape = (batch, *heads, *steps, flat_length(value.shape))
        return context, keras.KerasTensor(shape, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "distribution": self.distribution,
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            "seed": self.seed,
        }
