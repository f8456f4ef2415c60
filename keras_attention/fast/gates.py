"""The steps of simple, GRU and LSTM cells in a loop; gradients of kernels follow after the loop.

**Forward.** Part of a cell's input is known before the loop. This part is multiplied by its rows of
the kernel before the loop, once for all steps. The other part is a context or the last output. Each
step multiplies it in the loop.

**Gradients.** The gradient of a kernel is a sum over steps, `dW = Σ_t x_tᵀ g_t = Xᵀ G`. Automatic
differentiation adds one term at each step, and reads and writes an array of the kernel's size each
time. Instead, one large product `Xᵀ G` after the loop computes the whole sum:

- In the loop, the kernel is constant: `constant_product` gives it no gradient.
- Each step adds a term to the product, an input of the loop. The gradient of the terms of all steps
  is `G`. `deferred` wraps the term: it receives `G` and returns the kernel's gradient `Xᵀ G`.

Both functions can be differentiated repeatedly in reverse mode. JAX traces a gradient before the
loop has run. So on JAX, `constant_product` is a plain product, and `deferred` returns its term.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from keras import ops

from keras_attention import backend
from keras_attention.shapes import Tensor

_Activation = Callable[[Tensor], Tensor]


class Trace:
    """The results of a loop by name, each `(T, B, ·)`, for the gradients after the loop."""

    def __init__(self) -> None:
        self.steps: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.steps:  # forward mode needs gradients while the loop runs
            raise NotImplementedError(
                "Forward mode expected a loop that has its gradients step by step: take the "
                "derivative within keras_attention.fast_paths(False). Received: the fast loop"
            )
        return self.steps[name]

    def before(self, name: str, first: Tensor) -> Tensor:
        """Return the result before each step, `(T, B, ·)`: `first` `(B, ·)`, then steps 0 … T-2."""
        return ops.concatenate([first[None], self[name][:-1]], axis=0)


def constant_product(y: Tensor) -> Callable[[Tensor], Tensor]:
    """Return a function `x -> x y` for `x` `(..., n, m)` that gives `y` `(..., m, k)` no gradient.

    The gradient of `x` is a product with the transpose of `y`, which is computed once, here. A
    product that transposes `y` at each step takes three times as long for few rows (64 rows,
    512 x 2048: 4.8 ms of processor time, against 1.7 ms).
    """
    if not backend.IS_TENSORFLOW:
        return lambda x: ops.matmul(x, y)
    y = ops.copy(y)  # in this graph: gradients of the loop may not capture another graph's tensors
    constant = ops.stop_gradient(y)
    transposed, saves = ops.swapaxes(y, -1, -2), backend.for_gpu()

    def times(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        product = (
            backend.checkpointed(ops.matmul, x, constant) if saves else ops.matmul(x, constant)
        )
        return product, lambda g: ops.matmul(g, transposed)

    product: Callable[[Tensor], Tensor] = ops.custom_gradient(times)
    return product


def deferred(
    x: Tensor, parameters: list[Tensor], gradients: Callable[[Tensor], list[Tensor]]
) -> Tensor:
    """Return `x`; the gradients of `parameters` are `gradients(g)` for the gradient `g` of `x`."""
    if not backend.IS_TENSORFLOW:
        return x

    def identity(x: Tensor, *parameters: Tensor) -> tuple[Tensor, Any]:
        return x, lambda g: (g, *gradients(g))

    return ops.custom_gradient(identity)(x, *parameters)


def outer(a: Tensor, b: Tensor) -> Tensor:
    """Return `Σ_tb a_tb b_tbᵀ`, `(m, n)`, of `a` `(T, B, m)` and `b` `(T, B, n)`."""
    a = ops.reshape(a, (-1, a.shape[-1]))  # (T·B, m)
    return ops.matmul(ops.transpose(a), ops.reshape(b, (-1, b.shape[-1])))


class Gates(NamedTuple):
    """The tensors and functions of a recurrent cell's step.

    Attributes:
        kind: `"simple"`, `"gru"` (with the reset gate after the product) or `"lstm"`.
        kernel: `(dim, gates · units)`; a simple cell has 1 gate, a GRU 3, an LSTM 4.
        recurrent_kernel: `(units, gates · units)`.
        bias: `(gates · units,)`, for a GRU `(2, 3 · units)`.
        activation: activation of the candidate and of the output.
        recurrent_activation: activation of the gates.
        dtype: dtype of the products.
    """

    kind: str
    kernel: Any
    recurrent_kernel: Any
    bias: Any
    activation: _Activation
    recurrent_activation: _Activation
    dtype: str

    def can_run_with(self, other: Gates) -> bool:
        """Return whether one step can compute both cells, with their kernels stacked.

        Both need the same kind, functions, dtype and shape.
        """
        functions = self.activation, self.recurrent_activation, self.dtype, self.kind
        others = other.activation, other.recurrent_activation, other.dtype, other.kind
        return functions == others and self.kernel.shape == other.kernel.shape


class Cell:
    """A simple or LSTM cell in a loop: one product computes all its gates.

    A step computes `gates_t = x_t W_x + b + [fed_t; h_{t-1}] [W_fed; W_h]`. The terms
    `x_t W_x + b` are inputs of the loop, `steps["gates"]`.

    Args:
        gates: tensors and functions of the cell.
        inputs: `x`, `(T, B, ·)`, the part of the input that is known before the loop. The rows of
            the kernel after it multiply `fed`.
        first: `(B, units)`, the output before the first step.
        trace: results of the loop; it must get the first state after each step under `name`.
        fed: called after the loop: returns the parts of `fed` at all steps, each `(T, B, ·)`.
        name: name of this cell's first state in the trace.

    Attributes:
        steps: inputs of the loop by name, each `(T, B, ·)`; `step` takes their values at one step.
        state_dtype: dtype of the states in the loop.
    """

    def __init__(
        self,
        gates: Gates,
        inputs: Tensor,
        first: Tensor,
        trace: Trace,
        fed: Callable[[], list[Tensor]] = list,
        name: str = "output",
    ) -> None:
        self._gates, self._dtype, self._trace, self._fed = gates, gates.dtype, trace, fed
        self._name, self._first = name, first
        # Half precision is only for products. In float32 states, small additions are not lost.
        half = self._dtype in ("float16", "bfloat16")
        self.state_dtype = "float32" if half else self._dtype
        of_inputs, of_fed = ops.cast(gates.kernel, self._dtype), None
        recurrent = ops.cast(gates.recurrent_kernel, self._dtype)
        bias = ops.cast(gates.bias, self._dtype)
        if of_inputs.shape[0] > inputs.shape[-1]:
            # Split, not sliced: the gradient of a slice is a whole kernel, zeros outside the slice.
            of_inputs, of_fed = ops.split(of_inputs, [inputs.shape[-1]], axis=0)
        self.steps: dict[str, Tensor] = {}
        parameters, bias = self._prepare(inputs, of_fed, recurrent, bias)
        # (T, B, ·) by (·, gates · units): (T, B, gates · units)
        products = ops.matmul(ops.cast(inputs, self._dtype), of_inputs) + bias
        self.steps["gates"] = deferred(products, parameters, self._gradients)

    def _prepare(
        self, inputs: Tensor, of_fed: Tensor | None, recurrent: Tensor, bias: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """Return the parameters with deferred gradients, and the bias of the known inputs' term.

        Sets the product of a step, `[fed; h]` times `[of_fed; recurrent]`.
        """
        self._kernel = recurrent if of_fed is None else ops.concatenate([of_fed, recurrent], axis=0)
        self._times = constant_product(self._kernel)
        return [self._kernel], bias

    def beside(self, *others: Cell) -> Cell:
        """Return a cell whose step computes this cell and the others on tensors `(cells, B, ·)`."""
        cell = copy.copy(self)
        kernels = ops.stack([each._kernel for each in (self, *others)])  # (cells, ·, gates · units)
        cell._times = constant_product(kernels)
        return cell

    def _gradients(self, gates: Tensor) -> list[Tensor]:
        return [outer(join([*self._fed(), self._before()]), gates)]

    def _before(self) -> Tensor:
        return self._trace.before(self._name, self._first)

    def step(self, row: dict[str, Tensor], fed: list[Tensor], state: list[Tensor]) -> list[Tensor]:
        """Return the states `(B, units)` after a step.

        Args:
            row: the values of `steps` at this step, each `(B, ·)`.
            fed: the rest of the cell's input, each `(B, ·)`.
            state: the states before the step, each `(B, units)`.
        """
        fed = [*fed, ops.cast(state[0], self._dtype)]
        gates = ops.cast(row["gates"] + self._times(join(fed)), self.state_dtype)
        if self._gates.kind == "lstm":
            return lstm_step(self._gates, gates, state)
        return [self._gates.activation(gates)]


class GRU(Cell):
    """A GRU cell in a loop. Its reset gate multiplies a part of the recurrent product.

    `candidate = activation(x W_c + b_c + r * (h U_c + b'_c))`. So the gradient of `h U_c + b'_c`
    differs from the gradient of the gates: `steps["candidate"]` holds `b'_c` and defers the
    gradient of `U_c`. For the update and the reset gate, both biases are added before the loop.
    """

    def _prepare(
        self, inputs: Tensor, of_fed: Tensor | None, recurrent: Tensor, bias: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        self._kernel, self._times = recurrent, constant_product(recurrent)
        self._times_fed = None if of_fed is None else constant_product(of_fed)
        units = recurrent.shape[0]
        # (units, 2 · units) and (units, units)
        of_gates, of_candidate = ops.split(recurrent, [2 * units], axis=-1)
        self._times_both = None
        if of_fed is not None and backend.for_gpu():
            # One product of [fed; h] instead of two, with 4 · units columns. Zeros keep the
            # candidate's term of fed (third block) apart from its term of h (fourth block):
            #     fed rows: update, reset, candidate, 0
            #     h rows:   update, reset, 0,         candidate
            of_state = [of_gates, ops.zeros_like(of_candidate), of_candidate]
            fed_rows = ops.pad(of_fed, [[0, 0], [0, units]])
            both = [fed_rows, ops.concatenate(of_state, axis=-1)]
            self._times_both = constant_product(ops.concatenate(both, axis=0))
        bias, recurrent_bias = ops.unstack(bias)
        gates_bias, candidate_bias = ops.split(recurrent_bias, [2 * units], axis=-1)
        shape = (*ops.shape(inputs)[:2], units)
        self.steps["candidate"] = deferred(
            ops.broadcast_to(candidate_bias, shape),
            [of_candidate],
            lambda g: [outer(self._before(), g)],
        )
        bias = bias + ops.pad(gates_bias, [[0, units]])
        return [of_gates, *([] if of_fed is None else [of_fed])], bias

    def _gradients(self, gates: Tensor) -> list[Tensor]:
        of_state = outer(self._before(), gates[..., : 2 * self._first.shape[-1]])
        return [of_state, *([outer(join(self._fed()), gates)] if self._times_fed else [])]

    def step(self, row: dict[str, Tensor], fed: list[Tensor], state: list[Tensor]) -> list[Tensor]:
        """Return the state after a step: see `Cell.step`."""
        h, gates = ops.cast(state[0], self._dtype), row["gates"]
        if self._times_both:
            units = h.shape[-1]
            both = self._times_both(join([*fed, h]))  # (B, 4 · units)
            of_gates, of_candidate = ops.split(both, [3 * units], axis=-1)
            gates, inner = gates + of_gates, ops.pad(of_candidate, [[0, 0], [2 * units, 0]])
        else:
            gates = gates + self._times_fed(join(fed)) if self._times_fed else gates
            inner = self._times(h)
        gates, inner = ops.cast(gates, self.state_dtype), ops.cast(inner, self.state_dtype)
        *others, candidate = ops.split(inner, 3, axis=-1)  # (B, units) each
        candidate = candidate + ops.cast(row["candidate"], self.state_dtype)
        return gru_step(self._gates, gates, [*others, candidate], state)


class Stack:
    """A stack of cells: in a step, each cell reads the output of the cell below.

    Args:
        gates: of all cells, bottom first.
        inputs: the known inputs of the bottom cell, `(T, B, ·)`.
        first: the states of all cells before the first step, each `(B, units)`.
        trace: results of the loop; it must get each cell's first state under its name in `names`.
        fed: called after the loop: the other inputs of the bottom cell, see `Cell`.

    Attributes:
        names: names of the cells' outputs in the trace, bottom first; `"output"` is the top cell's.
        starts: for each cell, the index of its first state in the list of all states.
        top: the index of the top cell's first state, its output.
        steps: inputs of the loop, a dictionary for each cell.
        state_dtype: dtype of the states in the loop.
    """

    def __init__(
        self,
        gates: list[Gates],
        inputs: Tensor,
        first: list[Tensor],
        trace: Trace,
        fed: Callable[[], list[Tensor]] = list,
    ) -> None:
        self.names = [f"output_{i}" for i in range(len(gates) - 1)] + ["output"]
        self._cells, self.starts, start = [], [], 0
        for each, name in zip(gates, self.names, strict=True):
            self._cells.append(hoisted_cell(each, inputs, first[start], trace, fed, name))
            self.starts.append(start)
            start += 2 if each.kind == "lstm" else 1
            # Cells above the bottom one have no known inputs: width 0.
            inputs, fed = inputs[..., :0], partial(lambda name: [trace[name]], name)
        self.top = self.starts[-1]
        self.steps = [cell.steps for cell in self._cells]
        self.state_dtype, self._dtype = self._cells[0].state_dtype, gates[0].dtype

    def step(self, row: list[Any], fed: list[Tensor], state: list[Tensor]) -> list[Tensor]:
        """Return the states of all cells after a step: see `Cell.step`."""
        new: list[Tensor] = []
        ends = [*self.starts[1:], len(state)]
        for cell, inputs, start, end in zip(self._cells, row, self.starts, ends, strict=True):
            states = cell.step(inputs, fed, state[start:end])
            fed = [ops.cast(states[0], self._dtype)]
            new += states
        return new


def hoisted_cell(gates: Gates, *args: Any) -> Cell:
    """Return the `GRU` or the `Cell` for these gates; the arguments are those of `Cell`."""
    return (GRU if gates.kind == "gru" else Cell)(gates, *args)


def gru_step(of: Gates, gates: Tensor, inner: list[Tensor], state: list[Tensor]) -> list[Tensor]:
    """Return the next state of a GRU (Cho et al. 2014, arXiv 1406.1078), `(B, units)`.

    The reset gate follows the recurrent product, as in cuDNN. `gates` are the inputs' terms
    `(B, 3 · units)`, `inner` the three recurrent terms `(B, units)`.
    """
    (h,) = state
    gates_update, gates_reset, gates_candidate = ops.split(gates, 3, axis=-1)
    inner_update, inner_reset, inner_candidate = inner
    update = of.recurrent_activation(gates_update + inner_update)
    reset = of.recurrent_activation(gates_reset + inner_reset)
    candidate = of.activation(gates_candidate + reset * inner_candidate)
    return [candidate + update * (h - candidate)]


def lstm_step(of: Gates, gates: Tensor, state: list[Tensor]) -> list[Tensor]:
    """Return the next states `[h, c]` of an LSTM (Hochreiter and Schmidhuber 1997).

    With a forget gate. `gates` `(B, 4 · units)` are in Keras's order.
    """
    (_, c) = state
    gates_input, gates_forget, gates_candidate, gates_output = ops.split(gates, 4, axis=-1)
    added = of.recurrent_activation(gates_input) * of.activation(gates_candidate)
    c = of.recurrent_activation(gates_forget) * c + added
    return [of.recurrent_activation(gates_output) * of.activation(c), c]


def join(parts: list[Tensor]) -> Tensor:
    """Return the tensors, concatenated along the last axis."""
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)
