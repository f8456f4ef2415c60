"""JAX's versions of functions in `_generic.py`, which documents them."""

from __future__ import annotations

from typing import Any

import jax
from jax import numpy as jnp
from keras import ops

from keras_attention.backend import _generic as generic
from keras_attention.backend._generic import STEPS, Step
from keras_attention.shapes import Tensor

# Additive scores of sizes `B · Tq · Tv · units` up to these use the plain formula.
LARGEST_FORMULA, LARGEST_ON_GPU = 2**18, 2**26


def scan(step: Step, state: Any, inputs: Any, output_dtypes: Any) -> tuple[Any, Any]:
    """Call `step` for each time step in turn: see `generic.scan`."""

    def advance(state: Any, row: Any) -> tuple[Any, Any]:
        return step(row, state)[::-1]

    if for_gpu():  # the gradient computes each step again: storing each value needs a kernel
        last, outputs = jax.lax.scan(jax.checkpoint(advance), state, inputs, unroll=STEPS)
    else:
        last, outputs = jax.lax.scan(advance, state, inputs)
    return outputs, last


def unfold(
    step: Step, state: Any, done: Any, max_length: Any, pause: Any = None, resume: Any = None
) -> tuple[Any, Any, Any]:
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


def add_in_rows(x: Tensor, index: Tensor, size: int) -> Tensor:
    """Return sums of `x` by index: see `generic.add_in_rows`."""

    def add(x: Tensor, index: Tensor) -> Tensor:  # (T, S), (S,) to (T, size)
        return jnp.zeros((x.shape[0], size), x.dtype).at[:, index].add(x)

    return jax.vmap(add)(x, index)


def project(x: Tensor, kernel: Tensor) -> Tensor:
    """Return the product of `(..., m)` and a kernel `(m, n)` or `(m,)`.

    On a GPU, the product with a vector is written as a sum. XLA then computes `x` in the loop that
    sums it. A matrix product would store `x` and round it to TF32.
    """
    if len(kernel.shape) == 1 and on_gpu():
        return ops.sum(x * kernel, axis=-1)
    return generic.project(x, kernel)


def additive(query: Tensor, key: Tensor, scale: Tensor, training: bool) -> Tensor | None:
    """Return additive scores without the formula's tensor: see `generic.additive`.

    A CPU computes one query at a time, so that the keys stay in its caches. On a GPU, XLA fuses the
    sum of the formula with its terms. The gradients compute the terms again.
    """
    size = generic.count_hidden(query, key, 0)
    if size <= (LARGEST_ON_GPU if on_gpu() else LARGEST_FORMULA):
        return None
    if all(is_concrete(x) for x in (query, key, scale)):  # eager: XLA compiles each operation alone
        return None
    if on_gpu():

        @jax.checkpoint
        def formula(query: Tensor, key: Tensor, scale: Tensor) -> Tensor:
            return jnp.sum(jnp.tanh(query[:, :, None] + key[:, None]) * scale, -1)

        return formula(query, key, scale)

    @jax.checkpoint
    def row(query: Tensor, key: Tensor) -> Tensor:  # (units,), (Tv, units) to (Tv,)
        return jnp.tanh(query + key) @ scale

    def sentence(pair: tuple[Tensor, Tensor]) -> Tensor:
        queries, key = pair
        return jax.lax.map(lambda query: row(query, key), queries)

    return jax.lax.map(sentence, (query, key))


def is_concrete(x: Tensor) -> bool:
    """Return whether the values of a tensor can be read."""
    return not isinstance(x, jax.core.Tracer)


def under_xla() -> bool:
    """Return True: XLA compiles every computation of JAX."""
    return True


def on_gpu() -> bool:
    """Return whether JAX has a GPU; `generic.wanted_device` overrides the result."""
    device = generic.wanted_device()
    return device == "gpu" if device else bool(jax.default_backend() != "cpu")


for_gpu = on_gpu  # XLA compiles every computation
