"""TensorFlow's versions of functions in `_generic.py`, which documents them.

`keras.ops.scan` is not used: it copies the carry through TensorArrays, and needs outputs of the
carry's form.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import keras
import tensorflow as tf
from keras import ops, tree

from keras_attention.backend import _generic as generic
from keras_attention.backend import _gpu_scan, _tensorflow_additive
from keras_attention.backend._generic import PLAIN_GRAPH, STEPS, Step
from keras_attention.shapes import Tensor

# Returns whether a graph is compiled by XLA. TensorFlow has no public function for this. If a
# version of TensorFlow lacks this one, `under_xla` is False everywhere: nothing here is adapted to
# XLA.
try:
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext
except ImportError:
    GraphOrParentsInXlaContext = None


# The device, "gpu" or "cpu", for which a step of `scan` or `unfold` is being traced; "" if none is.
_step_device: ContextVar[str] = ContextVar("step_device", default="")

SMALL = 2**16  # up to so many multiplications, one thread is faster than several
# Additive scores of sizes `B · Tq · Tv · units` up to this, or twice this under XLA, use the
# plain formula.
LARGEST_FORMULA = 2**20
USUAL_BATCH = 64  # assumed for an unknown batch size


@contextlib.contextmanager
def _tracing_steps(gpu: bool) -> Iterator[None]:
    """Record within a `with` block that a step is being traced, and for which device."""
    token = _step_device.set("gpu" if gpu else "cpu")
    try:
        yield
    finally:
        _step_device.reset(token)


def in_gpu_loop() -> bool:
    """Return whether a step of `scan` or `unfold` is being traced, for XLA on a GPU."""
    return _step_device.get() == "gpu"


def under_xla() -> bool:
    """Return whether XLA compiles the current graph, of a function with `jit_compile=True`."""
    is_in_xla = GraphOrParentsInXlaContext
    return is_in_xla is not None and bool(is_in_xla(tf.compat.v1.get_default_graph()))


def on_gpu() -> bool:
    """Return whether TensorFlow has a GPU; `generic.wanted_device` overrides the result."""
    device = generic.wanted_device()
    return device == "gpu" if device else bool(tf.config.list_physical_devices("GPU"))


def for_gpu() -> bool:
    """Return whether XLA compiles the current computation for a GPU."""
    return under_xla() and on_gpu()


def scan(step: Step, state: Any, inputs: Any, output_dtypes: Any) -> tuple[Any, Any]:
    """Call `step` for each time step in turn: see `generic.scan`."""
    if for_gpu():
        found = _gpu_scan.scan(_tracing_steps(gpu=True)(step), state, inputs, output_dtypes)
        if found is not None:
            return found
    rows = tree.flatten(inputs)
    length = tf.shape(rows[0])[0] if rows[0].shape[0] is None else rows[0].shape[0]
    # TensorArrays for inputs and outputs: the gradient of a row of an array is a row. The gradient
    # of a slice of a tensor would be a whole tensor.
    flat_inputs = [
        tf.TensorArray(x.dtype, length, element_shape=x.shape[1:]).unstack(x) for x in rows
    ]
    flat_outputs = [tf.TensorArray(dtype, length) for dtype in tree.flatten(output_dtypes)]
    flat_state = [tf.convert_to_tensor(x) for x in tree.flatten(state)]

    def body(t: Tensor, flat_state: list[Tensor], flat_outputs: list[Any]) -> tuple[Any, ...]:
        row = tree.pack_sequence_as(inputs, [x.read(t) for x in flat_inputs])
        output, new = step(row, tree.pack_sequence_as(state, flat_state))
        new = tree.flatten(new)
        for x, old in zip(new, flat_state, strict=True):
            x.set_shape(old.shape)
        written = [a.write(t, x) for a, x in zip(flat_outputs, tree.flatten(output), strict=True)]
        return t + 1, new, written

    first = tf.constant(0), flat_state, flat_outputs
    with _tracing_steps(gpu=False):
        _, last, outputs = tf.while_loop(
            lambda t, *_: t < length, body, first, maximum_iterations=length
        )
    stacked = [a.stack() for a in outputs]
    return tree.pack_sequence_as(output_dtypes, stacked), tree.pack_sequence_as(state, last)


def unfold(
    step: Step, state: Any, done: Any, max_length: Any, pause: Any = None, resume: Any = None
) -> tuple[Any, Any, Any]:
    """Call `step` until the state is done: see `generic.unfold`."""
    if tf.executing_eagerly():
        return generic.unfold(step, state, done, max_length, pause, resume)
    flat_state = [tf.convert_to_tensor(x) for x in tree.flatten(state)]
    # Between steps, only the batch axis may change its size, and only without XLA.
    free = 0 if under_xla() else 1
    shapes_in_loop = [
        tf.TensorShape([None] * len(x.shape[:free]) + x.shape[free:]) for x in flat_state
    ]

    def pack(flat: Sequence[Tensor]) -> Any:
        return tree.pack_sequence_as(state, flat)

    def flatten(new: Any) -> list[Tensor]:
        flat = [tf.convert_to_tensor(x) for x in tree.flatten(new)]
        for x, shape in zip(flat, shapes_in_loop, strict=True):
            x.set_shape(shape)
        return flat

    # The step is traced once, before the loop: the loop needs the shapes of its outputs.
    @tf.function(**PLAIN_GRAPH)
    def traced(t: Tensor, *flat_state: Tensor) -> tuple[Any, list[Tensor]]:
        with _tracing_steps(for_gpu()):
            output, new = step(t, pack(flat_state))
        return output, flatten(new)

    specs = [tf.TensorSpec(s, x.dtype) for s, x in zip(shapes_in_loop, flat_state, strict=True)]
    traced = traced.get_concrete_function(tf.TensorSpec([], tf.int32), *specs)
    output_specs = traced.structured_outputs[0]
    shapes = [x.shape for x in tree.flatten(output_specs)]
    # On a GPU, a few superfluous steps take less time than a decision of the host after each step.
    together = STEPS if for_gpu() else 1
    iterations = max_length if together == 1 else -(-max_length // together)
    flat_outputs = [
        tf.TensorArray(x.dtype, iterations, infer_shape=False) for x in tree.flatten(output_specs)
    ]
    invariants = (tf.TensorShape([]), shapes_in_loop, [tf.TensorShape(None) for _ in flat_outputs])

    def body(t: Tensor, flat_state: list[Tensor], flat_outputs: list[Any]) -> tuple[Any, ...]:
        steps = []
        for i in range(together):
            output, flat_state = traced(t + i if i else t, *flat_state)
            steps.append(tree.flatten(output))
        row, values = t, steps[0]
        if together > 1:
            # (together, …) each
            row, values = t // together, [tf.stack(x) for x in zip(*steps, strict=True)]
        written = [a.write(row, x) for a, x in zip(flat_outputs, values, strict=True)]
        return t + together, flatten(flat_state), written

    def until_pause(*carry: Any) -> tuple[Any, ...]:
        assert pause is not None
        assert resume is not None
        # An inner loop for the steps between two pauses: its tensors keep their sizes.
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
        maximum_iterations=iterations,
    )
    if under_xla():
        stacked = [a.stack() for a in outputs]
        if together > 1:
            # (iterations, together, …) to (iterations · together, …)
            stacked = [tf.reshape(x, tf.concat([[-1], tf.shape(x)[2:]], 0)) for x in stacked]
            stacked, steps = [x[:max_length] for x in stacked], tf.minimum(steps, max_length)
    else:
        stacked = [a.gather(tf.range(steps)) for a in outputs]
    for x, shape in zip(stacked, shapes, strict=True):
        x.set_shape([None, *shape])
    return tree.pack_sequence_as(output_specs, stacked), pack(last), steps


def is_concrete(x: Tensor) -> bool:
    """Whether the values of a tensor can be read."""
    return bool(tf.executing_eagerly())


def additive(query: Tensor, key: Tensor, scale: Tensor, training: bool) -> Tensor | None:
    """Return additive scores without the formula's tensor: see `generic.additive`."""
    if tf.executing_eagerly() or _step_device.get():
        return None
    compiled = under_xla()
    size = generic.count_hidden(query, key, USUAL_BATCH if training or compiled else 0)
    if size <= (2 if compiled else 1) * LARGEST_FORMULA:
        return None
    if query.shape[0] is None:
        batch = tf.maximum(tf.shape(query)[0], tf.shape(key)[0])  # one batch size may be 1
        query, key = (tf.broadcast_to(x, [batch, *x.shape[1:]]) for x in (query, key))
    return _tensorflow_additive.additive(query, key, scale)


def project(x: Tensor, kernel: Tensor) -> Tensor:
    """Return the product of `(..., m)` and a kernel `(m, n)` or `(m,)`.

    `x` is reshaped to one matrix. `keras.ops.matmul` would add a transposition whose gradient XLA
    cannot compile in a loop of unknown length. A batched product, with the kernel broadcast over
    batches (B, 1), crashes TensorFlow 2.21 on AVX-512 processors.
    """
    if isinstance(x, keras.KerasTensor):
        return ops.matmul(x, kernel)
    rows = tf.reshape(x, [-1, x.shape[-1]])  # (rows, m)
    columns = tf.reshape(kernel, [x.shape[-1], -1])  # (m, n), or (m, 1)
    return tf.reshape(rows @ columns, tf.concat([tf.shape(x)[:-1], tf.shape(kernel)[1:]], 0))


def average(weights: Tensor, value: Tensor) -> Tensor:
    """Return the product of weights `(..., n, S)` and values `(..., S, dv)`.

    In a search for one sentence, the products are small. Dividing them among threads takes longer
    than the products: for one row of 12 x 512, 0.12 ms against 0.02 ms on one thread.
    """
    if None not in weights.shape[:-2] or under_xla():
        return ops.matmul(weights, value)
    size = tf.size(weights, tf.int64) * value.shape[-1]  # in int32, 2³¹ would be negative
    return tf.cond(
        size <= SMALL,
        # (…, n, S, 1) times (…, 1, S, dv), summed over S
        lambda: tf.reduce_sum(tf.expand_dims(weights, -1) * tf.expand_dims(value, -3), -2),
        lambda: tf.matmul(weights, value),
    )


def gather(x: Tensor, index: Tensor) -> Tensor:
    """Return rows: see `generic.gather`. `keras.ops.take` would need six operations, not one."""
    return tf.gather(ops.convert_to_tensor(x), index)


def gather_in_rows(x: Tensor, index: Tensor) -> Tensor:
    """Return rows: see `generic.gather_in_rows`. `keras.ops.take_along_axis` would copy `x`."""
    return tf.gather(x, index, batch_dims=1)


def take_in_rows(x: Tensor, index: Tensor) -> Tensor:
    """Return elements: see `generic.take_in_rows`.

    TensorFlow's own gradient counts all elements of `x` in int32.
    """

    @tf.custom_gradient
    def take(x: Tensor) -> tuple[Tensor, Any]:
        batch, time, size = ops.shape(x)
        shape = batch, time, ops.shape(index)[-1]
        rows = tf.reshape(tf.broadcast_to(tf.expand_dims(index, 1), shape), (-1, shape[-1]))
        taken = tf.gather(tf.reshape(x, (-1, size)), rows, batch_dims=1)  # (B·T, S)
        return tf.reshape(taken, shape), lambda g: add_in_rows(g, index, size)

    return take(x)


def add_in_rows(x: Tensor, index: Tensor, size: int | Tensor) -> Tensor:
    """Return sums of `x` by index: see `generic.add_in_rows`."""
    batch, time, _ = ops.shape(x)
    rows, size_64 = tf.cast(batch * time, tf.int64), tf.cast(size, tf.int64)
    first = tf.reshape(tf.range(rows) * size_64, (batch, time, 1))
    flat = first + tf.cast(tf.expand_dims(index, 1), tf.int64)  # (B, T, S), places in the result
    total = tf.math.unsorted_segment_sum(
        tf.reshape(x, [-1]), tf.reshape(flat, [-1]), rows * size_64
    )
    return tf.reshape(total, (batch, time, size))  # (B, T, size)


def checkpoint_arrays(path: str) -> dict[str, Any]:
    """Return the arrays of a `tf.train.Checkpoint` by their names in it."""
    reader = tf.train.load_checkpoint(path)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
