"""The base class of the attention mechanisms, and the prepared memory.

A mechanism is a Keras layer. It can be called in two ways, with the same result:

- all queries at once: `layer(query, value, key, ...)` for queries `(B, Tq, dq)`;
- one step at a time: `memory = layer.prepare(value)`, `state = layer.initial_state(memory)`, then
  `context, weights, state = layer.step(query, memory, state)` for each query `(B, dq)`.

Both ways prepare the memory once (`keys`), project the queries (`queries`) and call `attend`:
`attend` combines the masks, computes scores (`compute_scores`), turns the scores into weights
(`weigh`), and averages the values with the weights.

A memory may also be a grid `(B, H, W, dim)`, such as the output of convolutions over an image. A
grid is read row by row, as a sequence of `Tv = H · W` positions (Xu et al. 2015, arXiv 1502.03044).
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import keras
from keras import ops, tree

from keras_attention import backend
from keras_attention._sequential import attend_in_turn
from keras_attention.layer import AveragingLayer, expect_known_length, keeps
from keras_attention.shapes import Shape, Tensor, both, causal_mask, fits, flat_length, flat_memory

Noise = dict[str, Tensor] | None


class Memory(NamedTuple):
    """A prepared memory: everything that does not depend on the query.

    Attributes:
        value: `(B, Tv, dv)`, the vectors that are averaged to contexts.
        key: what `keys` returns for `compute_scores`, usually projected keys `(B, Tv, ·)`.
        mask: boolean `(B, Tv)`, or None. False positions get weight 0.

    With several heads, value and key are split among the heads: `(B, heads, Tv, ·)`.
    """

    value: Tensor
    key: Any
    mask: Tensor | None


class Attention(AveragingLayer):
    """Base class of the mechanisms.

    A subclass creates its weights in `build_score(query_dim, key_dim)`, projects its inputs in
    `queries` and `keys`, and computes scores in `compute_scores`. It may override `weigh` to turn
    the scores into weights in another way. If the weights of a query depend on the weights of
    earlier queries, the subclass sets `sequential = True`. Its `state_spec`, `initial_state` and
    `weigh` then define the state that is passed from query to query.

    Args:
        distribution: turns scores into weights: `"softmax"`, `"sparsemax"`, `"entmax15"`, or a
            function `(scores, mask) -> weights`, see `keras_attention.distributions`.
        num_heads: number of heads (Vaswani et al. 2017, arXiv 1706.03762, section 3.2.2). Each
            head computes scores from its part of the projected query and key, and averages its
            part of the value's dimensions. The contexts of the heads are concatenated.
        dropout: fraction of the attention weights dropped in training. The returned weights are
            the weights before dropout.
        seed: integer seed of the dropout.
        **kwargs: `kernel_initializer`, `kernel_regularizer`, `kernel_constraint` of all kernels
            of the mechanism; `name`, `dtype`.

    Call arguments:
        query: `(B, Tq, dq)`, or one step `(B, dq)`.
        value: `(B, Tv, dv)`, or a grid `(B, H, W, dv)`.
        key: `(B, Tv, dk)`, or a grid; the value if not given.
        query_mask: boolean `(B, Tq)`, or `(B,)` for one step; False queries have weights and
            context 0, and do not change the mechanism's state. They may be NaN or infinite.
        value_mask: boolean `(B, Tv)`, or `(B, H, W)` for a grid; False positions get weight 0.
            Values and keys at False positions may be NaN or infinite.
        key_mask: like `value_mask`. All masks are combined.
        attention_mask: boolean `(B, Tq, Tv)` or `(Tq, Tv)`, or `(B, Tv)` for one step; B and Tq may
            be 1. A position that only this mask hides must have a finite value: 0 times NaN is NaN.
        return_attention_scores: whether to return the attention weights as well.
        training: whether dropout is applied.
        use_causal_mask: whether query `i` sees only positions up to `i`.

    Output:
        The contexts `(B, Tq, dv)`, or `(B, dv)` for one step. With `return_attention_scores`, a
        pair of contexts and weights `(B, Tq, Tv)`, or `(B, Tv)` for one step. With several heads,
        the weights are `(B, heads, Tq, Tv)`, or `(B, heads, Tv)` for one step.

    Raises:
        ValueError: if ranks, batch sizes, lengths or widths do not fit.

    Example:
        ```python
        class CosineAttention(Attention):
            def compute_scores(self, query, key):
                query, key = (keras.ops.normalize(x, axis=-1) for x in (query, key))
                return scores.dot(query, key)

        query, value = keras.random.normal((2, 3, 6)), keras.random.normal((2, 7, 6))
        context = CosineAttention()(query, value)  # (2, 3, 6)
        ```
    """

    # The methods that a mechanism overrides.

    # Whether the weights of a query depend on the weights of earlier queries.
    sequential = False
    # dq and dk of the shapes that the layer was built with.
    query_width: int | None = None
    key_width: int | None = None

    def build_score(self, query_dim: int, key_dim: int) -> None:
        """Create the weights of the score function."""

    def queries(self, query: Tensor) -> Any:
        """Return queries `(B, n, dq)`, projected for `compute_scores` and `weigh`.

        With several heads, the projected queries are split among the heads: see `split_heads`.
        """
        return self.split_heads(query)

    def keys(self, key: Tensor, mask: Tensor | None) -> Any:
        """Return `Memory.key`: keys `(B, Tv, dk)`, projected. The mask is `(B, Tv)` or None."""
        return self.split_heads(key)

    def compute_scores(self, query: Any, key: Any) -> Any:
        """Return the scores `(B, n, Tv)` of projected queries and keys.

        With several heads, queries are `(B, heads, n, ·)`, keys `(B, heads, Tv, ·)`, and scores
        `(B, heads, n, Tv)`.
        """
        raise NotImplementedError

    def state_spec(self, batch: int | None, length: int | None) -> Any:
        """Return the shapes and dtypes of the state as `keras.KerasTensor`s: `()`, no state.

        A state is a structure of tensors `(batch, ...)`. The batch size and the length `Tv` of the
        memory may be None. A mechanism with a state overrides this method and `initial_state`.
        """
        if not keeps(self.initial_state, Attention.initial_state):
            self._refuse("a state_spec beside an initial_state", "a mechanism without")
        return ()

    def initial_state(self, memory: Memory) -> Any:
        """Return the state before the first step: `()`, no state."""
        self.expect_memory(memory)
        return ()

    def states_of_all_queries(
        self, state: Any, query_mask: Tensor | None, batch: Any, length: Any
    ) -> tuple[Any, Any]:
        """Return the state before each query, `(B·Tq, ...)`, and the state after the last query.

        Only mechanisms that are not `sequential` need this method: their states do not depend on
        the weights.

        Args:
            state: the state before the first query, `(B, ...)`.
            query_mask: boolean `(B, Tq)` or None; False queries do not change the state.
            batch: B.
            length: `Tq`.
        """
        return state, state

    def weigh(
        self, scores: Any, query: Any, memory: Memory, state: Any, mask: Tensor | None, noise: Noise
    ) -> tuple[Tensor, Any]:
        """Return the attention weights of `n` queries, each with a state of its own.

        Args:
            scores: from `compute_scores`, `(B, n, Tv)`, with several heads `(B, heads, n, Tv)`.
            query: from `queries`.
            memory: from `prepare`.
            state: from `initial_state` or the last step, with `B·n` rows.
            mask: boolean `(B | 1, n | 1, Tv | 1)`, with several heads
                `(B | 1, 1, n | 1, Tv | 1)`, or None.
            noise: in training, the result of `draw_noise` for weights of this shape; otherwise
                None.

        Returns:
            The weights, of the scores' shape, and the next state, with `B·n` rows.
        """
        return self.distribute(scores, mask), state

    def draw_noise(self, shape: tuple[Any, ...]) -> dict[str, Tensor]:
        """Return the random numbers of training for weights of a shape `(..., n, Tv)`.

        They are drawn before a loop over queries, not in it.

        Returns:
            Tensors of this shape by name: `"dropout"`, the factors of the weights, if the layer
            has dropout.
        """
        return {"dropout": self.dropped(shape)} if self.dropout else {}

    # All queries at once.

    def build(
        self,
        query_shape: tuple[Any, ...],
        value_shape: Any = None,
        key_shape: tuple[Any, ...] | None = None,
    ) -> None:
        """Create the weights for queries, values and keys of these shapes."""
        self._expect_inputs(value_shape)
        self._check_shapes(query_shape, value_shape, key_shape)
        self._expect_divided("a value", value_shape)
        self.query_width, self.key_width = query_shape[-1], (key_shape or value_shape)[-1]
        self.build_score(self.query_width, self.key_width)

    def _check_shapes(self, query: Shape | None, value: Shape, key: Shape | None) -> None:
        """Raise a ValueError if the shapes do not fit one another or the layer's weights.

        The shape of a query or key that was not given is None.
        """
        shapes = {"query": query, "value": value, "key": key}
        key = value if key is None else key
        query = (value[0], self.query_width or value[-1]) if query is None else query
        expected = ""
        if len(query) not in (2, 3) or len(value) not in (3, 4) or len(key) not in (3, 4):
            expected = "a query (B, Tq, dim) or (B, dim), a value (B, Tv, dim) or (B, H, W, dim) "
            expected += "and a key like it"
        elif not (query[0] == value[0] == key[0] or fits((query[0], key[0]), (value[0],) * 2)):
            expected = "one batch size"
        elif key is not value and not fits(key[1:-1], value[1:-1]):
            expected = "key and value of the same length"
        elif 0 in (*query[1:], *value[1:]):
            expected = "a query and a position at least"
        elif None in (query[-1], value[-1], key[-1]):
            expected = "a known last axis"
        elif self.built and (query[-1], key[-1]) != (self.query_width, self.key_width):
            widths = f"a query of width {self.query_width} and a key of width {self.key_width}"
            expected = f"{widths}, as it was built"
        if expected:
            named = [f"{name} {tuple(x)}" for name, x in shapes.items() if x is not None]
            self._refuse(expected, ", ".join(named))

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
        """Return contexts, and weights if requested; the class documents arguments and output."""
        self._check_shapes(query.shape, value.shape, None if key is None else key.shape)
        one_step = len(query.shape) == 2
        if query_mask is not None:
            query_mask = self._checked_mask("query_mask", query_mask, query.shape[:-1])
        value_mask = self._checked_mask("value_mask", value_mask, value.shape[:-1])
        if key_mask is not None:
            key_mask = self._checked_mask("key_mask", key_mask, value.shape[:-1])
            value_mask = both(value_mask, key_mask)
        if attention_mask is not None:
            shape = (*query.shape[:-1], flat_length(value.shape))
            attention_mask = self._checked_attention_mask(attention_mask, shape)
        if one_step:
            query = ops.expand_dims(query, 1)
            query_mask = None if query_mask is None else ops.expand_dims(query_mask, 1)
        elif self.sequential:
            expect_known_length(self, query)
        memory = self.prepare(value, key, value_mask)
        if use_causal_mask:
            sizes = ops.shape(query)[1], ops.shape(memory.value)[-2]
            attention_mask = both(attention_mask, causal_mask(*sizes))
        arguments = query, memory, self.initial_state(memory), query_mask, training
        context, weights, _ = self.attend_all(*arguments, attention_mask)
        if one_step:
            context, weights = ops.squeeze(context, 1), ops.squeeze(weights, -2)
        return (context, weights) if return_attention_scores else context

    def attend_all(
        self,
        query: Tensor,
        memory: Memory,
        state: Any,
        query_mask: Tensor | None = None,
        training: bool | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Any]:
        """Return what `Tq` calls of `step`, one for each query, would return.

        Args:
            query: `(B, Tq, dq)`.
            memory: from `prepare`.
            state: the state before the first query.
            query_mask: boolean `(B, Tq)`, or None.
            training: whether dropout is applied.
            mask: mask of the weights, boolean `(B | 1, Tq | 1, Tv | 1)`, or None.

        Returns:
            The contexts `(B, Tq, dv)`, the weights `(B, [heads,] Tq, Tv)` and the last state.
        """
        query = ops.cast(query, self.compute_dtype)
        batch, length = ops.shape(query)[:2]
        if query_mask is not None:
            seen = ops.expand_dims(query_mask, -1)  # (B, Tq, 1)
            query = ops.where(seen, query, ops.zeros((), self.compute_dtype))  # it may be NaN
            mask = both(mask, seen)
        noise = None
        if training:
            steps = (length,) if self.sequential else ()
            shape = self.weights_shape(memory, 1 if self.sequential else length)
            noise = self.draw_noise((*steps, *shape))
        query = self.queries(query)
        if self.sequential:
            return attend_in_turn(self.attend, query, memory, state, query_mask, mask, noise)
        state, last = self.states_of_all_queries(state, query_mask, batch, length)
        with backend.with_settings(training=True) if training else contextlib.nullcontext():
            context, weights, _ = self.attend(query, memory, state, mask, noise)
        return context, weights, last

    def attend(
        self, query: Any, memory: Memory, state: Any, mask: Tensor | None, noise: Noise
    ) -> tuple[Tensor, Tensor, Any]:
        """Return contexts `(B, n, dv)`, and weights `(B, [heads,] n, Tv)` and state from `weigh`.

        The arguments are those of `weigh`, except the mask, boolean `(B | 1, n | 1, Tv | 1)` or
        None: it is combined with the memory's mask, and gets an axis for several heads.
        """
        if memory.mask is not None:
            visible = ops.expand_dims(memory.mask, 1)  # (B, 1, Tv)
            mask = visible if mask is None else ops.logical_and(visible, mask)
        if mask is not None and self.num_heads > 1:
            mask = ops.expand_dims(mask, 1)  # (B | 1, 1, n | 1, Tv | 1)
        scores = self.compute_scores(query, memory.key)  # (B, [heads,] n, Tv)
        weights, state = self.weigh(scores, query, memory, state, mask, noise)
        weights = ops.cast(weights, self.compute_dtype)
        factors = weights * noise["dropout"] if noise and "dropout" in noise else weights
        return self.average(factors, memory.value), weights, state

    def linear_query(self) -> keras.Variable | None:
        """Return the kernel by which `step` multiplies the query before `attend`, or None.

        With a kernel, a fast loop multiplies the queries itself and calls `attend`. None means that
        `step` computes anything else.
        """
        return None

    def averages(self) -> bool:
        """Return whether a context is exactly the average of the memory's values by the weights."""
        return keeps(self.attend, Attention.attend) and keeps(self.average, Attention.average)

    def weights_shape(self, memory: Memory, queries: Any) -> tuple[Any, ...]:
        """Return the shape of the weights of `queries` queries: `(B, [heads,] queries, Tv)`."""
        *lead, length, _ = ops.shape(memory.value)
        return (*lead, queries, length)

    # One query at a time.

    def expect_memory(self, memory: Any) -> None:
        """Raise a ValueError unless `memory` is a prepared `Memory`."""
        if not isinstance(memory, Memory):
            self._refuse("a memory from prepare(value)", f"a {type(memory).__name__}")

    def prepare(
        self, value: Tensor, key: Tensor | None = None, mask: Tensor | None = None
    ) -> Memory:
        """Return the prepared memory, whose keys are projected once for all queries.

        Args:
            value: `(B, Tv, dv)`, or a grid `(B, H, W, dv)`.
            key: `(B, Tv, dk)`, or a grid; the value if not given.
            mask: boolean `(B, Tv)`, or `(B, H, W)` for a grid; by default the mask that a Keras
                layer has attached to the value. Value and key are replaced by 0 where it is False.

        Raises:
            ValueError: if the value has another rank, if the key or the mask does not fit the
                value, or if the layer is not built.
        """
        if not self.built:
            self._refuse_unbuilt()
        self._expect_dense(value, key, mask)
        if not hasattr(value, "shape") or isinstance(value, Memory):
            self._refuse("a tensor to prepare", f"a {type(value).__name__}")
        self._check_shapes(None, value.shape, None if key is None else key.shape)
        mask = getattr(value, "_keras_mask", None) if mask is None else mask
        mask = self._checked_mask("mask", mask, value.shape[:-1])
        value = ops.cast(value, self.compute_dtype)
        value = flat_memory(value) if len(value.shape) == 4 else value  # (B, Tv, dv)
        key = key if key is None else flat_memory(ops.cast(key, self.compute_dtype))  # (B, Tv, dk)
        if mask is not None:  # a NaN would make contexts or gradients NaN: 0 times NaN is NaN
            seen, zero = ops.expand_dims(mask, -1), ops.zeros((), self.compute_dtype)
            value = ops.where(seen, value, zero)
            key = key if key is None else ops.where(seen, key, zero)
        key = value if key is None else key
        value = self.split_heads(value) if self.num_heads > 1 else value
        return Memory(value, self.keys(key, mask), mask)

    def step(
        self,
        query: Tensor,
        memory: Memory,
        state: Any,
        training: bool | None = None,
        noise: Noise = None,
    ) -> tuple[Tensor, Tensor, Any]:
        """Return context, weights and next state of one query for each row.

        Several queries may read one memory row, as the beams of a search do. `query` then has `n`
        adjacent rows for each row of the memory.

        Args:
            query: `(B·n, dq)`.
            memory: from `prepare`, with batch size B.
            state: from `initial_state` or the last step, with `B·n` rows.
            training: whether dropout is applied.
            noise: the result of `draw_noise`, called before a loop; if None, `step` calls
                `draw_noise` in training.

        Returns:
            The context `(B·n, dv)`, the attention weights `(B·n, Tv)`, with several heads
            `(B·n, heads, Tv)`, and the next state.
        """
        self.expect_memory(memory)
        self._expect_dense(query)
        rows, batch, expected = query.shape[0], memory.value.shape[0], ""
        if tuple(query.shape[1:]) != (self.query_width,):
            expected = f"a query (rows, {self.query_width}) of one step"
        elif rows and batch and rows % batch:
            expected = f"a multiple of {batch} queries, those of one memory row next to one "
            expected += "another: a memory is shared by the beams of a search, and never tiled"
        if expected:
            self._refuse(expected, f"query {tuple(query.shape)}")
        spec = self.state_spec(rows, memory.value.shape[-2])
        shapes = [tuple(x.shape) for x in tree.flatten(spec)]
        self._expect_states(state, shapes, "a state", "from initial_state(memory) or the last step")
        total, batch = ops.shape(query)[0], ops.shape(memory.value)[0]
        count = backend.group_size(total, batch)
        # (B·n, dq) to (B, n, dq)
        query = ops.reshape(ops.cast(query, self.compute_dtype), (batch, count, self.query_width))
        if training and noise is None:
            noise = self.draw_noise(self.weights_shape(memory, count))
        context, weights, state = self.attend(self.queries(query), memory, state, None, noise)
        # Contexts (B, n, dv) to (B·n, dv); weights (B, [heads,] n, Tv) to (B·n, [heads,] Tv).
        context = ops.reshape(context, (-1, context.shape[-1]))
        heads = [self.num_heads] if self.num_heads > 1 else []
        weights = ops.moveaxis(weights, 1, 2) if heads else weights
        return context, ops.reshape(weights, (total, *heads, ops.shape(weights)[-1])), state

    # Keras.

    def output_spec(self, query: Any, value: Any, key: Any = None, **kwargs: Any) -> Any:
        """Return the symbolic contexts, and the weights if `return_attention_scores`."""
        self._check_shapes(query.shape, value.shape, None if key is None else key.shape)
        context = keras.KerasTensor((*query.shape[:-1], value.shape[-1]), self.compute_dtype)
        if not kwargs.get("return_attention_scores"):
            return context
        batch, *steps = query.shape[:-1]
        return context, self.weights_spec(batch, steps, value.shape)
