"""The hoisted loop of a cell that attends: see `recurrent.hoisted_rnn`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from keras import ops, tree

from keras_attention import backend, distributions
from keras_attention.fast import switch
from keras_attention.fast.deferred import Trace, deferred, fixed, outer
from keras_attention.fast.gates import hoisted_cell
from keras_attention.mechanisms.additive import AdditiveAttention
from keras_attention.mechanisms.multiplicative import MultiplicativeAttention
from keras_attention.shapes import keep_where

if TYPE_CHECKING:
    from keras_attention.attention import Attention
    from keras_attention.recurrent.cell import State
    from keras_attention.recurrent.rnn import AttentionRNN
    from keras_attention.weighing import Memory

Tensor = Any


def run(
    layer: AttentionRNN,
    inputs: Tensor,
    mask: Tensor | None,
    memories: list[Memory],
    state: State,
    training: bool | None,
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Run an `AttentionRNN` over a sequence, as a loop over its steps would.

    Args:
        layer: one for which `switch.hoists_attention` is true.
        inputs: `(T, B, dim)`, in the compute dtype.
        mask: boolean `(T, B)` or None; where it is False the state stays and the outputs are 0.
        memories: of its attention layers.
        state: before the first step.
        training: whether there is dropout and noise.

    Returns:
        In the compute dtype, the attentional vectors with input feeding and `[c_t; s_t]` without,
        `(T, B, ·)`; for each memory the weights `(T, B, [heads,] S)`; and the cell's last states.
    """
    dtype, trace, sizes = layer.compute_dtype, Trace(), ops.shape(inputs)[:2]
    bahdanau, feeding = layer.order == "bahdanau", layer.input_feeding
    (first, *_), remembered = tree.flatten(state.cell), layer._list(state.attention)

    def queries() -> Tensor:
        return trace.before("output", first) if bahdanau else trace["output"]

    def fed() -> list[Tensor]:
        outputs = [trace.before("vector", state.output)] if feeding else []
        return [*outputs, trace["context"]] if bahdanau else outputs

    cell = hoisted_cell(layer.cell, inputs, first, trace, fed)
    looks = [
        Look(attention, memory, sizes, queries, training)
        for attention, memory in zip(layer._list(layer.attention), memories, strict=True)
    ]
    steps = {"cell": cell.steps, "looks": [look.steps for look in looks]}
    if mask is not None:
        steps["mask"] = mask
    if training:
        steps["noise"] = layer._list(layer._noise(layer._one(memories), sizes[:1], 1))
    vector = None
    if feeding and layer.output_kernel is not None:
        vector, steps["vector"] = _vector(layer, inputs, trace)

    def attend(
        query: Tensor, now: dict[str, Any], states: list[Any]
    ) -> tuple[Tensor, list[Tensor], list[Any]]:
        noises = now.get("noise", [{}] * len(looks))
        found = [
            look(query, *rest)
            for look, *rest in zip(looks, now["looks"], states, noises, strict=True)
        ]
        contexts, weights, new = map(list, zip(*found, strict=True))
        return layer._join(query, contexts), weights, new

    def step(now: dict[str, Any], old: tuple[Any, ...]) -> tuple[dict[str, Any], tuple[Any, ...]]:
        states, remembered, output = old
        before = [output] if feeding else []
        if bahdanau:
            query = ops.cast(states[0], dtype)
            context, weights, remembered = attend(query, now, remembered)
            states = cell.step(now["cell"], [*before, context], states)
        else:
            states = cell.step(now["cell"], before, states)
            query = ops.cast(states[0], dtype)
            context, weights, remembered = attend(query, now, remembered)
        if feeding:
            output = ops.concatenate([context, ops.cast(states[0], dtype)], axis=-1)
            output = output if vector is None else layer._activate(vector(output) + now["vector"])
        new = (states, remembered, output)
        if "mask" in now:
            new = keep_where(now["mask"], new, old)
        traced = {"output": ops.cast(new[0][0], dtype), "context": context}
        if feeding:
            traced["vector"] = new[2]
        return {"cell": traced, "weights": weights}, new

    names = ["output", "context", *(["vector"] if feeding else [])]
    dtypes = {"cell": dict.fromkeys(names, dtype), "weights": [dtype] * len(looks)}
    states = [ops.cast(x, cell.state_dtype) for x in tree.flatten(state.cell)]
    found, last = backend.scan(step, (states, remembered, state.output), steps, dtypes)
    trace.fill(found["cell"])
    for look, weights in zip(looks, found["weights"], strict=True):
        look.trace.fill({"weights": weights})
    outputs = trace["vector"] if feeding else _pairs(trace)
    results = [outputs, *found["weights"]]
    if mask is not None:
        rows = tree.map_structure(ops.zeros_like, results)
        results = [_where(mask, a, b) for a, b in zip(results, rows, strict=True)]
    outputs, *weights = results
    return outputs, weights, [ops.cast(x, layer.cell.compute_dtype) for x in last[0]]


class Look:
    """An attention layer that looks at its memory in a hoisted loop, and its gradients.

    The kernel of an additive query, the keys of a multiplicative score and the value that weights
    average are fixed in the loop. The rest is the layer's own.

    Args:
        attention: the layer.
        memory: from its `prepare`.
        sizes: T and B.
        queries: returns, after the loop, the queries of all steps, `(T, B, ·)`.
        training: whether there is dropout.

    Attributes:
        steps: inputs of the loop, by name.
        trace: it must get the `"weights"` of all steps.
    """

    def __init__(
        self,
        attention: Attention,
        memory: Memory,
        sizes: tuple[Any, ...],
        queries: Callable[[], Tensor],
        training: bool | None,
    ) -> None:
        self._attention, self._queries, self._sizes = attention, queries, sizes
        self._dtype, self.trace = attention.compute_dtype, Trace()
        self.steps: dict[str, Tensor] = {}
        self._project = self._times_key = self._average = None
        single = attention.num_heads == 1
        if type(attention) is AdditiveAttention and single:
            kernel = ops.cast(attention.query_kernel, self._dtype)
            self._project = fixed(kernel)
            self._defer("query", kernel, lambda g: outer(queries(), g), kernel.shape[-1])
            if self._dtype in ("float16", "bfloat16"):
                # Its scores are computed in float32: the keys are cast once.
                memory = memory._replace(key=ops.cast(memory.key, "float32"))
        if switch.averages(attention, training):
            self._average = fixed(memory.value)
            self._defer("context", memory.value, self._value_gradient, memory.value.shape[-1])
            if type(attention) is MultiplicativeAttention and self._dtype != "float16":
                self._times_key = fixed(ops.swapaxes(memory.key, 1, 2))
                self._defer("scores", memory.key, self._key_gradient, ops.shape(memory.key)[1])
        self._memory = memory

    def _defer(
        self, name: str, parameter: Tensor, gradient: Callable[[Tensor], Tensor], width: Any
    ) -> None:
        zeros = ops.zeros((*self._sizes, width), self._dtype)
        self.steps[name] = deferred(zeros, [parameter], lambda g: [gradient(g)])

    def _value_gradient(self, contexts: Tensor) -> Tensor:
        return ops.einsum("tbs,tbd->bsd", self.trace["weights"], contexts)

    def _key_gradient(self, scores: Tensor) -> Tensor:
        return ops.einsum("tbs,tbd->bsd", scores, self._scaled(self._queries()))

    def _scaled(self, queries: Tensor) -> Tensor:
        queries = self._attention.project_query(queries)
        if self._attention.score_name == "scaled_dot":
            return queries * (queries.shape[-1] ** -0.5)
        return queries

    def __call__(
        self, query: Tensor, now: dict[str, Tensor], state: Any, noise: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, Any]:
        """Look at the memory.

        Args:
            query: `(B, ·)`.
            now: of this step.
            state: of the attention layer.
            noise: see `Attention.noise`.

        Returns:
            The context `(B, dv)`, the weights `(B, [heads,] S)` and the next state.
        """
        attention, memory = self._attention, self._memory
        if self._project:
            query = ops.expand_dims(self._project(query) + now["query"], 1)
        elif not self._times_key:
            query = attention.queries(ops.expand_dims(query, 1))
        if not self._average:
            context, weights, state = attention.attend(query, memory, state, None, noise)
            return ops.squeeze(context, 1), ops.squeeze(weights, -2), state
        mask = None if memory.mask is None else ops.expand_dims(memory.mask, 1)
        if self._times_key:
            scores = self._times_key(ops.expand_dims(self._scaled(query), 1))
            scores = scores + ops.expand_dims(now["scores"], 1)
            weights = distributions.BY_NAME[attention.distribution](scores, mask)
        else:
            weights, state = attention.weigh(query, memory, state, mask, noise)
        weights = ops.cast(weights, self._dtype)
        context = ops.squeeze(self._average(weights), 1) + now["context"]
        return context, ops.squeeze(weights, -2), state


def _vector(
    layer: AttentionRNN, inputs: Tensor, trace: Trace
) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return the product of `[c_t; s_t]` in the readout, and what is added to it at each step.

    A deep readout's product of the inputs is known before the loop.
    """
    kernel = ops.cast(layer.output_kernel, layer.compute_dtype)
    if layer.readout == "deep":
        rows = kernel.shape[0] - inputs.shape[-1]
        kernel, of_inputs = ops.split(kernel, [rows], axis=0)
        added = ops.matmul(inputs, of_inputs)
    else:
        added = ops.zeros((*ops.shape(inputs)[:2], kernel.shape[-1]), layer.compute_dtype)
    return fixed(kernel), deferred(added, [kernel], lambda g: [outer(_pairs(trace), g)])


def _pairs(trace: Trace) -> Tensor:
    return ops.concatenate([trace["context"], trace["output"]], axis=-1)


def _where(mask: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return ops.where(ops.reshape(mask, (*ops.shape(mask), *[1] * (len(a.shape) - 2))), a, b)
