"""TensorFlow's `scan` for XLA on a GPU, where the number of kernels determines the speed.

A kernel of a recurrent step computes for 1 to 5 microseconds, and takes as long to launch. To
launch fewer kernels:

- An iteration of the loop takes several steps. They share the iteration's reads, writes and
  counters.
- The gradient is a separate loop. Its number of iterations is known, so that no iteration waits for
  the host to decide whether to continue. The gradient reads the state before each step and computes
  the step again. Automatic differentiation would instead store each intermediate value with an own
  kernel. Expensive values are not computed again: `checkpointed` stores them.

The gradient has no derivative: a second derivative raises NotImplementedError.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from keras import tree

from keras_attention.backend._generic import PLAIN_GRAPH, STEPS, Step, settings, with_settings
from keras_attention.shapes import Tensor

# Operations that draw random numbers or write weights. A step with such an operation cannot be
# computed again: it would give other values.
_DRAWS = ("Assign", "Multinomial", "Random", "RngReadAndSkip", "TruncatedNormal")
_NO_SECOND_DERIVATIVE = (
    "A second derivative expected a loop that XLA does not compile for a GPU: leave jit_compile "
    "out, or set KERAS_ATTENTION_DEVICE=cpu. Received: a loop whose gradient has no derivative"
)


class _Checkpoints:
    """The values that `checkpointed` makes in a step, in order.

    Without `values`, `get` computes and stores each value. With `values`, `get` returns them in
    turn instead of computing.
    """

    def __init__(self, values: list[Tensor] | None = None) -> None:
        self.values = list(values or [])
        self._replays = values is not None

    def get(self, make: Callable[..., Tensor], *args: Any) -> Tensor:
        if self._replays:
            return self.values.pop(0)
        self.values.append(make(*args))
        return self.values[-1]


def checkpointed(make: Callable[..., Tensor], *args: Any) -> Tensor:
    """Return `make(*args)`; the gradient of `scan` reuses the value and does not recompute it."""
    values = settings.get().checkpoints
    return make(*args) if values is None else values.get(make, *args)


def scan(step: Step, state: Any, inputs: Any, output_dtypes: Any) -> tuple[Any, Any] | None:
    """Call `step` for each time step in turn: see `generic.scan`. T is at least 1.

    Returns None for a step that draws random numbers or writes weights: the gradient would compute
    the step again, with other values.
    """
    loop = _Loop(step, state, inputs)
    if loop.draws:
        return None
    length = loop.inputs[0].shape[0]
    length = tf.shape(loop.inputs[0])[0] if length is None else length
    rest = length % STEPS
    chunks = _Chunks(length // STEPS, STEPS)
    outputs, last = loop.run(loop.state, [x[: length - rest] for x in loop.inputs], chunks)
    if not (isinstance(rest, int) and rest == 0):
        more, last = loop.run(last, [x[length - rest :] for x in loop.inputs], _Chunks(rest, 1))
        outputs = [tf.concat(parts, 0) for parts in zip(outputs, more, strict=True)]
    return tree.pack_sequence_as(output_dtypes, outputs), tree.pack_sequence_as(state, last)


class _Traced:
    """A function of lists of tensors, traced once; each call copies the traced operations.

    So its Python code runs only once. Calling a `tf.function` instead would be wrong: in a called
    function, XLA treats the tensors that a loop captures as constants, and compiles again at each
    step.
    """

    def __init__(self, function: Callable[..., Any], specs: list[list[tf.TensorSpec]]) -> None:
        self._traced = tf.function(function, **PLAIN_GRAPH).get_concrete_function(*specs)
        self.definition = self._traced.graph.as_graph_def()
        nodes, given = self.definition.node, {x.op.name for x in self._traced.inputs}
        kept = [node for node in nodes if node.name not in given]  # XLA cannot compile placeholders
        del nodes[:]
        nodes.extend(kept)
        self._read = {name.partition(":")[0] for node in kept for name in node.input}
        self.captured = self._traced.captured_inputs
        self.variables = [x for x in self._traced.graph.variables if x.trainable]
        self.returned = self._traced.structured_outputs

    def __call__(self, *arguments: list[Tensor]) -> Any:
        graph, traced = tf.compat.v1.get_default_graph(), self._traced.graph
        given = zip(traced.inputs, (*tf.nest.flatten(arguments), *self.captured), strict=True)
        read = ((x.name, y) for x, y in given if x.op.name in self._read)
        copied = tf.graph_util.import_graph_def(
            self.definition,
            input_map={name: graph.capture(x) for name, x in read},
            return_elements=[x.name for x in traced.outputs],
            name="step",
        )
        for x, y in zip(copied, traced.outputs, strict=True):
            x.set_shape(y.shape)
        return tf.nest.pack_sequence_as(self.returned, copied)


class _Loop:
    """A loop whose step is traced as a function of lists of tensors.

    Attributes:
        state: the list of state tensors before the first step.
        inputs: the list of input tensors of all steps, each `(T, ...)`.
        tensors: the captured floating tensors: the step reads them, but they are no arguments.
        variables: trainable variables that the step reads.
        outputs: for each output of a step, a tensor of its shape and dtype.
        checkpoints: for each value that `checkpointed` makes in a step, a tensor of its shape and
            dtype.
        draws: whether the step draws random numbers or writes weights.
        as_output: maps the index of a state tensor to the index of an output that is the same
            tensor, so that the loop stores it once.
    """

    def __init__(self, step: Step, state: Any, inputs: Any) -> None:
        self._step, self._state, self._inputs = step, state, inputs
        self.state = [tf.convert_to_tensor(x) for x in tree.flatten(state)]
        self.inputs = [tf.convert_to_tensor(x) for x in tree.flatten(inputs)]
        self.as_output: dict[int, int] = {}

        def take(state: list[Tensor], inputs: list[Tensor]) -> Any:
            checkpoints = _Checkpoints()
            new, outputs = self.take(state, inputs, checkpoints)
            pairs = itertools.product(enumerate(new), enumerate(outputs))
            self.as_output.update({i: j for (i, x), (j, y) in pairs if y is x})
            return new, outputs, checkpoints.values

        specs = [tf.TensorSpec(x.shape, x.dtype) for x in self.state]
        self._forward = _Traced(take, [specs, _rows_of(self.inputs)])
        self.tensors = [x for x in self._forward.captured if x.dtype.is_floating]
        self.variables = self._forward.variables
        _, self.outputs, self.checkpoints = self._forward.returned
        self._backward: _Traced | None = None  # the gradient of a step
        graph = self._forward.definition
        nodes = itertools.chain(graph.node, *(each.node_def for each in graph.library.function))
        self.draws = any(node.op.startswith(_DRAWS) for node in nodes)

    def take(
        self, state: Any, inputs: Any, checkpoints: _Checkpoints
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the states after a step, and the outputs of the step, as lists."""
        with with_settings(checkpoints=checkpoints):
            outputs, new = self._step(
                tree.pack_sequence_as(self._inputs, list(inputs)),
                tree.pack_sequence_as(self._state, list(state)),
            )
        new = [tf.convert_to_tensor(x) for x in tree.flatten(new)]
        for x, old in zip(new, self.state, strict=True):
            x.set_shape(old.shape)
        return new, [tf.convert_to_tensor(x) for x in tree.flatten(outputs)]

    def run(
        self, state: list[Tensor], inputs: list[Tensor], chunks: _Chunks
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the outputs of all steps, `(T, ...)` each, and the last states."""
        alone = [i for i in range(len(state)) if i not in self.as_output]

        @tf.custom_gradient
        def run(*arguments: Tensor) -> Any:
            first = list(arguments[: len(state)])
            arrays = [chunks.array(x) for x in arguments[len(state) :][: len(inputs)]]
            # A tape does not see that copied steps read variables, so read each variable here.
            for variable in self.variables:
                tf.convert_to_tensor(variable)
            like = [*self.outputs, *[first[i] for i in alone], *self.checkpoints]

            def forward(t: Tensor, state: list[Tensor], rows: list[Any]) -> Any:
                values = []
                for step_inputs in chunks.read(arrays, t):
                    state, outputs, checkpoints = self._forward(state, step_inputs)
                    values.append([*outputs, *[state[i] for i in alone], *checkpoints])
                return t + 1, state, chunks.write(rows, t, values)

            _, last, rows = tf.while_loop(
                lambda t, *_: t < chunks.count,
                forward,
                (tf.constant(0), first, chunks.empty(like)),
                maximum_iterations=chunks.count,
            )
            values = chunks.stack(rows)
            outputs = values[: len(self.outputs)]
            after = dict(zip(alone, values[len(outputs) :], strict=False))
            after |= {i: outputs[j] for i, j in self.as_output.items()}
            checkpoints = values[len(outputs) + len(alone) :]

            def gradient(*upstream: Tensor, variables: Any = None) -> Any:
                # The state before each step, (T, ...): concatenated, then cut. XLA fuses the two.
                before = [tf.concat([x[None], after[i]], 0)[:-1] for i, x in enumerate(first)]
                g_last, g_outputs = upstream[: len(first)], upstream[len(first) :]
                g_first, g_inputs, sums = self._run_back(
                    chunks, arrays, before, checkpoints, list(g_last), list(g_outputs)
                )
                results = (*g_first, *g_inputs, *sums[: len(self.tensors)])
                if variables is None:
                    return results
                of_variables = sums[len(self.tensors) :]
                names = [x.ref() for x in self.variables]
                return results, [of_variables[names.index(x.ref())] for x in variables]

            return (*last, *outputs), gradient

        results = run(*state, *inputs, *self.tensors)
        return list(results[len(state) :]), list(results[: len(state)])

    def _run_back(
        self,
        chunks: _Chunks,
        arrays: list[Any],
        before: list[Tensor],
        checkpoints: list[Tensor],
        g_last: list[Tensor],
        g_outputs: list[Tensor],
    ) -> tuple[list[Tensor], list[Any], list[Tensor]]:
        """Return the gradients of the first states, of the inputs, and of captured tensors.

        Args:
            chunks: the division of the steps into iterations.
            arrays: the inputs of all steps, as arrays of `chunks`.
            before: the states before each step, each `(T, ...)`.
            checkpoints: the values that `checkpointed` made, each `(T, ...)`.
            g_last: the gradients of the last states.
            g_outputs: the gradients of the outputs, each `(T, ...)`.
        """
        floats = [i for i, x in enumerate(self.inputs) if x.dtype.is_floating]
        g_last = [
            g if x.dtype.is_floating else _zeros(x) for x, g in zip(self.state, g_last, strict=True)
        ]
        values = before, checkpoints, g_outputs
        of_steps = [[chunks.array(x) for x in each] for each in values] + [arrays]
        inputs = _rows_of(self.inputs)
        if self._backward is None:
            states = [tf.TensorSpec(g.shape, g.dtype) for g in g_last]
            self._backward = _Traced(self._differentiate, [*map(_rows_of, values), inputs, states])
        differentiated = self._backward

        def backward(k: Tensor, g_state: list[Tensor], rows: list[Any], sums: list[Tensor]) -> Any:
            t = chunks.count - 1 - k
            of_inputs = []
            steps = zip(*(chunks.read(each, t) for each in of_steps), strict=True)
            for step in reversed(list(steps)):
                g_state, g_inputs, more = differentiated(*step, g_state)
                of_inputs.append(g_inputs)
                sums = [x + tf.cast(y, x.dtype) for x, y in zip(sums, more, strict=True)]
            return k + 1, g_state, chunks.write(rows, t, of_inputs[::-1]), sums

        captured = (*self.tensors, *self.variables)
        zeros = [_zeros(tf.cast(x, tf.float32) if x.dtype.size == 2 else x) for x in captured]
        _, g_first, rows, sums = tf.while_loop(
            lambda k, *_: k < chunks.count,
            backward,
            (tf.constant(0), g_last, chunks.empty([inputs[i] for i in floats]), zeros),
            maximum_iterations=chunks.count,
        )
        sums = [tf.cast(x, like.dtype) for x, like in zip(sums, captured, strict=True)]
        results = iter(_without_gradient(*g_first, *chunks.stack(rows), *sums))
        g_first = [next(results) for _ in g_first]
        g_inputs = [next(results) if i in floats else None for i in range(len(self.inputs))]
        return g_first, g_inputs, list(results)

    def _differentiate(
        self,
        state: list[Tensor],
        checkpoints: list[Tensor],
        g_outputs: list[Tensor],
        inputs: list[Tensor],
        g_state: list[Tensor],
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Recompute a step; return the gradients of its states, floating inputs and captures."""
        floats = [x for x in (*state, *inputs) if x.dtype.is_floating]
        sources = [*floats, *self.tensors, *self.variables]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            new, outputs = self.take(state, inputs, _Checkpoints(checkpoints))
        targets = [
            (x, g)
            for x, g in zip((*new, *outputs), (*g_state, *g_outputs), strict=True)
            if x.dtype.is_floating
        ]
        gradients = tape.gradient(
            [x for x, _ in targets],
            sources,
            output_gradients=[g for _, g in targets],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        of_floats = iter(gradients)
        of_state = [
            next(of_floats) if x.dtype.is_floating else g
            for x, g in zip(state, g_state, strict=True)
        ]
        of_inputs = [next(of_floats) for x in inputs if x.dtype.is_floating]
        return of_state, of_inputs, [tf.convert_to_tensor(x) for x in of_floats]


class _Chunks:
    """The division of `count · steps` steps into `count` iterations of `steps` steps each.

    Arrays have a row for each iteration, and at least one row: XLA cannot compile a loop that reads
    an empty array.
    """

    def __init__(self, count: Any, steps: int) -> None:
        self.count, self.steps = count, steps
        self._rows = max(count, 1) if isinstance(count, int) else tf.maximum(count, 1)

    def array(self, x: Tensor) -> tf.TensorArray:
        """Return `x` `(count · steps, ...)` as an array of rows `(steps, ...)`."""
        missing = (self._rows - self.count) * self.steps
        padded = tf.pad(x, [[0, missing], *[[0, 0]] * (len(x.shape) - 1)])
        rows = tf.reshape(padded, tf.concat([[self._rows, self.steps], tf.shape(x)[1:]], 0))
        return self._empty(x.dtype, x.shape[1:]).unstack(rows)

    def read(self, arrays: list[tf.TensorArray], t: Tensor) -> list[list[Tensor]]:
        """Return, for each step of iteration `t`, the list of the arrays' values."""
        rows = [tf.unstack(x.read(t)) for x in arrays]
        return [[row[i] for row in rows] for i in range(self.steps)]

    def empty(self, like: list[Any]) -> list[tf.TensorArray]:
        """Return unwritten arrays for values with the shapes and dtypes of `like`."""
        return [self._empty(x.dtype, x.shape) for x in like]

    def _empty(self, dtype: Any, shape: tf.TensorShape) -> tf.TensorArray:
        shape = tf.TensorShape([self.steps]).concatenate(shape)
        return tf.TensorArray(dtype, self._rows, element_shape=shape)

    def write(self, arrays: list[Any], t: Tensor, values: list[list[Tensor]]) -> list[Any]:
        """Return the arrays with the values of the steps of iteration `t` written."""
        rows = zip(*values, strict=True)
        return [array.write(t, tf.stack(row)) for array, row in zip(arrays, rows, strict=True)]

    def stack(self, arrays: list[Any]) -> list[Tensor]:
        """Return the values of all steps, `(count · steps, ...)` each."""
        rows = [x.stack() for x in arrays]
        flat = [tf.reshape(x, tf.concat([[-1], tf.shape(x)[2:]], 0)) for x in rows]
        return [x[: self.count * self.steps] for x in flat]


def _rows_of(tensors: list[Tensor]) -> list[tf.TensorSpec]:
    """Return the spec `(...)` of one step's value for each tensor `(T, ...)`."""
    return [tf.TensorSpec(x.shape[1:], x.dtype) for x in tensors]


def _zeros(x: Any) -> Tensor:
    return tf.raw_ops.ZerosLike(x=x)  # `tf.zeros_like` would be a constant in the program


@tf.custom_gradient
def _without_gradient(*gradients: Tensor) -> Any:
    def refuse(*_: Tensor) -> Any:
        raise NotImplementedError(_NO_SECOND_DERIVATIVE)

    return gradients, refuse
