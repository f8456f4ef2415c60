"""One decoder step of a search: by the model's layers, or with constant weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_attention import Shortlist, backend
from training.decode.constant._products import product, shortlist
from training.decode.constant._step import ConstantStep, has_constant_step
from training.model.aligned import AlignedDecoder
from training.model.seq2seq import mean_of_heads, output_layer
from training.sources.text._source import known_tokens

Tensor = Any
SPARE = 1  # tokens listed beyond the beam width, because bfloat16 may order them wrongly


def prepare(
    model: keras.Model, source: Tensor, prepare_memory: Callable[..., Any] | None = None
) -> tuple[Any, Any]:
    """Encode a source; return the prepared memory and the decoder's first state.

    Args:
        model: a model of `training.model.seq2seq.build_seq2seq`.
        source: a batch of sources; for texts int32 `(B, S)`.
        prepare_memory: replaces the decoder's method `prepare`, if given.
    """
    memory, mask, *states = model.get_layer("encoder")(source, training=False)
    decoder = model.get_layer("decoder")
    prepared = (prepare_memory or decoder.prepare)(memory, mask=mask)
    return prepared, decoder.initial_state(prepared, states)


def embed(model: keras.Model) -> Any:
    """Return the layer from tokens to decoder inputs; identity for an `AlignedDecoder`."""
    layers = {layer.name: layer for layer in model.layers}
    return layers.get("target_embedding", lambda tokens: tokens)


class PlainStep:
    """A decoder step by the model's own layers.

    Its weights are not constants: use the step in the function that builds it.

    Attributes:
        copying: whether the model copies words from the source, see `PointerGenerator`.
    """

    def __init__(self, model: keras.Model, beam_width: int) -> None:
        to_inputs, decoder = embed(model), model.get_layer("decoder")
        output = output_layer(model, beam_width)
        self.copying = "copy" in {layer.name for layer in model.layers}
        self._model = model
        self._prepare: Callable[..., Any] | None = None
        self._products: str | None = None  # dtype of the products in loops
        self._advance: Callable[..., Any] = lambda x, *rest: decoder.step(to_inputs(x), *rest)
        self._log_probs: Callable[..., Any] = lambda vector: ops.log_softmax(
            ops.cast(output(vector), "float32"), axis=-1
        )

    def prepare(self, source: Tensor) -> tuple[Any, Any]:
        """Return the memory for all steps, and the state before the first step: see `prepare`."""
        with backend.with_settings(products=self._products):
            memory, state = prepare(self._model, source, self._prepare)
        if self.copying:
            memory = {"memory": memory, "words": self._model.get_layer("source_words")(source)}
        return memory, state

    def __call__(
        self, tokens: Tensor, memory: Any, state: Any
    ) -> tuple[Tensor | Shortlist, Tensor, Any]:
        """Take one step.

        Args:
            tokens: int32 `(rows,)`, the tokens before the tokens to predict.
            memory: the prepared memory.
            state: the state before the step.

        Returns:
            Log-probabilities `(rows, V)`, or `(rows, V + S)` if the model copies; attention weights
            `(rows, S)`, averaged over heads; and the next state.
        """
        words = None
        if self.copying:
            words, memory = memory["words"], memory["memory"]
            tokens = known_tokens(tokens, self._model.get_layer("source_words").target_size)
        vector, weights, state = self._advance(tokens, memory, state)
        log_probs, weights = self._log_probs(vector), mean_of_heads(weights, 2)
        if self.copying:
            batch = ops.shape(words)[0]
            # Rows of one source become its axis 1: (B, rows / B, …).
            parts = (ops.reshape(x, (batch, -1, x.shape[-1])) for x in (vector, log_probs))
            looked = ops.reshape(weights, (batch, -1, ops.shape(weights)[-1]))
            mixed = self._model.get_layer("copy")(*parts, looked, words)
            log_probs = ops.reshape(mixed, (-1, ops.shape(mixed)[-1]))
        return log_probs, weights, state


class ConstantModelStep(PlainStep):
    """A decoder step with the model's current weights as constants: faster in a SavedModel.

    In bfloat16, a step returns the log-probabilities of the best tokens only, and computes their
    logits in float32. With beams, the products of recurrent cells are in float32. Cells and
    attention layers that `training.decode.constant._step` does not support keep their own step:
    then only the product with the vocabulary is constant. TensorFlow only.

    Args:
        model: a model of `training.model.seq2seq.build_seq2seq`.
        beam_width: the beam width of the search.
        precision: dtype of the products, "float32" or "bfloat16".

    Attributes:
        taken: the weights that the step holds as constants; it no longer reads the variables.
    """

    def __init__(self, model: keras.Model, beam_width: int, precision: str) -> None:
        super().__init__(model, beam_width)
        self.taken: list[Any] = []
        # With beams, the product with the vocabulary takes most of the time. And a rounding error
        # in a recurrent cell affects every later step.
        self._products = precision if beam_width == 1 else "float32"
        to_inputs, decoder = embed(model), model.get_layer("decoder")
        if isinstance(decoder, AlignedDecoder):
            return
        if has_constant_step(decoder):
            dtypes = precision, self._products
            advance = ConstantStep(decoder, to_inputs.embeddings, beam_width, *dtypes)
            self._advance, self._prepare = advance, advance.prepare
            self.taken += advance.taken
        if "output" in {layer.name for layer in model.layers}:
            output = model.get_layer("output")
            kernel, bias = output.kernel.value, output.bias.value
            self.taken += output.weights
        else:  # tied: lookups may need the embeddings, so they are not added to `taken`
            kernel, bias = ops.transpose(to_inputs.embeddings.value), None
        if precision == "bfloat16" and not self.copying:
            count = min(beam_width + SPARE, kernel.shape[1])
            listed = shortlist(kernel, bias, count)
            self._log_probs = lambda vector: Shortlist(*listed(vector))
        else:
            times_kernel = product(kernel, bias, precision, single=beam_width == 1)
            self._log_probs = lambda vector: ops.log_softmax(times_kernel(vector), axis=-1)

    def with_beams(self, beams: int) -> ConstantModelStep:
        """Return this step, with the same constants, for `beams` rows of each sentence."""
        step = copy.copy(self)
        if isinstance(self._advance, ConstantStep):
            step._advance = self._advance.with_beams(beams)
        return step


def constant_steps(
    models: Sequence[keras.Model], beam_width: int, precision: str
) -> list[ConstantModelStep]:
    """Return the fastest `steps` for a search.

    Raises ValueError for several models in bfloat16.
    """
    if precision == "bfloat16" and len(models) > 1:
        # Their shortlists cannot be averaged.
        raise ValueError(f"bfloat16 expected one model. Received: {len(models)} models")
    return [ConstantModelStep(model, beam_width, precision) for model in models]
