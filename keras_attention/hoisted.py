"""Recurrent loops on TensorFlow with all that can be taken out of them.

Of a recurrent step, the product of inputs and kernel does not depend on the state: it is one
product for all steps, before the loop. And the gradient of a kernel is a sum over steps of small
outer products, which automatic differentiation adds up step by step at the cost of reading and
writing the whole kernel each time: here it is one product for all steps, after the loop.

The loop itself treats its kernels as constants. `_deferred` puts the missing gradients back: it is
the identity on the hoisted input products, whose gradient is that of the gates at every step.

Context and state go through one product. Its gradient is a product with the transpose, which is
taken once, before the loop: a few rows times a transpose that is taken on the way cost three times
as much in float32 (64 rows, 512 x 2048: 4.8 ms of processor time against 1.7).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_attention import backend

Tensor = Any
Attend = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def supports(cell: Any) -> bool:
    """Whether `run` can stand in for the cell: plain Keras cells on TensorFlow, without dropout."""
    if keras.backend.backend() != "tensorflow":
        return False
    if type(cell) is keras.layers.GRUCell and not cell.reset_after:
        return False
    known = (keras.layers.SimpleRNNCell, keras.layers.GRUCell, keras.layers.LSTMCell)
    return type(cell) in known and cell.use_bias and not (cell.dropout or cell.recurrent_dropout)


def run(
    cell: Any,
    inputs: Tensor,
    state: list[Tensor],
    mask: Tensor | None = None,
    attend: Attend | None = None,
    query_kernel: Tensor | None = None,
    value: Tensor | None = None,
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """Run a cell over a sequence, as a loop over `cell(inputs, state)` would.

    Args:
        cell: a built cell for which `supports` is true.
        inputs: `(T, B, dim)`.
        state: the cell's states, each `(B, units)`.
        mask: boolean `(T, B)`; where it is False the state stays.
        attend: for a cell whose input is `[inputs; context]`: a function from the previous output
            `(B, units)`, or its product with `query_kernel`, to the context `(B, dv)` and the
            attention weights `(B, S)`.
        query_kernel: `(units, ·)`, if the query is to be projected.
        value: `(B, S, dv)`, if the context is the product of the weights and this, which `attend`
            then takes for a constant.

    Returns:
        In the compute dtype, the outputs of all steps: `output` `(T, B, units)` and, with `attend`,
        `context` `(T, B, dv)` and `weights` `(T, B, S)`; and the last states.
    """
    dtype, width, units = cell.compute_dtype, inputs.shape[-1], cell.units
    kernel = ops.cast(cell.kernel, dtype)
    recurrent = ops.cast(cell.recurrent_kernel, dtype)
    bias = ops.cast(cell.bias, dtype)
    gru = isinstance(cell, keras.layers.GRUCell)
    # In half precision the products alone are: a state that adds up keeps its small parts.
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    inputs = ops.cast(inputs, dtype)
    first_output, state = state[0], [ops.cast(x, wide) for x in state]
    seen = {}  # what the deferred gradients need of the loop, known when they are asked for

    def previous() -> Tensor:
        return ops.concatenate([first_output[None], seen["output"][:-1]], axis=0)

    def kernel_gradients(gates: Tensor) -> list[Tensor]:
        inner = gates
        if gru:  # the reset gate stands between the recurrent product and the candidate
            reset = seen["reset"] * gates[..., 2 * units :]
            inner = ops.concatenate([gates[..., : 2 * units], reset], axis=-1)
        gradients = [_outer(previous(), inner)]
        if gru:
            gradients.append(ops.sum(inner, axis=(0, 1)))
        if attend:
            gradients.append(_outer(seen["context"], gates))
        return gradients

    parameters = [recurrent]
    if gru:
        bias, recurrent_bias = ops.unstack(bias)
        parameters.append(recurrent_bias)
        recurrent_bias = ops.stop_gradient(recurrent_bias)
    if attend:
        # Split, not sliced: the gradient of a slice is a tensor of zeros around it.
        kernel, context_kernel = ops.split(kernel, [width], axis=0)
        parameters.append(context_kernel)
    gates = _deferred(ops.matmul(inputs, kernel) + bias, parameters, kernel_gradients)
    if attend and not gru:
        times_both = _product(ops.concatenate([context_kernel, recurrent], axis=0))
    else:
        times_recurrent = _product(recurrent)
        times_context = _product(context_kernel) if attend else None

    steps = {"gates": gates}
    if mask is not None:
        steps["mask"] = ops.expand_dims(mask, -1)
    if query_kernel is not None:
        query_kernel = ops.cast(query_kernel, dtype)
        zeros = ops.zeros((*ops.shape(inputs)[:2], query_kernel.shape[-1]), dtype)
        steps["query"] = _deferred(zeros, [query_kernel], lambda g: [_outer(previous(), g)])
        times_query = _product(query_kernel)
    if value is not None:
        zeros = ops.zeros((*ops.shape(inputs)[:2], value.shape[-1]), dtype)
        steps["context"] = _deferred(
            zeros, [value], lambda g: [ops.einsum("tbs,tbd->bsd", seen["weights"], g)]
        )

    def step(now, state):
        outputs, gates, last = {}, now["gates"], ops.cast(state[0], dtype)
        if attend:
            query = last
            if query_kernel is not None:
                query = times_query(query) + now["query"]
            context, outputs["weights"] = attend(query)
            if value is not None:
                context = context + now["context"]
            outputs["context"] = context
        if gru:
            gates = gates + times_context(context) if attend else gates
            inner = times_recurrent(last) + recurrent_bias
            new, reset = gru_step(cell, ops.cast(gates, wide), ops.cast(inner, wide), state)
            outputs["reset"] = ops.cast(reset, dtype)
        else:
            if attend:
                gates = gates + times_both(ops.concatenate([context, last], axis=-1))
            else:
                gates = gates + times_recurrent(last)
            gates = ops.cast(gates, wide)
            lstm = isinstance(cell, keras.layers.LSTMCell)
            new = lstm_step(cell, gates, state) if lstm else [cell.activation(gates)]
        if "mask" in now:
            new = [ops.where(now["mask"], a, b) for a, b in zip(new, state, strict=True)]
        outputs["output"] = ops.cast(new[0], dtype)
        return outputs, new

    names = ["output", *(["reset"] if gru else []), *(["context", "weights"] if attend else [])]
    outputs, state = backend.scan(step, state, steps, dict.fromkeys(names, dtype))
    seen.update({name: ops.stop_gradient(x) for name, x in outputs.items()})
    return outputs, [ops.cast(x, dtype) for x in state]


def gru_step(cell: Any, gates: Tensor, inner: Tensor, state: list) -> tuple[list, Tensor]:
    """Cho et al. 2014 (arXiv 1406.1078), with the reset gate after the product, as cuDNN has it."""
    (h,) = state
    gates_update, gates_reset, gates_candidate = ops.split(gates, 3, axis=-1)
    inner_update, inner_reset, inner_candidate = ops.split(inner, 3, axis=-1)
    update = cell.recurrent_activation(gates_update + inner_update)
    reset = cell.recurrent_activation(gates_reset + inner_reset)
    candidate = cell.activation(gates_candidate + reset * inner_candidate)
    return [candidate + update * (h - candidate)], reset


def lstm_step(cell: Any, gates: Tensor, state: list) -> list:
    """Hochreiter and Schmidhuber 1997, with forget gate, in Keras's order of gates."""
    (_, c) = state
    gates_input, gates_forget, gates_candidate, gates_output = ops.split(gates, 4, axis=-1)
    kept = cell.recurrent_activation(gates_forget) * c
    c = kept + cell.recurrent_activation(gates_input) * cell.activation(gates_candidate)
    return [cell.recurrent_activation(gates_output) * cell.activation(c), c]


def _deferred(x: Tensor, parameters: list, gradients: Callable[[Tensor], list]) -> Tensor:
    """Return `x`; give `parameters` the gradients that the gradient of `x` implies."""
    import tensorflow as tf

    @tf.custom_gradient
    def identity(x, *parameters):
        return tf.identity(x), lambda g: (g, *gradients(g))

    return identity(x, *parameters)


def _product(kernel: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the product of `(B, m)` with a constant kernel `(m, n)`, for use in a loop."""
    import tensorflow as tf

    kernel = tf.stop_gradient(kernel)
    # In half precision, products with a transpose taken on the way are as quick.
    turned = tf.transpose(kernel) if kernel.dtype == tf.float32 else None

    @tf.custom_gradient
    def product(x):
        def gradient(g):
            return tf.matmul(g, kernel, transpose_b=True) if turned is None else g @ turned

        return tf.matmul(x, kernel), gradient

    return product


def _outer(a: Tensor, b: Tensor) -> Tensor:
    """Sum of outer products over all steps: `(T, B, m)`, `(T, B, n)` to `(m, n)`."""
    a = ops.reshape(a, (-1, a.shape[-1]))
    return ops.matmul(ops.transpose(a), ops.reshape(b, (-1, b.shape[-1])))


@keras.saving.register_keras_serializable("keras_attention")
class HoistedRNN(keras.layers.RNN):
    """`keras.layers.RNN` that trains faster on TensorFlow: see the module.

    Arguments, call arguments, weights and results are those of `keras.layers.RNN`. Cells and
    backends that the fast loop does not know run as they do there.
    """

    def inner_loop(
        self, sequences: Tensor, initial_state: Any, mask: Tensor | None, training: bool = False
    ) -> tuple[Tensor, Tensor, Any]:
        """Run the loop of `keras.layers.RNN.call`."""
        if self.stateful or self.unroll or not supports(self.cell):
            return super().inner_loop(sequences, initial_state, mask, training)
        inputs = ops.transpose(sequences, (1, 0, 2))
        if mask is not None:
            mask = ops.transpose(ops.cast(mask, "bool"))
        if self.go_backwards:
            inputs = ops.flip(inputs, axis=0)
            mask = None if mask is None else ops.flip(mask, axis=0)
        outputs, state = run(self.cell, inputs, list(initial_state), mask)
        outputs = outputs["output"]
        if mask is not None and self.zero_output_for_mask:
            outputs = ops.where(ops.expand_dims(mask, -1), outputs, ops.zeros_like(outputs))
        return state[0], ops.transpose(outputs, (1, 0, 2)), state
