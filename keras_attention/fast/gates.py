"""The steps of simple, GRU and LSTM cells in a loop, whose kernels get their gradients after it.

The part of a cell's input that is known before the loop is multiplied by its rows of the kernel
there, once for all steps. A step multiplies the other part, a context or the last output.

The gradient of a kernel is a sum over steps, `dW = Σ_t x_tᵀ g_t = Xᵀ G`. Automatic differentiation
adds it up step by step, and reads and writes the whole kernel each time. One large product makes
the sum once all steps are known. So a kernel is constant in the loop, `constant_product`.
The term that is added to the product at each step, an input of the loop, is `deferred`: its
gradient is that of the product at all steps, from which the kernel's is made. Both can be
differentiated repeatedly in reverse mode. JAX traces a gradient before the loop has run: there
`constant_product` is a plain product, and `deferred` returns its term.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from keras import ops

from keras_attention import backend
from keras_attention.shapes import Tensor

Activation = Callable[[Tensor], Tensor]


class Trace:
    """The results of a loop's steps, by name `(T, B, ·)`, for the gradients after the loop."""

    def __init__(self) -> None:
        self.steps: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.steps:  # forward mode asks for gradients as it goes
            raise NotImplementedError(
                "Forward mode expected a loop that has its gradients step by step: take the "
                "derivative within keras_attention.fast_paths(False). Received: the fast loop"
            )
        return self.steps[name]

    def before(self, name: str, first: Tensor) -> Tensor:
        """Return the result before each step: `first` `(B, ·)`, then that of the step before."""
        return ops.concatenate([first[None], self[name][:-1]], axis=0)


def constant_product(y: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the product of `(..., n, m)` with `y` `(..., m, k)` that gives `y` no gradient.

    Its gradient multiplies by the transpose, made once, here. A product that transposes by itself
    costs three times as much for a few rows (64 rows, 512 x 2048: 4.8 ms of processor time
    against 1.7).
    """
    if not backend.IS_TENSORFLOW:
        return lambda x: ops.matmul(x, y)
    y = ops.copy(y)  # in the loop's own graph: its gradients may not capture another's tensors
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
    """Return `x`; give `parameters` the `gradients` that the gradient of `x` implies."""
    if not backend.IS_TENSORFLOW:
        return x

    def identity(x: Tensor, *parameters: Tensor) -> tuple[Tensor, Any]:
        return x, lambda g: (g, *gradients(g))

    return ops.custom_gradient(identity)(x, *parameters)


def outer(a: Tensor, b: Tensor) -> Tensor:
    """Return the sum of outer products over all steps: `(T, B, m)`, `(T, B, n)` to `(m, n)`."""
    a = ops.reshape(a, (-1, a.shape[-1]))
    return ops.matmul(ops.transpose(a), ops.reshape(b, (-1, b.shape[-1])))


class Gates(NamedTuple):
    """The tensors and functions that a recurrent cell's step is made of.

    Attributes:
        kind: `"simple"`, `"gru"` (with the reset gate after the product) or `"lstm"`.
        kernel: `(dim, gates · units)`.
        recurrent_kernel: `(units, gates · units)`.
        bias: `(gates · units,)`, of a GRU `(2, 3 · units)`.
        activation: of the candidate, or of the output.
        recurrent_activation: of the gates.
        dtype: of the products.
    """

    kind: str
    kernel: Any
    recurrent_kernel: Any
    bias: Any
    activation: Activation
    recurrent_activation: Activation
    dtype: str

    def has_step_of(self, other: Gates) -> bool:
        """Whether one step, of kernels side by side, computes both cells."""
        functions = self.activation, self.recurrent_activation, self.dtype, self.kind
        others = other.activation, other.recurrent_activation, other.dtype, other.kind
        return functions == others and self.kernel.shape == other.kernel.shape


class Cell:
    """A simple or LSTM cell: one product makes all its gates.

    Args:
        gates: of the cell.
        inputs: `(T, B, ·)`, known before the loop.
        first: `(B, units)`, the output before the first step.
        trace: of the loop, which gets the first state after each step as `name`.
        fed: returns, after the loop, the inputs `fed` of all steps, each `(T, B, ·)`.

    Attributes:
        steps: inputs of the loop by name, `(T, B, ·)`; `step` takes a row of them.
        state_dtype: of the states in the loop.
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
        # Half precision is for products alone: a state that adds up keeps its small parts.
        half = self._dtype in ("float16", "bfloat16")
        self.state_dtype = "float32" if half else self._dtype
        of_inputs, of_fed = ops.cast(gates.kernel, self._dtype), None
        recurrent = ops.cast(gates.recurrent_kernel, self._dtype)
        bias = ops.cast(gates.bias, self._dtype)
        if of_inputs.shape[0] > inputs.shape[-1]:
            # Split, not sliced: the gradient of a slice is a tensor of zeros around it.
            of_inputs, of_fed = ops.split(of_inputs, [inputs.shape[-1]], axis=0)
        self.steps: dict[str, Tensor] = {}
        parameters, bias = self._prepare(inputs, of_fed, recurrent, bias)
        products = ops.matmul(ops.cast(inputs, self._dtype), of_inputs) + bias
        self.steps["gates"] = deferred(products, parameters, self._gradients)

    def _prepare(
        self, inputs: Tensor, of_fed: Tensor | None, recurrent: Tensor, bias: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """Return the parameters with deferred gradients, and the bias of the inputs' products."""
        self._kernel = recurrent if of_fed is None else ops.concatenate([of_fed, recurrent], axis=0)
        self._times = constant_product(self._kernel)
        return [self._kernel], bias

    def beside(self, *others: Cell) -> Cell:
        """Return a cell whose step is that of this one and of others, `(cells, B, ·)`."""
        cell = copy.copy(self)
        cell._times = constant_product(ops.stack([each._kernel for each in (self, *others)]))
        return cell

    def _gradients(self, gates: Tensor) -> list[Tensor]:
        return [outer(join([*self._fed(), self._before()]), gates)]

    def _before(self) -> Tensor:
        return self._trace.before(self._name, self._first)

    def step(self, row: dict[str, Tensor], fed: list[Tensor], state: list[Tensor]) -> list[Tensor]:
        """Take a step, with a row of `steps`, the rest of the cell's input and its states."""
        fed = [*fed, ops.cast(state[0], self._dtype)]
        gates = ops.cast(row["gates"] + self._times(join(fed)), self.state_dtype)
        if self._gates.kind == "lstm":
            return lstm_step(self._gates, gates, state)
        return [self._gates.activation(gates)]


class GRU(Cell):
    """A GRU cell, whose reset gate stands between the recurrent product and the candidate.

    So the candidate's part of that product has a gradient of its own. The other gates have one
    bias, the sum of both.
    """

    def _prepare(
        self, inputs: Tensor, of_fed: Tensor | None, recurrent: Tensor, bias: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        self._kernel, self._times = recurrent, constant_product(recurrent)
        self._times_fed = None if of_fed is None else constant_product(of_fed)
        units = recurrent.shape[0]
        of_gates, of_candidate = ops.split(recurrent, [2 * units], axis=-1)
        self._times_both = None
        if of_fed is not None and backend.for_gpu():
            # One product in place of two; zeros keep the candidate's two parts apart.
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
        """Take a step: see `Cell.step`."""
        h, gates = ops.cast(state[0], self._dtype), row["gates"]
        if self._times_both:
            units = h.shape[-1]
            both = self._times_both(join([*fed, h]))
            of_gates, of_candidate = ops.split(both, [3 * units], axis=-1)
            gates, inner = gates + of_gates, ops.pad(of_candidate, [[0, 0], [2 * units, 0]])
        else:
            gates = gates + self._times_fed(join(fed)) if self._times_fed else gates
            inner = self._times(h)
        gates, inner = ops.cast(gates, self.state_dtype), ops.cast(inner, self.state_dtype)
        *others, candidate = ops.split(inner, 3, axis=-1)
        candidate = candidate + ops.cast(row["candidate"], self.state_dtype)
        return gru_step(self._gates, gates, [*others, candidate], state)


class Stack:
    """Cells above one another: each but the first gets the output of that below in the same step.

    Arguments as those of `Cell`: gates and first states of all cells, bottom first; `inputs` and
    `fed` of the bottom one. The trace must get the first state of each under its name in `names`.
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
            # A cell above has no input that is known before its step.
            inputs, fed = inputs[..., :0], partial(lambda name: [trace[name]], name)
        self.top = self.starts[-1]  # the first state of the top cell, its output, among all
        self.steps = [cell.steps for cell in self._cells]
        self.state_dtype, self._dtype = self._cells[0].state_dtype, gates[0].dtype

    def step(self, row: list[Any], fed: list[Tensor], state: list[Tensor]) -> list[Tensor]:
        """Take a step: see `Cell.step`."""
        new: list[Tensor] = []
        ends = [*self.starts[1:], len(state)]
        for cell, inputs, start, end in zip(self._cells, row, self.starts, ends, strict=True):
            states = cell.step(inputs, fed, state[start:end])
            fed = [ops.cast(states[0], self._dtype)]
            new += states
        return new


def hoisted_cell(gates: Gates, *args: Any) -> Cell:
    """Return the form of a cell in a loop; arguments as those of `Cell`."""
    return (GRU if gates.kind == "gru" else Cell)(gates, *args)


def gru_step(of: Gates, gates: Tensor, inner: list[Tensor], state: list[Tensor]) -> list[Tensor]:
    """Cho et al. 2014 (arXiv 1406.1078), with the reset gate after the product, as cuDNN has it."""
    (h,) = state
    gates_update, gates_reset, gates_candidate = ops.split(gates, 3, axis=-1)
    inner_update, inner_reset, inner_candidate = inner
    update = of.recurrent_activation(gates_update + inner_update)
    reset = of.recurrent_activation(gates_reset + inner_reset)
    candidate = of.activation(gates_candidate + reset * inner_candidate)
    return [candidate + update * (h - candidate)]


def lstm_step(of: Gates, gates: Tensor, state: list[Tensor]) -> list[Tensor]:
    """Hochreiter and Schmidhuber 1997, with forget gate, in Keras's order of gates."""
    (_, c) = state
    gates_input, gates_forget, gates_candidate, gates_output = ops.split(gates, 4, axis=-1)
    added = of.recurrent_activation(gates_input) * of.activation(gates_candidate)
    c = of.recurrent_activation(gates_forget) * c + added
    return [of.recurrent_activation(gates_output) * of.activation(c), c]


def join(parts: list[Tensor]) -> Tensor:
    """Join tensors along the last axis."""
    return parts[0] if len(parts) == 1 else ops.concatenate(parts, axis=-1)
