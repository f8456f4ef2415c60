"""JAX's own ways: see `generic.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import numpy as jnp
from keras import ops

from keras_attention.backend import generic

Tensor = Any


def scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
    inputs: Any,
    output_dtypes: Any,
) -> tuple[Any, Any]:
    """Call `step` for each time step in turn: see `generic.scan`."""
    last, outputs = jax.lax.scan(lambda s, x: step(x, s)[::-1], state, inputs)
    return outputs, last


def unfold(
    step: Callable[[Tensor, Any], tuple[Any, Any]],
    state: Any,
    done: Callable[[Any], Tensor],
    max_length: int | Tensor,
    pause: Callable[[Any], Tensor] | None = None,
    resume: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any, Tensor]:
    """Call `step` until the state is done: see `generic.unfold`."""
    shapes = jax.eval_shape(step, jnp.int32(0), state)[0]
    outputs = jax.tree.map(lambda x: jnp.zeros((max_length, *x.shape), x.dtype), shapes)

    def proceed(carry: tuple[Any, ...]) -> Any:
        t, state, _ = carry
        return (t < max_length) & ((t == 0) | ~done(state))

    def body(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        t, state, outputs = carry
        output, state = step(t, state)
        return t + 1, state, jax.tree.map(lambda a, x: a.at[t].set(x), outputs, output)

    steps, state, outputs = jax.lax.while_loop(proceed, body, (jnp.int32(0), state, outputs))
    return outputs, state, steps


def project(x: Tensor, kernel: Tensor) -> Tensor:
    """Return the product of `(..., m)` and a kernel `(m, n)` or `(m,)`.

    With a vector it is a sum where XLA makes `x` in the loop that sums it; a product would store
    `x`, and round it to TF32 on a GPU.
    """
    if len(kernel.shape) == 1 and fuses_sums():
        return ops.sum(x * kernel, axis=-1)
    return generic.project(x, kernel)


def is_eager() -> bool:
    """Whether operations run as they are called: within `jit` and its like they give tracers."""
    return not isinstance(jnp.zeros(()), jax.core.Tracer)


def under_xla() -> bool:
    """Whether XLA compiles what is being computed: always."""
    return True


def fuses_sums() -> bool:
    """Whether XLA computes what is summed over an axis in the loop that sums it.

    On CPU it stores that first, part by part: there a product that sums it is faster.
    """
    return bool(jax.default_backend() != "cpu")
