"""Products in a loop whose kernels get their gradients after it.

Automatic differentiation adds the gradient of a kernel up step by step, at the cost of reading and
writing the whole kernel each time. It is a sum over steps of small outer products: one large
product does it, once all steps are known.

In the loop a kernel is constant, see `constant_product`: it gets no gradient there. The term that
is added to the product at each step, an input of the loop, is `deferred`: its gradient is the
gradient of the product at all steps, from which the kernel's is made. Both can be differentiated
repeatedly in reverse mode.

JAX traces a gradient before the loop has run: there a product is a product, and nothing is
deferred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from keras import ops

from keras_attention import backend

Tensor = Any


class Trace:
    """The results of a loop's steps, by name `(T, B, ·)`, for the gradients after the loop."""

    def __init__(self) -> None:
        self._steps: dict[str, Tensor] = {}

    def fill(self, steps: dict[str, Tensor]) -> None:
        """Keep the results of the loop."""
        self._steps = steps

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._steps:  # forward mode asks for gradients as it goes
            raise NotImplementedError(
                "Forward mode expected a loop that has its gradients step by step: take the "
                "derivative within keras_attention.fast_paths(False). Received: the fast loop"
            )
        return self._steps[name]

    def before(self, name: str, first: Tensor) -> Tensor:
        """Return the result before each step: `first` `(B, ·)`, then that of the step before."""
        steps = self[name]
        return ops.concatenate([first[None], steps[:-1]], axis=0) if steps.shape[0] != 0 else steps


def constant_product(y: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the product of `(..., n, m)` with `y` `(..., m, k)` that gives `y` no gradient.

    Its gradient is a product with the transpose. In float32 that of a matrix is taken once, here:
    a few rows times a transpose that is taken on the way cost three times as much (64 rows,
    512 x 2048: 4.8 ms of processor time against 1.7). In half precision they are as quick.
    """
    if not backend.is_tensorflow():
        return lambda x: ops.matmul(x, y)
    y = ops.copy(y)  # of the graph that holds the loop, whose gradients may not capture others
    constant = ops.stop_gradient(y)
    transposed = ops.transpose(y) if len(y.shape) == 2 and y.dtype == "float32" else None

    def times(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        def gradient(g: Tensor) -> Tensor:
            if transposed is None:
                return backend.times_transposed(g, y)
            return ops.matmul(g, transposed)

        return backend.saved(ops.matmul, x, constant), gradient

    product: Callable[[Tensor], Tensor] = ops.custom_gradient(times)
    return product


def deferred(
    x: Tensor, parameters: list[Tensor], gradients: Callable[[Tensor], list[Tensor]]
) -> Tensor:
    """Return `x`; give `parameters` the `gradients` that the gradient of `x` implies."""
    if not backend.is_tensorflow():
        return x

    def identity(
        x: Tensor, *parameters: Tensor
    ) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, ...]]]:
        return x, lambda g: (g, *gradients(g))

    return ops.custom_gradient(identity)(x, *parameters)


def outer(a: Tensor, b: Tensor) -> Tensor:
    """Return the sum of outer products over all steps: `(T, B, m)`, `(T, B, n)` to `(m, n)`."""
    a = ops.reshape(a, (-1, a.shape[-1]))
    return ops.matmul(ops.transpose(a), ops.reshape(b, (-1, b.shape[-1])))
