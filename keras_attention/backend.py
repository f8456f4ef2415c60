"""The one file that knows backends: loops over time steps, and what XLA compiles.

`keras.ops.scan` on TensorFlow copies the carry through TensorArrays and wants every output to look
like the carry, so each backend gets the loop that it does well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import keras
from keras import ops, tree

Tensor = Any

SMALL = 2**16  # products that one thread makes before two have shared them out


def scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    state: Any,
    inputs: Any,
    output_dtypes: Any,
) -> tuple[Any, Any]:
    """Call `step` for each time step in turn.

    Args:
        step: `(inputs at t, state) -> (outputs at t, state)`. Shapes and dtypes of the state stay.
        state: structure of tensors.
        inputs: structure of tensors with time as the first axis; every leaf is `(T, ...)`.
        output_dtypes: structure of dtype names, alike to the outputs of `step`.

    Returns:
        The outputs of all steps, stacked to `(T, ...)`, and the last state.
    """
    if keras.backend.backend() == "tensorflow":
        return _scan_tensorflow(step, state, inputs, output_dtypes)
    if keras.backend.backend() == "jax":
        import jax

        last, outputs = jax.lax.scan(lambda s, x: step(x, s)[::-1], state, inputs)
        return outputs, last
    outputs = []
    for t in range(tree.flatten(inputs)[0].shape[0]):
        output, state = step(tree.map_structure(lambda x, t=t: x[t], inputs), state)
        outputs.append(output)
    return tree.map_structure(lambda *xs: ops.stack(xs), *outputs), state


def unfold(
    step: Callable[[Tensor, Any], tuple[Any, Any]],
    state: Any,
    done: Callable[[Any], Tensor],
    max_length: int | Tensor,
    output_dtypes: Any,
    pause: Callable[[Any], Tensor] | None = None,
    resume: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any, Tensor]:
    """Call `step` until the state is done or `max_length` steps are taken.

    Args:
        step: `(t, state) -> (outputs at t, state)`. Dtypes and ranks of the state stay.
        state: structure of tensors.
        done: `state -> ()` boolean tensor.
        max_length: greatest number of steps; a Python integer on JAX and for XLA.
        output_dtypes: structure of dtype names, alike to the outputs of `step`.
        pause: `state -> ()` boolean tensor: whether the state goes through `resume` now.
        resume: `state -> state`, which may change the size of first axes. Both where
            `shapes_may_change` alone.

    Returns:
        The outputs stacked to `(T, ...)`, the last state, and the number of steps taken. `T` is the
        number of steps taken; on JAX, and on TensorFlow where XLA compiles, it is `max_length`
        with zeros after the last step taken.
    """
    if keras.backend.backend() == "tensorflow":
        return _unfold_tensorflow(step, state, done, max_length, output_dtypes, pause, resume)
    if keras.backend.backend() == "jax":
        return _unfold_jax(step, state, done, max_length)
    outputs, t = [], 0
    while t < int(max_length) and not (t and bool(done(state))):
        output, state = step(ops.convert_to_tensor(t, "int32"), state)
        if pause and bool(pause(state)):
            state = resume(state)
        outputs.append(output)
        t += 1
    return tree.map_structure(lambda *xs: ops.stack(xs), *outputs), state, t


def project(x: Tensor, kernel: Tensor) -> Tensor:
    """Return the product of `(..., m)` and a kernel `(m, n)` or `(m,)`.

    That of `keras.ops` puts a transposition between, on TensorFlow, whose gradient XLA cannot
    compile in a loop where lengths are unknown as it is traced. A product of batches, with the
    kernel broadcast over those of shape (B, 1), crashes TensorFlow 2.21 on AVX-512 processors.
    """
    if keras.backend.backend() != "tensorflow" or isinstance(x, keras.KerasTensor):
        return ops.matmul(x, kernel)
    import tensorflow as tf

    rows = tf.reshape(x, [-1, x.shape[-1]])
    columns = tf.reshape(kernel, [x.shape[-1], -1])
    return tf.reshape(rows @ columns, tf.concat([tf.shape(x)[:-1], tf.shape(kernel)[1:]], 0))


def average(weights: Tensor, value: Tensor) -> Tensor:
    """Return the product of weights `(..., n, S)` and values `(..., S, dv)`.

    On TensorFlow a search for one sentence asks for products so small that handing them out to
    threads costs more than they do: 0.12 ms for one row of 12 x 512, against 0.02 on one thread.
    """
    if keras.backend.backend() != "tensorflow" or None not in weights.shape[:-2] or under_xla():
        return ops.matmul(weights, value)
    import tensorflow as tf

    size = tf.size(weights) * value.shape[-1]
    return tf.cond(
        size <= SMALL,
        lambda: tf.reduce_sum(weights[..., None] * tf.expand_dims(value, -3), -2),
        lambda: tf.matmul(weights, value),
    )


def gather(x: Tensor, index: Tensor) -> Tensor:
    """Return the rows `index`, none of them negative, of `x` `(n, ...)`.

    On TensorFlow one operation, where `keras.ops.take` has six: in a step of a search they count.
    """
    if keras.backend.backend() != "tensorflow":
        return ops.take(x, index, axis=0)
    import tensorflow as tf

    return tf.gather(ops.convert_to_tensor(x), index)


def gather_in_rows(x: Tensor, index: Tensor) -> Tensor:
    """Return `(B, k, ...)`, the elements `index` `(B, k)`, none negative, of `x` `(B, n, ...)`.

    On TensorFlow one operation, where `keras.ops.take_along_axis` has 20 and copies `x`.
    """
    if keras.backend.backend() != "tensorflow":
        index = ops.reshape(index, (*ops.shape(index), *[1] * (len(x.shape) - 2)))
        return ops.take_along_axis(x, index, axis=1)
    import tensorflow as tf

    return tf.gather(x, index, batch_dims=1)


def shapes_may_change() -> bool:
    """Whether the state of `unfold` may change its sizes from step to step."""
    return not under_xla()


def under_xla() -> bool:
    """Whether XLA compiles what is being computed: always on JAX, if asked for on TensorFlow."""
    if keras.backend.backend() != "tensorflow":
        return keras.backend.backend() == "jax"
    import tensorflow as tf
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

    return GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def in_loop() -> bool:
    """Whether a step of a loop is being traced on TensorFlow."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf
    from tensorflow.python.ops.control_flow_util_v2 import in_while_loop_defun

    graph = tf.compat.v1.get_default_graph()
    while graph is not None and not in_while_loop_defun(graph):
        graph = getattr(graph, "outer_graph", None)
    return graph is not None


def compiles(tensors: list[Tensor]) -> bool:
    """Whether to compile a function of `(B, T, dim)` tensors by XLA where the whole is not.

    On TensorFlow alone. Each new shape is compiled anew, which takes seconds: only for known
    lengths, and never eagerly. The batch may be unknown where a gradient is recorded; in training
    it rarely changes. What is exported must not need XLA: a function that is traced for its own
    sake, without a call, does not get it. One that was called before with the shapes of its
    signature has it already.
    """
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf
    from tensorflow.python.eager import record

    sequences = [x for x in tensors if len(x.shape) == 3]
    if tf.executing_eagerly() or any(x.shape[1] is None for x in sequences):
        return False
    recorded = record.could_possibly_record() and record.should_record_backprop(tensors)
    batch_known = all(x.shape[0] is not None for x in sequences)
    return (batch_known or recorded) and not _traced_for_export()


def fuses_sums() -> bool:
    """Whether XLA computes what is summed over an axis in the loop that sums it.

    JAX's XLA on CPU stores it first, part by part: there a product that sums it is faster.
    """
    if keras.backend.backend() != "jax":
        return True
    import jax

    return jax.default_backend() != "cpu"


def _traced_for_export() -> bool:
    """Whether `get_concrete_function`, on which every way to export rests, asks for the trace."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "get_concrete_function":
        frame = frame.f_back
    return frame is not None


def compiled(function: Callable) -> Callable:
    """The function, compiled by XLA on TensorFlow."""
    import tensorflow as tf

    return tf.function(function, jit_compile=True, autograph=False)


def _scan_tensorflow(step, state, inputs, output_dtypes):
    import tensorflow as tf

    first = tree.flatten(inputs)[0]
    length = first.shape[0] if first.shape[0] is not None else tf.shape(first)[0]

    def array(dtype: str, shape: Any = None) -> tf.TensorArray:
        return tf.TensorArray(dtype, length, element_shape=shape)

    # TensorArrays on both sides: their gradients are per step, those of slices are whole tensors.
    flat_inputs = [array(x.dtype, x.shape[1:]).unstack(x) for x in tree.flatten(inputs)]
    flat_outputs = [array(dtype) for dtype in tree.flatten(output_dtypes)]
    flat_state = [tf.convert_to_tensor(x) for x in tree.flatten(state)]

    def body(t, flat_state, flat_outputs):
        now = tree.pack_sequence_as(inputs, [x.read(t) for x in flat_inputs])
        output, new = step(now, tree.pack_sequence_as(state, flat_state))
        new = tree.flatten(new)
        for x, old in zip(new, flat_state, strict=True):
            x.set_shape(old.shape)
        written = [a.write(t, x) for a, x in zip(flat_outputs, tree.flatten(output), strict=True)]
        return t + 1, new, written

    _, last, outputs = tf.while_loop(
        lambda t, *_: t < length,
        body,
        (tf.constant(0), flat_state, flat_outputs),
        maximum_iterations=length,
    )
    stacked = [a.stack() for a in outputs]
    return tree.pack_sequence_as(output_dtypes, stacked), tree.pack_sequence_as(state, last)


def _unfold_tensorflow(step, state, done, max_length, output_dtypes, pause, resume):
    import tensorflow as tf

    flat_state = [tf.convert_to_tensor(x) for x in tree.flatten(state)]
    # Batches may change size between steps, where XLA does not forbid it; the rest may not.
    free = 0 if under_xla() else 1
    known = [tf.TensorShape([None] * len(x.shape[:free]) + x.shape[free:]) for x in flat_state]
    flat_outputs = [
        tf.TensorArray(dtype, max_length, infer_shape=False)
        for dtype in tree.flatten(output_dtypes)
    ]
    invariants = (tf.TensorShape([]), known, [tf.TensorShape(None) for _ in flat_outputs])
    shapes = []  # of the outputs, known once the body is traced

    def pack(flat):
        return tree.pack_sequence_as(state, flat)

    def flatten(new):
        flat = [tf.convert_to_tensor(x) for x in tree.flatten(new)]
        for x, shape in zip(flat, known, strict=True):
            x.set_shape(shape)
        return flat

    def body(t, flat_state, flat_outputs):
        output, new = step(t, pack(flat_state))
        output = tree.flatten(output)
        shapes[:] = [x.shape for x in output]
        written = [a.write(t, x) for a, x in zip(flat_outputs, output, strict=True)]
        return t + 1, flatten(new), written

    def until_pause(*carry):
        # A loop in the loop: steps without a pause have nothing to do with pauses.
        first = carry[0]
        t, flat_state, flat_outputs = tf.while_loop(
            lambda t, state, _: (t < max_length) & ((t == first) | ~pause(pack(state))),
            body,
            carry,
            shape_invariants=invariants,
        )
        return t, flatten(resume(pack(flat_state))), flat_outputs

    steps, last, outputs = tf.while_loop(
        lambda t, flat_state, _: tf.logical_or(t == 0, tf.logical_not(done(pack(flat_state)))),
        until_pause if pause else body,
        (tf.constant(0), flat_state, flat_outputs),
        shape_invariants=invariants,
        maximum_iterations=max_length,
    )
    if under_xla():
        stacked = [a.stack() for a in outputs]
    else:
        stacked = [a.gather(tf.range(steps)) for a in outputs]
    for x, shape in zip(stacked, shapes, strict=True):
        x.set_shape([None, *shape])
    return tree.pack_sequence_as(output_dtypes, stacked), pack(last), steps


def _unfold_jax(step, state, done, max_length):
    import jax
    from jax import numpy as jnp

    shapes = jax.eval_shape(step, jnp.int32(0), state)[0]
    outputs = jax.tree.map(lambda x: jnp.zeros((max_length, *x.shape), x.dtype), shapes)

    def proceed(carry):
        t, state, _ = carry
        return (t < max_length) & ((t == 0) | ~done(state))

    def body(carry):
        t, state, outputs = carry
        output, state = step(t, state)
        return t + 1, state, jax.tree.map(lambda a, x: a.at[t].set(x), outputs, output)

    steps, state, outputs = jax.lax.while_loop(proceed, body, (jnp.int32(0), state, outputs))
    return outputs, state, steps
