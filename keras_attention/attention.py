"""The contract that every attention mechanism keeps.

A mechanism is a Keras layer that can be used in two ways that give the same result:

- all at once: `layer(query, value, key, ...)` for queries `(B, Tq, dq)`;
- one step at a time: `memory = layer.prepare(value)`, `state = layer.initial_state(memory)`, then
  `context, weights, state = layer.step(query, memory, state)` for each query `(B, dq)`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_attention import distributions

Tensor = Any


class Memory(NamedTuple):
    """What is attended to, with everything that does not depend on the query done once.

    Attributes:
        value: `(B, Tv, dv)`, what contexts are averaged from.
        key: `(B, Tv, ·)`, the keys as the score function wants them, projected where it projects.
        mask: boolean `(B, Tv)`, True where there is something to attend to, or None.
    """

    value: Tensor
    key: Tensor
    mask: Tensor | None


class Attention(keras.layers.Layer):
    """Base class of the mechanisms whose scores depend on nothing but query and keys.

    A subclass makes its weights in `build_score(query_dim, key_dim)` and gives `project_query`,
    `project_key` and `score`, or overrides `initial_state` and `attend` if it remembers something
    from one query to the next.

    Args:
        dropout: fraction of the attention weights dropped in training. The weights that are
            returned are those before dropout.
        seed: integer seed of the dropout.

    Call arguments:
        query: `(B, Tq, dq)`, or one step `(B, dq)`.
        value: `(B, Tv, dv)`.
        key: `(B, Tv, dk)`; the value if not given.
        query_mask: boolean `(B, Tq)`; weights and context are 0 where it is False.
        value_mask: boolean `(B, Tv)`; what is False gets weight 0.
        key_mask: boolean `(B, Tv)`, combined with `value_mask`.
        attention_mask: boolean `(B, Tq, Tv)` or `(Tq, Tv)`, combined with the others.
        return_attention_scores: whether to return the attention weights as well.
        training: whether dropout is applied.
        use_causal_mask: whether query `i` sees only positions up to `i`, combined with the masks.

    Output:
        The contexts `(B, Tq, dv)`, or `(B, dv)` for one step; with `return_attention_scores` a
        pair of them and the weights `(B, Tq, Tv)`, or `(B, Tv)` for one step.

    Raises:
        ValueError: if ranks, batch sizes, lengths or widths do not fit.
    """

    def __init__(self, dropout: float = 0.0, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0 <= dropout < 1:
            raise ValueError(
                f"{type(self).__name__} expected 0 <= dropout < 1. Received: dropout={dropout}"
            )
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
        """Return the scores `(B, Tq, Tv)` of projected queries and projected keys."""
        raise NotImplementedError

    # All queries at once.

    def build(self, query_shape: tuple, value_shape: tuple, key_shape: tuple | None = None) -> None:
        """Make the weights for queries, values and keys of these shapes."""
        self._check_shapes(query_shape, value_shape, key_shape)
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
        self._check_shapes(query.shape, value.shape, None if key is None else key.shape)
        length = value.shape[1]
        check_mask(self, "query_mask", query_mask, query.shape[:-1])
        check_mask(self, "value_mask", value_mask, (value.shape[0], length))
        check_mask(self, "key_mask", key_mask, (value.shape[0], length))
        check_mask(self, "attention_mask", attention_mask, (*query.shape[:-1], length))
        one_step = len(query.shape) == 2
        if one_step:
            query = ops.expand_dims(query, 1)
        memory = self.prepare(value, key, _both(value_mask, key_mask))
        mask = self._attention_mask(query, memory, query_mask, attention_mask, use_causal_mask)
        scores = self.score(self.project_query(query), memory.key)
        weights = distributions.softmax(scores, mask)
        context = ops.matmul(self._drop(weights, training), memory.value)
        if one_step:
            context, weights = ops.squeeze(context, 1), ops.squeeze(weights, 1)
        return (context, weights) if return_attention_scores else context

    # One query at a time.

    def prepare(
        self, value: Tensor, key: Tensor | None = None, mask: Tensor | None = None
    ) -> Memory:
        """Do once what does not depend on the query: project the keys.

        Args:
            value: `(B, Tv, dv)`.
            key: `(B, Tv, dk)`; the value if not given.
            mask: boolean `(B, Tv)` or None.

        Returns:
            A `Memory` to pass to `initial_state` and `step`.
        """
        value = ops.cast(value, self.compute_dtype)
        key = value if key is None else ops.cast(key, self.compute_dtype)
        return Memory(value, self.project_key(key), mask)

    def initial_state(self, memory: Memory) -> Any:
        """Return what the mechanism remembers before the first step: here nothing, `()`."""
        return ()

    def step(
        self, query: Tensor, memory: Memory, state: Any, training: bool | None = None
    ) -> tuple[Tensor, Tensor, Any]:
        """Attend with one query.

        Several queries may share a memory, as the beams of a search do: `query` has `n` rows for
        each row of the memory, those of one memory row next to one another.

        Args:
            query: `(B·n, dq)`.
            memory: from `prepare`, with batch size B.
            state: from `initial_state` or the last step.
            training: whether dropout is applied.

        Returns:
            The context `(B·n, dv)`, the attention weights `(B·n, Tv)` and the next state.
        """
        query = ops.cast(query, self.compute_dtype)
        length, width = memory.value.shape[1:]
        if query.shape[0] is not None and query.shape[0] == memory.value.shape[0]:
            query = ops.expand_dims(query, 1)
        else:
            query = ops.reshape(query, (ops.shape(memory.value)[0], -1, query.shape[-1]))
        context, weights = self.attend(self.project_query(query), memory, training)  # (B, n, ·)
        length = ops.shape(memory.value)[1] if length is None else length
        return ops.reshape(context, (-1, width)), ops.reshape(weights, (-1, length)), state

    def attend(
        self, query: Tensor, memory: Memory, training: bool | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return context `(B, n, dv)` and weights `(B, n, Tv)` of projected queries `(B, n, ·)`."""
        mask = None if memory.mask is None else ops.expand_dims(memory.mask, 1)
        weights = distributions.softmax(self.score(query, memory.key), mask)
        return ops.matmul(self._drop(weights, training), memory.value), weights

    # Keras.

    def compute_output_shape(
        self,
        query_shape: tuple,
        value_shape: tuple,
        key_shape: tuple | None = None,
    ) -> tuple:
        """Return the shape of the contexts."""
        return (*query_shape[:-1], value_shape[-1])

    def compute_output_spec(
        self, query: Any, value: Any, key: Any = None, **kwargs: Any
    ) -> keras.KerasTensor | tuple[keras.KerasTensor, keras.KerasTensor]:
        """Return the symbolic contexts, and weights where they are asked for."""
        self._check_shapes(query.shape, value.shape, None if key is None else key.shape)
        context = keras.KerasTensor((*query.shape[:-1], value.shape[-1]), self.compute_dtype)
        if not kwargs.get("return_attention_scores"):
            return context
        weights = keras.KerasTensor((*query.shape[:-1], value.shape[1]), self.compute_dtype)
        return context, weights

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "dropout": self.dropout, "seed": self.seed}

    # Shared by the mechanisms.

    def _drop(self, weights: Tensor, training: bool | None) -> Tensor:
        if not (training and self.dropout):
            return weights
        return keras.random.dropout(weights, self.dropout, seed=self.seed_generator)

    def _attention_mask(
        self,
        query: Tensor,
        memory: Memory,
        query_mask: Tensor | None,
        attention_mask: Tensor | None,
        use_causal_mask: bool,
    ) -> Tensor | None:
        """Join all masks into one that broadcasts to `(B, Tq, Tv)`, or None."""
        mask = None if memory.mask is None else ops.expand_dims(memory.mask, 1)
        if query_mask is not None:
            query_mask = ops.cast(query_mask, "bool")
            shape = (ops.shape(query)[0], ops.shape(query)[1], 1)
            mask = _both(mask, ops.reshape(query_mask, shape))
        if attention_mask is not None:
            attention_mask = ops.cast(attention_mask, "bool")
            if len(attention_mask.shape) == 2:
                attention_mask = ops.expand_dims(attention_mask, 0)
            mask = _both(mask, attention_mask)
        if use_causal_mask:
            rows = ops.expand_dims(ops.arange(ops.shape(query)[1]), 1)
            columns = ops.expand_dims(ops.arange(ops.shape(memory.value)[1]), 0)
            mask = _both(mask, ops.expand_dims(rows >= columns, 0))
        return mask

    def _check_shapes(self, query: tuple, value: tuple, key: tuple | None) -> None:
        received = f"Received: query {tuple(query)}, value {tuple(value)}" + (
            "" if key is None else f", key {tuple(key)}"
        )
        name = type(self).__name__
        if len(query) not in (2, 3) or len(value) != 3 or len(key or value) != 3:
            raise ValueError(
                f"{name} expected a query (B, Tq, dim) or (B, dim), a value (B, Tv, dim) and a "
                f"key (B, Tv, dim). {received}"
            )
        if not alike(query[0], value[0]) or not alike(value[0], (key or value)[0]):
            raise ValueError(f"{name} expected one batch size. {received}")
        if not alike(value[1], (key or value)[1]):
            raise ValueError(f"{name} expected key and value of the same length. {received}")


def alike(a: int | None, b: int | None) -> bool:
    """Return whether two sizes, None where unknown, can be the same."""
    return a is None or b is None or a == b


def check_mask(layer: keras.layers.Layer, name: str, mask: Tensor | None, shape: tuple) -> None:
    """Raise a ValueError if the mask's shape is not the one given."""
    if mask is None:
        return
    # An attention mask may leave out the batch axis.
    end = shape[1:] if name == "attention_mask" and len(mask.shape) < len(shape) else shape
    if len(mask.shape) != len(end) or not all(map(alike, mask.shape, end)):
        raise ValueError(
            f"{type(layer).__name__} expected {name} {tuple(shape)}. "
            f"Received: {name} {tuple(mask.shape)}"
        )


def _both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Combine two masks, either of which may be None."""
    a = None if a is None else ops.cast(a, "bool")
    b = None if b is None else ops.cast(b, "bool")
    if a is None or b is None:
        return a if b is None else b
    return ops.logical_and(a, b)
