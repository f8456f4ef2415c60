"""A recurrent cell that attends to a memory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import keras
from keras import ops, tree

from keras_attention import backend
from keras_attention.attention import Attention, Memory, Noise, Tensor
from keras_attention.recurrent import keras_cells
from keras_attention.recurrent.memories import MemoriesLayer
from keras_attention.shapes import is_empty
from keras_attention.step import State, Taken, take_step

ORDERS = ("bahdanau", "luong")
READOUTS = ("vector", "deep")


@keras.saving.register_keras_serializable("keras_attention")
class AttentionCell(MemoriesLayer):
    """One step of a recurrent cell that attends to a memory.

    Two orders of computation, for input `y_t`, memory `h` and cell `f`:

    - `"bahdanau"` (Bahdanau et al. 2014, arXiv 1409.0473, section 3.1): the context comes from the
      state before, `c_t = attend(s_{t-1}, h)`, then `s_t = f(s_{t-1}, [y_t; c_t])`.
    - `"luong"` (Luong et al. 2015, arXiv 1508.04025, section 3): `s_t = f(s_{t-1}, y_t)`, then the
      context comes from the new state, `c_t = attend(s_t, h)`.

    The output of a step is the attentional vector `tanh(W_c [c_t; s_t])` (Luong et al. 2015,
    eq. 5), with any `activation` in place of `tanh`. Where `units` is None it is `[c_t; s_t]`
    itself. With `readout="deep"` it is Bahdanau's maxout layer (Goodfellow et al. 2013, arXiv
    1302.4389), which sees the input as well: the greater of each pair of
    `t̃ = C_o c_t + U_o s_t + V_o y_t` (appendix A.2.2, there with `s_{t-1}` for `s_t`).

    With `input_feeding` (Luong et al. 2015, section 3.3) the last output joins the cell's input.
    With `gate` the context is multiplied by `sigmoid(W_b s + b)`, where `s` is the state that made
    the query (Xu et al. 2015, arXiv 1502.03044, section 4.2.1).

    Several memories, for example a text and an image, have an attention layer each. Then `c_t` is
    their contexts, joined.

    Args:
        cell: a Keras recurrent cell (`SimpleRNNCell`, `GRUCell`, `LSTMCell`, `StackedRNNCells`).
        attention: an attention layer of this library; for several memories a list of them.
        order: `"bahdanau"` or `"luong"`.
        units: width of the attentional vector, or None to return `[c_t; s_t]`.
        input_feeding: whether the last output is fed to the cell.
        gate: whether the contexts are gated.
        activation: of the attentional vector; None for none, as in TensorFlow Addons.
        readout: `"vector"`, the attentional vector, or `"deep"`, the maxout layer of `units`.
        **kwargs: `kernel_initializer`, `kernel_regularizer`, `kernel_constraint` of `W_c` and the
            gate's kernel; `name`, `dtype`.

    Call arguments:
        inputs: `(B, dim)`.
        memory: `(B, S, dim)` or a grid `(B, H, W, dim)`; for several memories a list of them.
        state: a `State`; that of `initial_state` if not given.
        memory_mask: boolean `(B, S)`; False positions get weight 0. For several memories a list.
        memory_key: `(B, S, dk)`, the keys, such as the memory with its positions; the memory itself
            if not given. For several memories a list.
        training: whether dropout is applied.

    Output:
        The result of `step`: the output `(B, output_size)`, the attention weights `(B, S)` (for
        several memories a tuple of them) and the next `State`. Each call prepares the memory: to
        take many steps, call `prepare` once and `step` often.

    Weights: those of the cell and of the attention layers. With `units` `output_kernel`
    `(dim of c + dim of s, units)`, for a deep readout `(dim of c + dim of s + dim of y, 2 units)`:
    the rows of `C_o`, `U_o` and `V_o`. With `gate` `gate_kernel` `(dim of s, number of memories)`
    and `gate_bias` `(number of memories,)`.

    Example:
        ```python
        memory = keras.random.normal((2, 7, 6))
        cell = AttentionCell(keras.layers.GRUCell(8), AdditiveAttention(8), units=4)
        cell.build((2, 5), memory.shape)
        prepared = cell.prepare(memory)
        state = cell.initial_state(prepared)
        inputs = keras.random.normal((2, 5))
        output, weights, state = cell.step(inputs, prepared, state)  # (2, 4), (2, 7)
        ```
    """

    def __init__(
        self,
        cell: keras.layers.Layer,
        attention: Attention | list[Attention],
        order: str = "bahdanau",
        units: int | None = None,
        input_feeding: bool = False,
        gate: bool = False,
        activation: Any = "tanh",
        readout: str = "vector",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._expect(order in ORDERS, f"order to be one of {', '.join(ORDERS)}", f"order={order!r}")
        self._expect(
            not isinstance(cell, (keras.layers.RNN, AttentionCell)),
            "a recurrent cell, such as keras.layers.GRUCell, not a layer that runs one",
            repr(cell),
        )
        self._expect(hasattr(cell, "state_size"), "a recurrent cell with a state_size", repr(cell))
        self._expect_count("units", units, or_none=True)
        self._expect(
            readout == "vector" or (readout == "deep" and units is not None),
            f"readout to be one of {', '.join(READOUTS)}, deep with units",
            f"readout={readout!r}, units={units}",
        )
        self.several = isinstance(attention, (list, tuple))
        self.cell = cell  # first: the order of weights is that of layers
        self.attention: Any = list(attention) if self.several else attention
        for layer in self.attentions:
            self._expect(
                isinstance(layer, Attention), "an attention layer of keras_attention", repr(layer)
            )
        self.order = order
        self.units = units
        self.input_feeding = input_feeding
        self.gate = gate
        self.activation = keras.activations.get(activation)
        self.readout = readout

    def build(
        self, inputs_shape: tuple[Any, ...], memory_shape: Any, memory_key_shape: Any = None
    ) -> None:
        """Make the weights for one step's inputs, a memory and its keys of these shapes."""
        memories, keys = self._each(memory_shape), self._each(memory_key_shape)
        self._check_shapes(inputs_shape, memories)
        batch, size = inputs_shape[0], self.cell_output_size
        query_size = keras_cells.state_size(self.cell) if self.order == "bahdanau" else size
        self.context_size = sum(shape[-1] for shape in memories)
        self.output_size = self.units or self.context_size + size
        width = inputs_shape[-1]
        width += self.context_size if self.order == "bahdanau" else 0
        width += self.output_size if self.input_feeding else 0
        self.cell_input_size = width
        if not self.cell.built:
            self.cell.build((batch, width))
            self.cell.built = True
        for attention, *shapes in zip(self.attentions, memories, keys, strict=True):
            if not attention.built:
                shapes = [None if shape is None else tuple(shape) for shape in shapes]
                attention.build((batch, None, query_size), *shapes)
                attention.built = True
        self.output_kernel = None
        if self.units:
            shape = (self.context_size + size, self.units)
            if self.readout == "deep":
                shape = (shape[0] + inputs_shape[-1], 2 * self.units)
            self.output_kernel = self.add_kernel(shape, "output_kernel")
        if self.gate:
            count = len(memories)
            self.gate_kernel = self.add_kernel((query_size, count), "gate_kernel")
            self.gate_bias = self.add_weight((count,), "zeros", name="gate_bias")

    def call(
        self,
        inputs: Tensor,
        memory: Any,
        state: State | None = None,
        memory_mask: Any = None,
        memory_key: Any = None,
        training: bool | None = None,
    ) -> tuple[Tensor, Any, State]:
        """Take one step; arguments and result as the class says."""
        memories = self._checked_memories(inputs.shape, memory, memory_mask, memory_key)
        state = self.initial_state(memories) if state is None else State(*state)
        return self.step(inputs, memories, state, training)

    # One step at a time.

    def prepare(self, value: Any, key: Any = None, mask: Any = None) -> Any:
        """Prepare a memory for `step`: see `Attention.prepare`; for several, lists all through."""
        self._expect_built()
        given = [self._each(x) for x in (value, key, mask)]
        self._expect(
            all(len(x) == len(self.attentions) for x in given),
            f"{len(self.attentions)} value(s), keys and masks, one for each memory",
            ", ".join(str(len(x)) for x in given),
        )
        pairs = zip(self.attentions, *given, strict=True)
        return self._one([attention.prepare(*one) for attention, *one in pairs])

    def initial_state(self, memory: Any, cell_state: Any = None) -> State:
        """Return the state before the first step.

        Args:
            memory: from `prepare`.
            cell_state: list of the cell's states, each `(B, ·)`; zeros if not given.

        Returns:
            The state to pass to `step`.
        """
        memories = self._memories(memory)
        batch = ops.shape(memories[0].value)[0]
        if cell_state is None:
            cell_state = keras_cells.zero_state(self.cell, batch)
        like = keras_cells.zero_state(self.cell, 1)
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
        pairs = zip(self.attentions, memories, strict=True)
        remembered = tuple(attention.initial_state(m) for attention, m in pairs)
        return State(tree.pack_sequence_as(like, flat), remembered, output)

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
        self._expect_built()
        inputs, memories = ops.cast(inputs, self.compute_dtype), self._memories(memory)
        rows, noise = ops.shape(inputs)[0], None
        if training:
            batch = ops.shape(memories[0].value)[0]
            noise = self._noise(memories, (), backend.share(rows, batch))
        with self._dropout_masks(rows, training):
            taken = self._take_step(inputs, memories, state, noise, training, reads_out=True)
        return taken.output, self._one(tuple(taken.weights)), taken.state

    # The parts of a step.

    def _take_step(
        self,
        inputs: Tensor,
        memories: tuple[Memory, ...],
        state: State,
        noise: tuple[Noise, ...] | None,
        training: bool | None,
        reads_out: bool,
    ) -> Taken:
        """Take one step, with noise drawn before it; without `reads_out` up to `[c_t; s_t]`."""

        def advance(fed: list[Tensor], context: Any, cell_state: Any) -> tuple[Tensor, Any]:
            parts = [inputs, *fed, *([] if context is None else [context])]
            return self._call_cell(parts, cell_state, training)

        def read_out(context: Tensor, output: Tensor) -> Tensor:
            pair = ops.concatenate([context, output], axis=-1)
            return self._read_out(pair, inputs) if reads_out else pair

        return take_step(
            self.order,
            self.input_feeding,
            state,
            query=lambda cell_state: keras_cells.first_state(self.cell, cell_state),
            attend=lambda query, states: self._attend(query, memories, states, noise),
            advance=advance,
            read_out=read_out,
        )

    def _attend(
        self,
        query: Tensor,
        memories: tuple[Memory, ...],
        states: tuple[Any, ...],
        noise: tuple[Noise, ...] | None,
    ) -> tuple[Tensor, list[Tensor], tuple[Any, ...]]:
        """Attend to each memory; return the joined contexts, all weights and all states."""
        noise = noise or (None,) * len(memories)
        found = [
            attention.step(query, memory, state, noise=drawn)
            for attention, memory, state, drawn in zip(
                self.attentions, memories, states, noise, strict=True
            )
        ]
        contexts, weights, new = zip(*found, strict=True)
        cast = [ops.cast(w, self.compute_dtype) for w in weights]
        return self._join(query, contexts), cast, new

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

    def _call_cell(
        self, inputs: list[Any], state: Any, training: bool | None
    ) -> tuple[Tensor, Any]:
        inputs = inputs[0] if len(inputs) == 1 else ops.concatenate(inputs, axis=-1)
        output, new = keras_cells.advance(self.cell, inputs, state, training)
        return ops.cast(output, self.compute_dtype), new

    def _read_out(self, pair: Tensor, inputs: Tensor) -> Tensor:
        """Return the output of `[c_t; s_t]`, `(..., ·)`, and the inputs that led to them."""
        if self.output_kernel is None:
            return pair
        if self.readout == "deep":
            pair = ops.concatenate([pair, inputs], axis=-1)
        return self.activate(ops.matmul(pair, ops.cast(self.output_kernel, self.compute_dtype)))

    def activate(self, hidden: Tensor) -> Tensor:
        """Return the output of its linear part: the activation, or the greater of each pair."""
        if self.readout == "vector":
            return self.activation(hidden)
        pairs = ops.reshape(hidden, (*ops.shape(hidden)[:-1], self.units, 2))
        return pairs[..., 0] if is_empty(pairs) else ops.max(pairs, axis=-1)

    @property
    def cell_output_size(self) -> int:
        """Width of the (top) cell's output."""
        return keras_cells.output_size(self.cell)

    @property
    def state_size(self) -> None:
        """Refused: `keras.layers.RNN` has no way to pass a memory to its cell."""
        raise TypeError(
            "AttentionCell expected to be run by keras_attention.AttentionRNN(cell, attention), or "
            "step by step: its state is of a memory. Received: keras.layers.RNN or a stack, which "
            "ask for a state_size"
        )

    # Random numbers are drawn outside the loop: their seed's state would leak out of it.

    def _noise(
        self, memories: tuple[Memory, ...], lead: tuple[Any, ...], queries: Any
    ) -> tuple[dict[str, Tensor], ...]:
        """Draw the noise of the attention layers, with `lead` before its shape."""
        pairs = zip(self.attentions, memories, strict=True)
        return tuple(a.noise((*lead, *a.weights_shape(m, queries))) for a, m in pairs)

    def _dropout_masks(self, rows: Any, training: bool | None) -> AbstractContextManager[None]:
        """Within this, the cell holds dropout masks for so many rows, in training."""
        width, dtype = self.cell_input_size, self.compute_dtype
        return keras_cells.dropout_masks(self.cell, width, rows, dtype, training)

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
            "activation": keras.activations.serialize(self.activation),
            "readout": self.readout,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> AttentionCell:
        """Rebuild the layer."""
        config = dict(config)
        for name in ("cell", "attention"):
            config[name] = keras.saving.deserialize_keras_object(config[name])
        return cls(**config)
