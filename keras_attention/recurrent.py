"""A recurrent cell that attends to a memory, and the layer that runs it over a sequence."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops, tree

from keras_attention import backend, hoisted
from keras_attention.additive import AdditiveAttention
from keras_attention.attention import Attention, Memory, Tensor, alike, check_mask

ORDERS = ("bahdanau", "luong")


class State(NamedTuple):
    """What an `AttentionRNN` carries from step to step.

    Attributes:
        cell: list of the cell's states, each `(B, ·)`.
        attention: what the attention mechanism remembers, `()` for most.
        output: the last output `(B, units)` with input feeding, otherwise `()`.
    """

    cell: Any
    attention: Any
    output: Any


@keras.saving.register_keras_serializable("keras_attention")
class AttentionRNN(keras.layers.Layer):
    """Runs a recurrent cell over a sequence while it attends to a memory.

    Two orders of computation, for input `y_t`, memory `h` and cell `f`:

    - `"bahdanau"` (Bahdanau et al. 2014, arXiv 1409.0473, section 3.1): the context comes from the
      state before, `c_t = attend(s_{t-1}, h)`, then `s_t = f(s_{t-1}, [y_t; c_t])`.
    - `"luong"` (Luong et al. 2015, arXiv 1508.04025, section 3): `s_t = f(s_{t-1}, y_t)`, then the
      context comes from the new state, `c_t = attend(s_t, h)`.

    The output of a step is the attentional vector `tanh(W_c [c_t; s_t])` (Luong et al. 2015,
    eq. 5), or `[c_t; s_t]` itself where `units` is None. With `input_feeding` (section 3.3) the
    output of the step before joins the cell's input.

    Args:
        cell: a Keras recurrent cell (`SimpleRNNCell`, `GRUCell`, `LSTMCell`, `StackedRNNCells`).
        attention: an attention layer of this library.
        order: `"bahdanau"` or `"luong"`.
        units: width of the attentional vector, or None to return `[c_t; s_t]`.
        input_feeding: whether the last output is fed to the cell.
        return_sequences: whether all outputs are returned, or the last one alone.
        return_state: whether the last states of the cell are returned as well.
        return_attention_scores: whether the attention weights are returned as well.

    Call arguments:
        inputs: `(B, T, dim)`.
        memory: `(B, S, dim)`.
        inputs_mask: boolean `(B, T)`; where it is False the state stays and the output is 0.
        memory_mask: boolean `(B, S)`; what is False gets weight 0.
        initial_state: list of the cell's states, each `(B, ·)`; zeros if not given.
        training: whether dropout is applied.

    Output:
        `(B, T, output_size)`, or `(B, output_size)` without `return_sequences`; then with
        `return_state` the cell's states, and last with `return_attention_scores` the weights
        `(B, T, S)`.

    Weights: those of the cell and of the attention layer, and `output_kernel`
    `(dim of c + dim of s, units)` where `units` is given.
    """

    def __init__(
        self,
        cell: keras.layers.Layer,
        attention: Attention,
        order: str = "bahdanau",
        units: int | None = None,
        input_feeding: bool = False,
        return_sequences: bool = True,
        return_state: bool = False,
        return_attention_scores: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if order not in ORDERS:
            raise ValueError(
                f"AttentionRNN expected order to be one of {', '.join(ORDERS)}. "
                f"Received: order={order!r}"
            )
        if not hasattr(cell, "state_size"):
            raise ValueError(
                f"AttentionRNN expected a recurrent cell with a state_size. Received: {cell!r}"
            )
        if not isinstance(attention, Attention):
            raise ValueError(
                "AttentionRNN expected an attention layer of keras_attention. "
                f"Received: {attention!r}"
            )
        self.cell = cell
        self.attention = attention
        self.order = order
        self.units = units
        self.input_feeding = input_feeding
        self.return_sequences = return_sequences
        self.return_state = return_state
        self.return_attention_scores = return_attention_scores
        self.supports_masking = True

    def build(self, inputs_shape: tuple, memory_shape: tuple) -> None:
        """Make the weights for inputs and memory of these shapes."""
        self._check_shapes(inputs_shape, memory_shape)
        batch, state_size = inputs_shape[0], self._cell_output_size
        context_size = memory_shape[-1]
        self.output_size = self.units or context_size + state_size
        width = inputs_shape[-1]
        width += context_size if self.order == "bahdanau" else 0
        width += self.output_size if self.input_feeding else 0
        if not self.cell.built:
            self.cell.build((batch, width))
            self.cell.built = True
        if not self.attention.built:
            self.attention.build((batch, None, state_size), memory_shape)
            self.attention.built = True
        self.output_kernel = None
        if self.units:
            shape = (context_size + state_size, self.units)
            self.output_kernel = self.add_weight(shape, name="output_kernel")

    # One step at a time.

    def prepare(
        self, value: Tensor, key: Tensor | None = None, mask: Tensor | None = None
    ) -> Memory:
        """Prepare a memory `(B, S, dim)` for `step`: see `Attention.prepare`."""
        return self.attention.prepare(value, key, mask)

    def initial_state(self, memory: Memory, cell_state: Any = None) -> State:
        """Return the state before the first step.

        Args:
            memory: from `prepare`.
            cell_state: list of the cell's states, each `(B, ·)`; zeros if not given.

        Returns:
            The state to pass to `step`.
        """
        batch = ops.shape(memory.value)[0]
        if cell_state is None:
            cell_state = self.cell.get_initial_state(batch_size=batch)
        like = self.cell.get_initial_state(batch_size=1)
        flat = [ops.cast(x, self.compute_dtype) for x in tree.flatten(cell_state)]
        shapes = [tuple(x.shape) for x in flat]
        sizes = tree.flatten(self.cell.state_size)
        if [shape[1:] for shape in shapes] != [(size,) for size in sizes]:
            raise ValueError(
                f"AttentionRNN expected {len(sizes)} initial state(s) "
                f"{', '.join(str((memory.value.shape[0], size)) for size in sizes)}. "
                f"Received: {', '.join(map(str, shapes))}"
            )
        output = ()
        if self.input_feeding:
            output = ops.zeros((batch, self.output_size), self.compute_dtype)
        return State(
            tree.pack_sequence_as(like, flat), self.attention.initial_state(memory), output
        )

    def step(
        self, inputs: Tensor, memory: Memory, state: State, training: bool | None = None
    ) -> tuple[Tensor, Tensor, State]:
        """Take one step.

        Args:
            inputs: `(B·n, dim)`; `n` rows may share a memory row, as the beams of a search do.
            memory: from `prepare`, with batch size B.
            state: from `initial_state` or the last step.
            training: whether dropout is applied.

        Returns:
            The output `(B·n, output_size)`, the attention weights `(B·n, S)` and the next state.
        """
        pair, weights, state = self._advance(
            ops.cast(inputs, self.compute_dtype), memory, state, training
        )
        output = self._attentional_vector(pair)
        if self.input_feeding:
            state = state._replace(output=output)
        return output, weights, state

    # A whole sequence.

    def call(
        self,
        inputs: Tensor,
        memory: Tensor,
        inputs_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        initial_state: Any = None,
        training: bool | None = None,
    ) -> Any:
        """Run over the sequence; arguments and result as the class says."""
        self._check_shapes(inputs.shape, memory.shape)
        check_mask(self, "inputs_mask", inputs_mask, inputs.shape[:2])
        check_mask(self, "memory_mask", memory_mask, memory.shape[:2])
        prepared = self.prepare(memory, mask=memory_mask)
        state = self.initial_state(prepared, initial_state)
        inputs = ops.transpose(ops.cast(inputs, self.compute_dtype), (1, 0, 2))  # (T, B, dim)
        if inputs_mask is None and self._can_hoist():
            outputs, weights, cell_state = self._call_hoisted(inputs, prepared, state, training)
        else:
            outputs, weights, cell_state = self._call_plain(
                inputs, inputs_mask, prepared, state, training
            )
        outputs = ops.transpose(outputs, (1, 0, 2))
        if not self.return_sequences:
            outputs = outputs[:, -1] if inputs_mask is None else _last_valid(outputs, inputs_mask)
        if not self.input_feeding:
            outputs = self._attentional_vector(outputs)
        result = [outputs]
        if self.return_state:
            result.extend(tree.flatten(cell_state))
        if self.return_attention_scores:
            result.append(ops.transpose(weights, (1, 0, 2)))
        return result[0] if len(result) == 1 else tuple(result)

    def _call_plain(
        self,
        inputs: Tensor,
        inputs_mask: Tensor | None,
        prepared: Memory,
        state: State,
        training: bool | None,
    ) -> tuple[Tensor, Tensor, Any]:
        """Run step by step: outputs and weights `(T, B, ·)`, and the cell's last state."""
        self._draw_dropout_masks(inputs[0], prepared, state)
        steps = {"inputs": inputs}
        if inputs_mask is not None:
            mask = ops.transpose(ops.cast(inputs_mask, "bool"))
            steps["mask"] = ops.expand_dims(mask, -1)  # (T, B, 1)

        def advance(now, state):
            if self.input_feeding:
                output, weights, new = self.step(now["inputs"], prepared, state, training)
            else:  # the attentional vector is then one product for all steps, after the loop
                output, weights, new = self._advance(now["inputs"], prepared, state, training)
            if "mask" in now:
                new = tree.map_structure(lambda a, b: ops.where(now["mask"], a, b), new, state)
                output = ops.where(now["mask"], output, ops.zeros_like(output))
                weights = ops.where(now["mask"], weights, ops.zeros_like(weights))
            return (output, weights), new

        dtypes = (self.compute_dtype, self.compute_dtype)
        (outputs, weights), state = backend.scan(advance, state, steps, dtypes)
        self._forget_dropout_masks()
        return outputs, weights, state.cell

    def _can_hoist(self) -> bool:
        mechanism = type(self.attention)
        remembers = any(
            getattr(mechanism, name) is not getattr(Attention, name)
            for name in ("step", "attend", "initial_state")
        )
        return (
            self.order == "bahdanau"
            and not self.input_feeding
            and not remembers
            and hoisted.supports(self.cell)
        )

    def _call_hoisted(
        self, inputs: Tensor, prepared: Memory, state: State, training: bool | None
    ) -> tuple[Tensor, Tensor, Any]:
        """Do what `_call_plain` does, faster: see `keras_attention.hoisted`."""

        # The kernel of the query is the one product of the attention that is left in the loop.
        additive = type(self.attention) is AdditiveAttention
        query_kernel = self.attention.query_kernel if additive else None

        def attend(query):
            query = ops.expand_dims(query, 1)
            if not additive:
                query = self.attention.project_query(query)
            context, weights = self.attention.attend(query, prepared, training)
            return ops.squeeze(context, 1), ops.squeeze(weights, 1)

        outputs, cell_state = hoisted.run(
            self.cell, inputs, state.cell, attend=attend, query_kernel=query_kernel
        )
        pair = ops.concatenate([outputs["context"], outputs["output"]], axis=-1)
        return pair, outputs["weights"], cell_state

    def _advance(
        self, inputs: Tensor, memory: Memory, state: State, training: bool | None
    ) -> tuple[Tensor, Tensor, State]:
        """Take one step up to `[c_t; s_t]`."""
        fed = [inputs, state.output] if self.input_feeding else [inputs]
        if self.order == "bahdanau":
            query = self._query(state.cell)
            context, weights, attention = self.attention.step(
                query, memory, state.attention, training
            )
            output, cell = self._call_cell([*fed, context], state.cell, training)
        else:
            output, cell = self._call_cell(fed, state.cell, training)
            context, weights, attention = self.attention.step(
                output, memory, state.attention, training
            )
        pair = ops.concatenate([context, output], axis=-1)
        return pair, weights, State(cell, attention, state.output)

    def _call_cell(self, inputs: list, state: Any, training: bool | None) -> tuple[Tensor, Any]:
        inputs = inputs[0] if len(inputs) == 1 else ops.concatenate(inputs, axis=-1)
        output, new = self.cell(inputs, state, training=training)
        # A stack of one cell does not give its states back in the structure it took them in.
        return output, tree.pack_sequence_as(state, tree.flatten(new))

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
    def _cell_output_size(self) -> int:
        size = getattr(self.cell, "output_size", None) or self.cell.state_size
        return tree.flatten(size)[0]

    # Keras cells draw one dropout mask a sequence: outside the loop, or it would leak out of it.

    def _draw_dropout_masks(self, inputs: Tensor, memory: Memory, state: State) -> None:
        batch, width = ops.shape(inputs)[0], inputs.shape[-1]
        width += memory.value.shape[-1] if self.order == "bahdanau" else 0
        width += self.output_size if self.input_feeding else 0
        for cell in getattr(self.cell, "cells", [self.cell]):
            size = tree.flatten(cell.state_size)[0]
            if hasattr(cell, "get_dropout_mask"):
                cell.get_dropout_mask(ops.zeros((batch, width), inputs.dtype))
                cell.get_recurrent_dropout_mask(ops.zeros((batch, size), inputs.dtype))
            width = size

    def _forget_dropout_masks(self) -> None:
        for cell in getattr(self.cell, "cells", [self.cell]):
            if hasattr(cell, "get_dropout_mask"):
                cell.reset_dropout_mask()
                cell.reset_recurrent_dropout_mask()

    def _check_shapes(self, inputs: tuple, memory: tuple) -> None:
        received = f"Received: inputs {tuple(inputs)}, memory {tuple(memory)}"
        if len(inputs) != 3 or len(memory) != 3:
            raise ValueError(
                f"AttentionRNN expected inputs (B, T, dim) and a memory (B, S, dim). {received}"
            )
        if not alike(inputs[0], memory[0]):
            raise ValueError(f"AttentionRNN expected one batch size. {received}")

    # Keras.

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """Return the mask of the inputs for the output sequence."""
        return previous_mask if self.return_sequences else None

    def compute_output_spec(self, inputs: Any, memory: Any, **kwargs: Any) -> Any:
        """Return the symbolic outputs."""

        def tensor(*shape):
            return keras.KerasTensor(shape, self.compute_dtype)

        batch, time = inputs.shape[:2]
        shape = (batch, time) if self.return_sequences else (batch,)
        result = [tensor(*shape, self.output_size)]
        if self.return_state:
            result.extend(tensor(batch, size) for size in tree.flatten(self.cell.state_size))
        if self.return_attention_scores:
            result.append(tensor(batch, time, memory.shape[1]))
        return result[0] if len(result) == 1 else tuple(result)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "cell": keras.saving.serialize_keras_object(self.cell),
            "attention": keras.saving.serialize_keras_object(self.attention),
            "order": self.order,
            "units": self.units,
            "input_feeding": self.input_feeding,
            "return_sequences": self.return_sequences,
            "return_state": self.return_state,
            "return_attention_scores": self.return_attention_scores,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> AttentionRNN:
        """Rebuild the layer."""
        config = dict(config)
        for name in ("cell", "attention"):
            config[name] = keras.saving.deserialize_keras_object(config[name])
        return cls(**config)


def _last_valid(outputs: Tensor, mask: Tensor) -> Tensor:
    """Return from `(B, T, dim)` the last row that the mask `(B, T)` allows, zeros if none."""
    backwards = ops.flip(ops.cast(mask, "int32"), axis=1)
    index = ops.shape(outputs)[1] - 1 - ops.cast(ops.argmax(backwards, axis=1), "int32")
    picked = ops.take_along_axis(outputs, ops.reshape(index, (-1, 1, 1)), axis=1)
    return ops.squeeze(picked, 1)  # masked outputs are zero, so a row without any gives zeros
