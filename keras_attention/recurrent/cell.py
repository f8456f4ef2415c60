"""A recurrent cell that attends to a memory."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import keras
from keras import ops, tree

from keras_attention import backend
from keras_attention._attention import Attention, Memory, Noise
from keras_attention.fast.gates import join
from keras_attention.layer import BaseLayer
from keras_attention.recurrent import keras_cells
from keras_attention.shapes import Tensor, fits

ORDERS = ("bahdanau", "luong")
READOUTS = ("attentional", "maxout")
_OLD_READOUTS = {"vector": "attentional", "deep": "maxout"}  # names of an earlier clone


class State(NamedTuple):
    """The state of an `AttentionCell` between two steps.

    Attributes:
        cell: list of the recurrent cell's states, each `(B, ·)`.
        attention: the attention layer's state; `()` for most mechanisms.
        output: the last output `(B, output_size)` with input feeding, otherwise `()`.
    """

    cell: Any
    attention: Any
    output: Any


@keras.saving.register_keras_serializable("keras_attention")
class AttentionCell(BaseLayer):
    """One step of a recurrent cell that attends to a memory.

    Two orders of computation, for input `y_t`, memory `h` and cell `f`:

    - `"bahdanau"` (Bahdanau et al. 2014, arXiv 1409.0473, section 3.1): the query is the previous
      state, `c_t = attend(s_{t-1}, h)`, then `s_t = f(s_{t-1}, [y_t; c_t])`.
    - `"luong"` (Luong et al. 2015, arXiv 1508.04025, section 3): `s_t = f(s_{t-1}, y_t)`, then the
      query is the new state, `c_t = attend(s_t, h)`.

    The output of a step depends on `units` and `readout`:

    - with `units`, the attentional vector `tanh(W_c [c_t; s_t])` (Luong et al. 2015, eq. 5), with
      `activation` instead of `tanh` if given;
    - with `units=None`, `[c_t; s_t]`;
    - with `readout="maxout"`, Bahdanau's maxout layer (Goodfellow et al. 2013, arXiv 1302.4389). It
      also reads the input, and returns the maximum of each pair of elements of
      `t̃ = C_o c_t + U_o s_t + V_o y_t` (appendix A.2.2; the paper has `s_{t-1}` instead of `s_t`).

    With `input_feeding` (Luong et al. 2015, section 3.3) the last output is concatenated to the
    cell's input. With `gate` the context is multiplied by `sigmoid(W_b s + b)`, where `s` is the
    query (Xu et al. 2015, arXiv 1502.03044, section 4.2.1).

    Args:
        cell: a Keras recurrent cell (`SimpleRNNCell`, `GRUCell`, `LSTMCell`, `StackedRNNCells`). In
            a stack, the state of the top cell is the query.
        attention: an attention layer of this library.
        order: `"bahdanau"` or `"luong"`.
        units: width of the attentional vector, or None to return `[c_t; s_t]`.
        input_feeding: whether the last output is fed to the cell.
        gate: whether the context is gated.
        activation: activation of the attentional vector; None for no activation, as in TensorFlow
            Addons.
        readout: `"attentional"`, the attentional vector, or `"maxout"`, the maxout layer of width
            `units`.
        **kwargs: `kernel_initializer`, `kernel_regularizer`, `kernel_constraint` of `W_c` and the
            gate's kernel; `name`; `dtype`, which cell and attention must share.

    Call arguments:
        inputs: `(B, dim)`.
        memory: `(B, S, dim)` or a grid `(B, H, W, dim)`.
        state: a `State`; by default, the result of `initial_state`.
        memory_mask: boolean `(B, S)`, or `(B, H, W)` for a grid; False positions get weight 0.
        training: whether dropout is applied.

    Output:
        The output `(B, output_size)`, the attention weights `(B, S)`, with several heads
        `(B, heads, S)`, and the next `State`. Each call prepares the memory again: for many steps,
        call `prepare` once, then `step` for each step.

    Weights: the weights of the cell and of the attention layer. With `units` also `output_kernel`
    `(dim of c + dim of s, units)`; with `readout="maxout"` it is
    `(dim of c + dim of s + dim of y, 2 units)`, the rows of `C_o`, `U_o` and `V_o`. With `gate`
    also `gate_kernel` `(dim of s, 1)` and `gate_bias` `(1,)`.

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

    _inputs_form = "(B, dim)"

    def __init__(
        self,
        cell: keras.layers.Layer,
        attention: Attention,
        order: str = "bahdanau",
        units: int | None = None,
        input_feeding: bool = False,
        gate: bool = False,
        activation: Any = "tanh",
        readout: str = "attentional",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._expect_one_of("order", order, ORDERS)
        runs = isinstance(cell, (keras.layers.RNN, AttentionCell))
        expected = "a recurrent cell, such as keras.layers.GRUCell, not a layer that runs one"
        self._expect(not runs and hasattr(cell, "state_size"), expected, repr(cell))
        self._expect_count("units", units, or_none=True)
        if readout in _OLD_READOUTS:
            new = _OLD_READOUTS[readout]
            message = f"readout={readout!r} is now called readout={new!r}"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            readout = new
        valid = readout == "attentional" or (readout == "maxout" and units is not None)
        expected = f"readout to be one of {', '.join(READOUTS)}, maxout with units"
        self._expect(valid, expected, readout=readout, units=units)
        expected = "an attention layer of keras_attention"
        if isinstance(attention, (list, tuple)):
            expected += ", not several: join the memories, or take a second layer for the second"
        self._expect(isinstance(attention, Attention), expected, repr(attention))
        self.cell = cell  # before `attention`: the order of the layers is the order of the weights
        self.cell_output_size = keras_cells.output_size(cell)
        self.attention = attention
        self.order = order
        self.units = units
        self.input_feeding = input_feeding
        self.gate = gate
        self.activation = keras.activations.get(activation)
        self.readout = readout
        valid = self.activation in (keras.activations.tanh, keras.activations.linear)
        valid = valid or (units is not None and readout == "attentional")
        expected = "an activation only with units and the attentional readout"
        self._expect(valid, expected, activation=activation, units=units, readout=readout)
        self._expect_dtype(*keras_cells.parts(cell), attention)

    @property
    def state_size(self) -> None:
        """Raise a ValueError: `keras.layers.RNN` and `StackedRNNCells` ask for it."""
        expected = "to run in no keras.layers.RNN, which passes no memory: use AttentionRNN(cell, "
        self._refuse(f"{expected}attention)(inputs, memory)", "a layer around it")

    def build(self, inputs_shape: tuple[Any, ...], memory_shape: Any = None) -> None:
        """Make the weights for inputs and a memory of these shapes."""
        self._expect_inputs(memory_shape)
        self._check_shapes(inputs_shape, memory_shape)
        valid = None not in (inputs_shape[-1], memory_shape[-1])
        received = f"inputs {tuple(inputs_shape)}, memory {tuple(memory_shape)}"
        self._expect(valid, "a known last axis of inputs and memory", received)
        batch, size = inputs_shape[0], self.cell_output_size
        states = keras_cells.zero_state(self.cell, 1)
        self._state_shapes = tuple(tuple(x.shape[1:]) for x in tree.flatten(states))
        query_size = keras_cells.state_size(self.cell) if self.order == "bahdanau" else size
        self.input_width, self.context_size = inputs_shape[-1], memory_shape[-1]
        self.output_size = self.units or self.context_size + size
        self.cell_input_size = self.input_width
        self.cell_input_size += self.context_size if self.order == "bahdanau" else 0
        self.cell_input_size += self.output_size if self.input_feeding else 0
        if not self.cell.built:
            self.cell.build((batch, self.cell_input_size))
            self.cell.built = True
        if not self.attention.built:
            self.attention.build((batch, None, query_size), tuple(memory_shape))
            self.attention.built = True
        self.output_kernel = None
        if self.units:
            shape = (self.context_size + size, self.units)
            if self.readout == "maxout":
                shape = (shape[0] + self.input_width, 2 * self.units)
            self.output_kernel = self.add_kernel(shape, "output_kernel")
        if self.gate:
            self.gate_kernel = self.add_kernel((query_size, 1), "gate_kernel")
            self.gate_bias = self.add_weight((1,), "zeros", name="gate_bias")

    def call(
        self,
        inputs: Tensor,
        memory: Tensor,
        state: State | None = None,
        memory_mask: Tensor | None = None,
        training: bool | None = None,
    ) -> tuple[Tensor, Tensor, State]:
        """Take one step; the class documents the arguments and the output."""
        prepared = self._prepared(inputs.shape, memory, memory_mask)
        state = self.initial_state(prepared) if state is None else state
        return self.step(inputs, prepared, state, training)

    def _check_shapes(self, inputs: tuple[Any, ...], memory: tuple[Any, ...]) -> None:
        """Raise a ValueError if the shapes do not fit one another or the layer's weights."""
        expected = ""
        if len(inputs) != self._inputs_form.count(",") + 1 or len(memory) not in (3, 4):
            expected = f"inputs {self._inputs_form} and a memory (B, S, dim) or (B, H, W, dim)"
        elif inputs[0] != memory[0] and not fits(inputs[:1], memory[:1]):
            expected = "one batch size"
        elif 0 in (*inputs[1:], *memory[1:]):
            expected = "a step and a position at least"
        elif self.built and (inputs[-1], memory[-1]) != (self.input_width, self.context_size):
            expected = f"inputs of width {self.input_width} and a memory of width "
            expected += f"{self.context_size}, as it was built"
        if expected:
            self._refuse(expected, f"inputs {tuple(inputs)}, memory {tuple(memory)}")

    def _prepared(self, inputs: tuple[Any, ...], memory: Any, mask: Any) -> Memory:
        """Return the prepared memory of a call, after checks of shapes and mask."""
        self._check_shapes(inputs, memory.shape)
        mask = self._checked_mask("memory_mask", mask, memory.shape[:-1])
        return self.attention.prepare(memory, mask=mask)

    # One step at a time.

    def prepare(self, value: Tensor, key: Tensor | None = None, mask: Any = None) -> Memory:
        """Return the prepared memory for `step`: see `Attention.prepare`."""
        if not self.built:
            self._refuse_unbuilt()
        memory = self.attention.prepare(value, key, mask)
        width = value.shape[-1]
        if width != self.context_size:
            self._refuse(f"a memory of width {self.context_size}, as it was built", f"{width}")
        return memory

    def initial_state(self, memory: Memory, cell_state: Any = None) -> State:
        """Return the state before the first step.

        Args:
            memory: from `prepare`.
            cell_state: list of the cell's states, each `(B, ·)`; or a `State`, which is returned
                with the layer's dtypes. By default, the cell's own initial state, usually zeros.
        """
        attention = self.attention.initial_state(memory)
        batch = ops.shape(memory.value)[0]
        output = ()
        if self.input_feeding:
            output = ops.zeros((batch, self.output_size), self.compute_dtype)
        first = State(keras_cells.zero_state(self.cell, batch), attention, output)
        if cell_state is None:
            return first
        # Keras saves a State as a plain tuple. Only the number of tensors distinguishes it from a
        # list of the cell's states.
        states = tree.flatten(cell_state)
        is_state = len(states) == len(tree.flatten(first)) or isinstance(cell_state, State)
        like = first if is_state else first.cell
        rows, flat = memory.value.shape[0], tree.flatten(like)
        shapes = [(rows, *x.shape[1:]) for x in flat]
        form = f"{len(tree.flatten(first.cell))} initial state(s)"
        self._expect_states(states, shapes, form, "or a State of this layer")
        cast = [ops.cast(x, y.dtype) for x, y in zip(states, flat, strict=True)]
        state = tree.pack_sequence_as(like, cast)
        return state if is_state else first._replace(cell=state)

    def step(
        self, inputs: Tensor, memory: Memory, state: State, training: bool | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """Return the output, the attention weights and the next state of one step.

        Args:
            inputs: `(B·n, dim)`. `n` adjacent rows may read one memory row, as the beams of a
                search do.
            memory: from `prepare`, with batch size B.
            state: from `initial_state` or the last step.
            training: whether dropout is applied. Each step then draws new dropout masks.

        Returns:
            The output `(B·n, output_size)`, the weights `(B·n, S)`, with several heads
            `(B·n, heads, S)`, and the next `State`.

        Raises:
            ValueError: if the memory is not from `prepare`, or if inputs or state have another
                form.
        """
        if not self.built:
            self._refuse_unbuilt()
        self.attention.expect_memory(memory)
        if not fits(inputs.shape, (None, self.input_width)):
            expected = f"inputs (rows, {self.input_width}) of one step"
            self._refuse(expected, f"inputs {tuple(inputs.shape)}")
        source = "from initial_state(memory, cell_state) or the last step"
        if not isinstance(state, tuple) or len(state) != 3:
            self._refuse(f"a State, {source}", f"a {type(state).__name__}")
        state, rows = State(*state), inputs.shape[0]
        shapes = [(rows, *shape) for shape in self._state_shapes]
        shapes += [(rows, self.output_size)] if self.input_feeding else []
        self._expect_states([state.cell, state.output], shapes, "a State of", source)
        inputs = ops.cast(inputs, self.compute_dtype)
        rows, noise = ops.shape(inputs)[0], None
        if training:
            beams = backend.group_size(rows, ops.shape(memory.value)[0])
            noise = self.attention.draw_noise(self.attention.weights_shape(memory, beams))
        cell = self._cell_for_call(rows, training)
        return self._advance(cell, inputs, memory, state, noise, training, self._read_out)

    # The parts of a step.

    def _cell_for_call(self, rows: Any, training: bool | None) -> Any:
        """Return the cell for the steps of one call: see `keras_cells.for_call`."""
        width, dtype = self.cell_input_size, self.compute_dtype
        return keras_cells.for_call(self.cell, training, width, rows, dtype)

    def _advance(
        self,
        cell: Any,
        inputs: Tensor,
        memory: Memory,
        state: State,
        noise: Noise,
        training: bool | None,
        read_out: Any,
    ) -> tuple[Tensor, Tensor, State]:
        """Return the output, the weights and the next state of one step.

        `cell` is from `_cell_for_call`, `noise` is the noise of this step.
        `read_out([c_t; s_t], inputs)` returns the output.
        """
        parts = [inputs, state.output] if self.input_feeding else [inputs]
        if self.order == "bahdanau":
            query = keras_cells.first_state(self.cell, state.cell)
            context, weights, attention = self._attend(query, memory, state.attention, noise)
            parts.append(context)
        output, cell_state = keras_cells.advance(cell, join(parts), state.cell, training)
        output = ops.cast(output, self.compute_dtype)
        if self.order == "luong":
            context, weights, attention = self._attend(output, memory, state.attention, noise)
        output = read_out(ops.concatenate([context, output], axis=-1), inputs)
        return output, weights, State(cell_state, attention, output if self.input_feeding else ())

    def _attend(
        self, query: Tensor, memory: Memory, state: Any, noise: Noise
    ) -> tuple[Tensor, Tensor, Any]:
        """Return the gated context, the weights and the next attention state of one query a row."""
        context, weights, state = self.attention.step(query, memory, state, noise=noise)
        weights = ops.cast(weights, self.compute_dtype)
        return self._gated(query, context), weights, state

    def _gated(self, query: Tensor, context: Tensor) -> Tensor:
        """Return contexts `(..., dim of c)`, each times the gate of its query `(..., dim of s)`."""
        context = ops.cast(context, self.compute_dtype)
        if not self.gate:
            return context
        kernel = ops.cast(self.gate_kernel, self.compute_dtype)
        bias = ops.cast(self.gate_bias, self.compute_dtype)
        query = ops.cast(query, self.compute_dtype)
        return ops.sigmoid(ops.matmul(query, kernel) + bias) * context

    def _read_out(self, pair: Tensor, inputs: Tensor) -> Tensor:
        """Return the output `(..., output_size)` for `pair` `[c_t; s_t]` and the step's inputs."""
        if self.output_kernel is None:
            return pair
        if self.readout == "maxout":
            pair = ops.concatenate([pair, inputs], axis=-1)
        return self.activate(ops.matmul(pair, ops.cast(self.output_kernel, self.compute_dtype)))

    def activate(self, hidden: Tensor) -> Tensor:
        """Return the activation of `hidden`; with `readout="maxout"`, the maximum of each pair."""
        if self.readout == "attentional":
            return self.activation(hidden)
        return ops.maximum(hidden[..., 0::2], hidden[..., 1::2])

    def output_spec(self, inputs: Any, memory: Any, **kwargs: Any) -> Any:
        """Return the symbolic outputs."""
        self._check_shapes(inputs.shape, memory.shape)
        return self._step_spec(inputs.shape[0], memory.shape)

    def _step_spec(
        self, batch: int | None, memory: tuple[Any, ...], steps: tuple[Any, ...] = ()
    ) -> tuple[Any, Any, State]:
        """Return the symbolic output `(B, *steps, ·)`, weights and state.

        `steps` is `(T,)`, or `()` for one step. `memory` is a shape.
        """
        dtype, size = self.compute_dtype, self.units or memory[-1] + self.cell_output_size
        cell_state = tree.map_structure(
            lambda x: keras.KerasTensor((batch, *x.shape[1:]), x.dtype),
            keras_cells.zero_state(self.cell, 1),
        )
        fed = keras.KerasTensor((batch, size), dtype) if self.input_feeding else ()
        output = keras.KerasTensor((batch, *steps, size), dtype)
        weights = self.attention.weights_spec(batch, steps, memory)
        attention = self.attention.state_spec(batch, weights.shape[-1])
        return output, weights, State(cell_state, attention, fed)
