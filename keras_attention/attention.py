"""The contract that every attention mechanism keeps.

A mechanism is a Keras layer that can be used in two ways that give the same result:

- all at once: `layer(query, value, key, ...)` for queries `(B, Tq, dq)`;
- one step at a time: `memory = layer.prepare(value)`, `state = layer.initial_state(memory)`, then
  `context, weights, state = layer.step(query, memory, state)` for each query `(B, dq)`.

Who calls whom, from what users call to what a mechanism gives:

    call ──> prepare, then attend_all ──┬─ queries that do not depend on one another ──> attend
             keys, project_key          └─ `sequential`: one after the other ─────────> attend
             queries, project_query

    step ──> step_with_noise, whose noise was drawn outside any loop ─────────────────> attend

    attend: masks, then weigh, then the average of the values
            weigh: score, then the distribution; a mechanism with a past overrides it

A memory may also be a grid, `(B, H, W, dim)`, as convolutions over an image make it: it is read
row by row as a sequence of `Tv = H · W` positions (Xu et al. 2015, arXiv 1502.03044).
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention import backend, losses, masks
from keras_attention.fast import switch
from keras_attention.sequential import attend_in_turn
from keras_attention.shapes import (
    batched_mask,
    both,
    causal_mask,
    check_shapes,
    checked_mask,
    expect_known_length,
    flat_length,
    flat_mask,
    flat_memory,
)
from keras_attention.weighing import Memory, Weighing

Tensor = Any


class Attention(Weighing):
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
        value_mask: boolean `(B, Tv)`, or of the grid `(B, H, W)`; what is False gets weight 0. The
            values there must be finite all the same: 0 times NaN is NaN, as in Keras's layers.
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
        if self.sequential and not one_step:
            expect_known_length(self, query)
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
        with switch.training(training):
            context, weights = self.attend_all(query, memory, query_mask, attention_mask, training)
        if one_step:
            context, weights = ops.squeeze(context, 1), ops.squeeze(weights, -2)
        if not return_attention_scores:
            return context
        if not one_step:
            masks.carry(weights, query_mask, memory.mask)
            if training:
                losses.await_losses(self)
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
            queries = backend.share(ops.shape(query)[0], ops.shape(memory.value)[0])
            noise = self.noise(self.weights_shape(memory, queries), training)
        return self.step_with_noise(query, memory, state, noise)

    def step_with_noise(
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
        total = ops.shape(query)[0]
        if rows is not None and rows == batch:
            query = ops.expand_dims(query, 1)
        else:
            batch = ops.shape(memory.value)[0]
            query = ops.reshape(query, (batch, backend.share(total, batch), query.shape[-1]))
        query = self.queries(query)
        context, weights, state = self.attend(query, memory, state, None, noise)
        # (B, n, dv) and (B, [heads,] n, Tv): beams join the batch axis
        length = ops.shape(memory.value)[-2]
        context = ops.reshape(context, (-1, context.shape[-1]))
        if self.num_heads == 1:
            return context, ops.reshape(weights, (total, length)), state
        weights = ops.reshape(ops.moveaxis(weights, 1, 2), (total, self.num_heads, length))
        return context, weights, state

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
