"""One step of a model's decoder in a search: as the layers compute it, or with constant weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_attention import Shortlist, switch
from training.decode.constant.products import product, shortlist
from training.decode.constant.step import ConstantStep, fixes_step
from training.model.aligned import AlignedDecoder
from training.model.seq2seq import mean_of_heads, output_layer
from training.sources.text.source import known_tokens

Tensor = Any
SPARE = 1  # tokens beyond the beam width whose logits bfloat16 may have put in the wrong order


def prepare(
    model: keras.Model, source: Tensor, prepare_memory: Callable[..., Any] | None = None
) -> tuple[Any, Any]:
    """Encode a source, int32 `(B, S)`: return the prepared memory and the decoder's first state.

    `prepare_memory` stands in for the decoder's `prepare`.
    """
    memory, mask, *states = model.get_layer("encoder")(source, training=False)
    decoder = model.get_layer("decoder")
    prepared = (prepare_memory or decoder.prepare)(memory, mask=mask)
    return prepared, decoder.initial_state(prepared, states)


def embed(model: keras.Model) -> Any:
    """Return the layer that makes tokens the decoder's inputs; an `AlignedDecoder` takes tokens."""
    layers = {layer.name: layer for layer in model.layers}
    return layers.get("target_embedding", lambda tokens: tokens)


class Copying:
    """The part of a step that copies words from the source, see `PointerGenerator`."""

    def __init__(self, model: keras.Model) -> None:
        self._words, self._mix = model.get_layer("source_words"), model.get_layer("copy")

    def prepare(self, source: Tensor, memory: Any) -> dict[str, Any]:
        """Return the memory with the words that can be copied, `(B, S)`."""
        return {"memory": memory, "words": self._words(source)}

    def known(self, tokens: Tensor) -> Tensor:
        """Return tokens that have an embedding."""
        return known_tokens(tokens, self._words.target_size)

    def mix(self, vector: Tensor, log_probs: Tensor, weights: Tensor, words: Tensor) -> Tensor:
        """Return the log-probabilities of the extended vocabulary, `(rows, V + S)`."""
        batch = ops.shape(words)[0]
        steps = (
            ops.reshape(x, (batch, -1, ops.shape(x)[-1])) for x in (vector, log_probs, weights)
        )
        mixed = self._mix(*steps, words)
        return ops.reshape(mixed, (-1, ops.shape(mixed)[-1]))


def _copying(model: keras.Model) -> Copying | None:
    return Copying(model) if "copy" in {layer.name for layer in model.layers} else None


class PlainStep:
    """A step as the layers compute it, to be used where it is made."""

    def __init__(self, model: keras.Model, beam_width: int) -> None:
        self._model = model
        self._embed, self._decoder = embed(model), model.get_layer("decoder")
        self._output = output_layer(model, beam_width)
        self.copying = _copying(model)

    def prepare(self, source: Tensor) -> tuple[Any, Any]:
        """Return the memory for the steps and the state before the first: see `prepare`."""
        memory, state = prepare(self._model, source)
        return self.copying.prepare(source, memory) if self.copying else memory, state

    def __call__(self, tokens: Tensor, memory: Any, state: Any) -> tuple[Tensor, Tensor, Any]:
        """From tokens `(rows,)`, a prepared memory and a state to the next log-probabilities.

        Returns:
            Log-probabilities `(rows, V)`, of a model that copies `(rows, V + S)`, weights
            `(rows, S)`, of several heads their mean, and the next state.
        """
        return _take_step(self, tokens, memory, state)

    def advance(self, tokens: Tensor, memory: Any, state: Any) -> tuple[Tensor, Tensor, Any]:
        """Take the decoder's step: its output, weights and state."""
        return self._decoder.step(self._embed(tokens), memory, state)

    def log_probs(self, vector: Tensor) -> Tensor:
        """Return the vocabulary's log-probabilities after a decoder's output."""
        return ops.log_softmax(ops.cast(self._output(vector), "float32"), axis=-1)


class FixedStep:
    """A step with a model's weights as they are now, which a SavedModel runs faster.

    In bfloat16 a step returns the log-probabilities of the best tokens alone, with their logits in
    float32. With beams the products of recurrent cells are in float32. Cells and attention layers
    that `training.decode.constant.step` does not know keep their own step: then only the product
    with the vocabulary is constant. On TensorFlow alone.

    Args:
        model: of `training.model.seq2seq.build_seq2seq`.
        beam_width: of the search.
        precision: of the products, "float32" or "bfloat16".

    Attributes:
        taken: the weights that the step holds as constants, and needs no more.
    """

    def __init__(self, model: keras.Model, beam_width: int, precision: str) -> None:
        self._model, self._prepare, self.taken = model, None, []
        self.copying = _copying(model)
        to_inputs, decoder = embed(model), model.get_layer("decoder")
        # With beams it is the vocabulary that takes the time, and what is rounded in a recurrence
        # comes back at every later step.
        self._recurrent_dtype = precision if beam_width == 1 else "float32"
        self.advance: Callable[..., Any]
        self.log_probs: Callable[..., Any]
        if isinstance(decoder, AlignedDecoder):
            self.advance, self.log_probs = decoder.step, lambda log_probs: log_probs
            return
        if fixes_step(decoder):
            embeddings = to_inputs.embeddings
            dtypes = precision, self._recurrent_dtype
            advance = ConstantStep(decoder, embeddings, beam_width, *dtypes)
            self.advance = advance
            self._prepare = advance.prepare
            self.taken += advance.taken
        else:
            self.advance = lambda tokens, *rest: decoder.step(to_inputs(tokens), *rest)
        if "output" in {layer.name for layer in model.layers}:
            output = model.get_layer("output")
            kernel, bias = output.kernel.value, output.bias.value
            self.taken += output.weights
        else:  # tied: the embeddings are looked up, too
            kernel, bias = ops.transpose(to_inputs.embeddings.value), None
        if precision == "bfloat16" and not self.copying:
            count = min(beam_width + SPARE, kernel.shape[1])
            # Batches are worth more than single sentences where a sentence is one row.
            listed = shortlist(kernel, bias, count, softmax=beam_width == 1)
            self.log_probs = lambda vector: Shortlist(*listed(vector))
        else:
            times_kernel = product(kernel, bias, precision, single=beam_width == 1)
            self.log_probs = lambda vector: ops.log_softmax(times_kernel(vector), axis=-1)

    def prepare(self, source: Tensor) -> tuple[Any, Any]:
        """Return the memory for the steps and the state before the first: see `prepare`."""
        with switch.within(products=self._recurrent_dtype):
            memory, state = prepare(self._model, source, self._prepare)
        return self.copying.prepare(source, memory) if self.copying else memory, state

    def __call__(
        self, tokens: Tensor, memory: Any, state: Any
    ) -> tuple[Tensor | Shortlist, Tensor, Any]:
        """Take one step: see `PlainStep`."""
        return _take_step(self, tokens, memory, state)

    def with_beams(self, beams: int) -> FixedStep:
        """Return the step, with the same constants, for so many rows of each sentence."""
        step = copy.copy(self)
        if isinstance(self.advance, ConstantStep):
            step.advance = self.advance.with_beams(beams)
        return step


def _take_step(
    step: PlainStep | FixedStep, tokens: Tensor, memory: Any, state: Any
) -> tuple[Tensor | Shortlist, Tensor, Any]:
    """Take a step, and mix the vocabulary's log-probabilities with those of words to copy."""
    words, copying = None, step.copying
    if copying:
        words, memory = memory["words"], memory["memory"]
        tokens = copying.known(tokens)
    vector, weights, state = step.advance(tokens, memory, state)
    log_probs, weights = step.log_probs(vector), mean_of_heads(weights, 2)
    if copying:
        log_probs = copying.mix(vector, log_probs, weights, words)
    return log_probs, weights, state


def fixed_steps(models: Sequence[keras.Model], beam_width: int, precision: str) -> list[FixedStep]:
    """Return the `steps` of a search that are the fastest.

    Raises:
        ValueError: if there are several models in bfloat16: their shortlists cannot be averaged.
    """
    if precision == "bfloat16" and len(models) > 1:
        raise ValueError(f"bfloat16 expected one model. Received: {len(models)} models")
    return [FixedStep(model, beam_width, precision) for model in models]
