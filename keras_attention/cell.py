"""A recurrent cell that attends to a memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops, tree

from keras_attention.attention import Attention, Memory, Tensor
from keras_attention.shapes import alike

ORDERS = ("bahdanau", "luong")


class State(NamedTuple):
    """What an `AttentionCell` carries from step to step.

    Attributes:
        cell: list of the cell's states, each `(B, ·)`.
        attention: what the attention mechanism remembers, `()` for most; with several memories a
            list of it.
        output: the last output `(B, output_size)` with input feeding, otherwise `()`.
    """

    cell: Any
    attention: Any
    output: Any


@keras.saving.register_keras_serializable("keras_attention")
class AttentionCell(keras.layers.Layer):
    """One step of a recurrent cell that attends to a memory.

    Two orders of computation, for input `y_t`, memory `h` and cell `f`:

    - `"bahdanau"` (Bahdanau et al. 2014, arXiv 1409.0473, section 3.1): the context comes from the
      state before, `c_t = attend(s_{t-1}, h)`, then `s_t = f(s_{t-1}, [y_t; c_t])`.
    - `"luong"` (Luong et al. 2015, arXiv 1508.04025, section 3): `s_t = f(s_{t-1}, y_t)`, then the
      context comes from the new state, `c_t = attend(s_t, h)`.

    The output of a step is the attentional vector `tanh(W_c [c_t; s_t])` (Luong et al. 2015,
    eq. 5), or `[c_t; s_t]` itself where `units` is None. With `input_feeding` (section 3.3) the
    output of the step before joins the cell's input. With `gate` the context is multiplied by
    `sigmoid(W_b s + b)`, where `s` is the state that asked for it (Xu et al. 2015, arXiv
    1502.03044, section 4.2.1).

    With several memories, for example a text and an image, each has an attention layer of its own,
    and `c_t` is their contexts one after the other.

    Args:
        cell: a Keras recurrent cell (`SimpleRNNCell`, `GRUCell`, `LSTMCell`, `StackedRNNCells`).
        attention: an attention layer of this library; for several memories a list of them.
        order: `"bahdanau"` or `"luong"`.
        units: width of the attentional vector, or None to return `[c_t; s_t]`.
        input_feeding: whether the last output is fed to the cell.
        gate: whether the contexts are gated.

    Call arguments:
        inputs: `(B, dim)`.
        memory: `(B, S, dim)` or a grid `(B, H, W, dim)`; for several memories a list of them.
        state: a `State`; that of `initial_state` if not given.
        memory_mask: boolean `(B, S)`; what is False gets weight 0. For several a list.
        training: whether dropout is applied.

    Output:
        What `step` returns: the output `(B, output_size)`, the attention weights `(B, S)` (for
        several memories a tuple of them) and the next `State`. To take many steps, call `prepare`
        once and `step` often: a call prepares the memory each time.

    Weights: those of the cell and of the attention layers; `output_kernel`
    `(dim of c + dim of s, units)` where `units` is given; with `gate` `gate_kernel`
    `(dim of s, number of memories)` and `gate_bias` `(number of memories,)`.
    """

    def __init__(
        self,
        cell: keras.layers.Layer,
        attention: Attention | list[Attention],
        order: str = "bahdanau",
        units: int | None = None,
        input_feeding: bool = False,
        gate: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._expect(order in ORDERS, f"order to be one of {', '.join(ORDERS)}", f"order={order!r}")
        self._expect(hasattr(cell, "state_size"), "a recurrent cell with a state_size", repr(cell))
        self._expect(units is None or units >= 1, "units >= 1 or None", f"units={units}")
        self.several = isinstance(attention, (list, tuple))
        for layer in attention if self.several else [attention]:
            self._expect(
                isinstance(layer, Attention), "an attention layer of keras_attention", repr(layer)
            )
        self.cell = cell
        self.attention = list(attention) if self.several else attention
        self.order = order
        self.units = units
        self.input_feeding = input_feeding
        self.gate = gate

    def build(self, inputs_shape: tuple, memory_shape: Any) -> None:
        """Make the weights for one step's inputs and a memory of these shapes."""
        memories = self._list(memory_shape)
        self._check_shapes(inputs_shape, memories)
        batch, size = inputs_shape[0], self.cell_output_size
        self.context_size = sum(shape[-1] for shape in memories)
        self.output_size = self.units or self.context_size + size
        width = inputs_shape[-1]
        width += self.context_size if self.order == "bahdanau" else 0
        width += self.output_size if self.input_feeding else 0
        self.cell_input_size = width
        if not self.cell.built:
            self.cell.build((batch, width))
            self.cell.built = True
        for attention, shape in zip(self._list(self.attention), memories, strict=True):
            if not attention.built:
                attention.build((batch, None, size), tuple(shape))
                attention.built = True
        self.output_kernel = None
        if self.units:
            shape = (self.context_size + size, self.units)
            self.output_kernel = self.add_weight(shape, name="output_kernel")
        if self.gate:
            count = len(memories)
            self.gate_kernel = self.add_weight((size, count), name="gate_kernel")
            self.gate_bias = self.add_weight((count,), "zeros", name="gate_bias")

    def call(
        self,
        inputs: Tensor,
        memory: Any,
        state: State | None = None,
        memory_mask: Any = None,
        training: bool | None = None,
    ) -> tuple[Tensor, Any, State]:
        """Take one step; arguments and result as the class says."""
        self._check_shapes(inputs.shape, [m.shape for m in self._list(memory)])
        prepared = self.prepare(memory, mask=memory_mask)
        state = self.initial_state(prepared) if state is None else State(*state)
        return self.step(inputs, prepared, state, training)

    # One step at a time.

    def prepare(self, value: Any, key: Any = None, mask: Any = None) -> Any:
        """Prepare a memory for `step`: see `Attention.prepare`; for several, lists all through."""
        if not self.several:
            return self.attention.prepare(value, key, mask)
        count = len(self.attention)
        keys, masks = key or [None] * count, mask or [None] * count
        return [
            attention.prepare(*rest)
            for attention, *rest in zip(self.attention, value, keys, masks, strict=True)
        ]

    def initial_state(self, memory: Any, cell_state: Any = None) -> State:
        """Return the state before the first step.

        Args:
            memory: from `prepare`.
            cell_state: list of the cell's states, each `(B, ·)`; zeros if not given.

        Returns:
            The state to pass to `step`.
        """
        memories = [memory] if isinstance(memory, Memory) else memory
        batch = ops.shape(memories[0].value)[0]
        if cell_state is None:
            cell_state = self.cell.get_initial_state(batch_size=batch)
        like = self.cell.get_initial_state(batch_size=1)
        flat = [ops.cast(x, self.cell.compute_dtype) for x in tree.flatten(cell_state)]
        shapes = [tuple(x.shape) for x in flat]
        sizes = tree.flatten(self.cell.state_size)
        first = memories[0].value.shape[0]
        self._expect(
            [shape[1:] for shape in shapes] == [(size,) for size in sizes],
            f"{len(sizes)} initial state(s) {', '.join(str((first, size)) for size in sizes)}",
            ", ".join(map(str, shapes)),
        )
        output = ()
        if self.input_feeding:
            output = ops.zeros((batch, self.output_size), self.compute_dtype)
        remembered = [
            attention.initial_state(m)
            for attention, m in zip(self._list(self.attention), memories, strict=True)
        ]
        return State(tree.pack_sequence_as(like, flat), self._one(remembered), output)

    def step(
        self, inputs: Tensor, memory: Any, state: State, training: bool | None = None
    ) -> tuple[Tensor, Any, State]:
        """Take one step.

        Args:
            inputs: `(B·n, dim)`; `n` rows may share a memory row, as the beams of a search do.
            memory: from `prepare`, with batch size B.
            state: from `initial_state` or the last step.
            training: whether dropout is applied; each step then draws masks of its own.

        Returns:
            The output `(B·n, output_size)`, the attention weights `(B·n, S)` (with several heads
            `(B·n, heads, S)`, for several memories a tuple of them) and the next state.
        """
        inputs = ops.cast(inputs, self.compute_dtype)
        noise = None
        if training:
            rows = ops.shape(inputs)[0]
            self._draw_dropout_masks(rows)
            noise = self._noise(memory, (), rows // ops.shape(self._list(memory)[0].value)[0])
        pair, weights, state = self._advance(inputs, memory, state, noise, training)
        if training:
            self._forget_dropout_masks()
        output = self._attentional_vector(pair)
        if self.input_feeding:
            state = state._replace(output=output)
        return output, weights, state

    # The parts of a step.

    def _advance(
        self, inputs: Tensor, memory: Any, state: State, noise: Any, training: bool | None
    ) -> tuple[Tensor, Any, State]:
        """Take one step up to `[c_t; s_t]`, with given noise or None."""
        fed = [inputs, state.output] if self.input_feeding else [inputs]
        if self.order == "bahdanau":
            query = self._query(state.cell)
            context, weights, attention = self._look(query, memory, state.attention, noise)
            output, cell = self._call_cell([*fed, context], state.cell, training)
        else:
            output, cell = self._call_cell(fed, state.cell, training)
            context, weights, attention = self._look(output, memory, state.attention, noise)
        pair = ops.concatenate([context, output], axis=-1)
        return pair, weights, State(cell, attention, state.output)

    def _look(self, query: Tensor, memory: Any, state: Any, noise: Any) -> tuple[Tensor, Any, Any]:
        """Attend to the memory, or to each of the memories."""
        layers, memories = self._list(self.attention), self._list(memory)
        noises = [{}] * len(layers) if noise is None else self._list(noise)
        looks = [
            attention.look(query, *rest)
            for attention, *rest in zip(layers, memories, self._list(state), noises, strict=True)
        ]
        contexts, weights, states = zip(*looks, strict=True)
        weights = tuple(ops.cast(w, self.compute_dtype) for w in weights)
        return self._join(query, contexts), self._one(weights), self._one(list(states))

    def _join(self, query: Tensor, contexts: Any) -> Tensor:
        """Gate the contexts `(..., ·)` of queries `(..., ·)`, and join them."""
        contexts = [ops.cast(c, self.compute_dtype) for c in contexts]
        if self.gate:
            query = ops.cast(query, self.compute_dtype)
            kernel = ops.cast(self.gate_kernel, self.compute_dtype)
            bias = ops.cast(self.gate_bias, self.compute_dtype)
            gates = ops.sigmoid(ops.matmul(query, kernel) + bias)
            contexts = [gates[..., i : i + 1] * c for i, c in enumerate(contexts)]
        return contexts[0] if len(contexts) == 1 else ops.concatenate(contexts, axis=-1)

    def _call_cell(self, inputs: list, state: Any, training: bool | None) -> tuple[Tensor, Any]:
        inputs = inputs[0] if len(inputs) == 1 else ops.concatenate(inputs, axis=-1)
        output, new = self.cell(inputs, state, training=training)
        # A stack of one cell does not give its states back in the structure it took them in.
        new = tree.pack_sequence_as(state, tree.flatten(new))
        return ops.cast(output, self.compute_dtype), new

    def _query(self, cell_state: Any) -> Tensor:
        """Return `s_{t-1}`: what the (top) cell put out last, its first state."""
        top = cell_state
        if isinstance(self.cell, keras.layers.StackedRNNCells):
            top = cell_state[-1]
        return tree.flatten(top)[0]

    def _attentional_vector(self, pair: Tensor) -> Tensor:
        if self.output_kernel is None:
            return pair
        return ops.tanh(ops.matmul(pair, ops.cast(self.output_kernel, self.compute_dtype)))

    @property
    def cell_output_size(self) -> int:
        """Width of the (top) cell's output."""
        size = getattr(self.cell, "output_size", None) or self.cell.state_size
        return tree.flatten(size)[0]

    # What is random is drawn outside the loop, or it would leak out of it.

    def _noise(self, memory: Any, lead: tuple, queries: Any) -> Any:
        """Draw the noise of the attention layers, with `lead` before its shape."""
        drawn = []
        for attention, m in zip(self._list(self.attention), self._list(memory), strict=True):
            shape = attention.weights_shape(m, queries)
            drawn.append(attention.noise((*lead, *shape), True))
        return self._one(drawn)

    def _draw_dropout_masks(self, rows: Any) -> None:
        """Let the cells draw the masks that they keep for a sequence."""
        width = self.cell_input_size
        for cell in getattr(self.cell, "cells", [self.cell]):
            size = tree.flatten(cell.state_size)[0]
            if hasattr(cell, "get_dropout_mask"):
                cell.get_dropout_mask(ops.zeros((rows, width), self.compute_dtype))
                cell.get_recurrent_dropout_mask(ops.zeros((rows, size), self.compute_dtype))
            width = size

    def _forget_dropout_masks(self) -> None:
        for cell in getattr(self.cell, "cells", [self.cell]):
            if hasattr(cell, "get_dropout_mask"):
                cell.reset_dropout_mask()
                cell.reset_recurrent_dropout_mask()

    # One or several memories.

    def _list(self, x: Any) -> list:
        return list(x) if self.several else [x]

    def _one(self, xs: Any) -> Any:
        return xs if self.several else xs[0]

    def _check_shapes(self, inputs: tuple, memories: list[tuple]) -> None:
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

    _inputs_rank, _inputs_form = 2, "inputs (B, dim)"

    def _expect(self, holds: bool, expected: str, received: str) -> None:
        if not holds:
            raise ValueError(f"{type(self).__name__} expected {expected}. Received: {received}")

    # Keras.

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "cell": keras.saving.serialize_keras_object(self.cell),
            "attention": keras.saving.serialize_keras_object(self.attention),
            "order": self.order,
            "units": self.units,
            "input_feeding": self.input_feeding,
            "gate": self.gate,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> AttentionCell:
        """Rebuild the layer."""
        config = dict(config)
        for name in ("cell", "attention"):
            config[name] = keras.saving.deserialize_keras_object(config[name])
        return cls(**config)
