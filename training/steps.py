"""One step of a model's decoder in a search: as the layers compute it, or with constant weights."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import keras
from keras import ops

from keras_attention import Shortlist, hoisted
from keras_attention.constant import product, shortlist
from keras_attention.constant_step import ConstantStep, supports
from training.model import encoder_cells, output_layer

Tensor = Any
SPARE = 1  # tokens beyond the beam width whose logits bfloat16 may have put in the wrong order


def prepare(
    model: keras.Model, source: Tensor, prepare_memory: Callable[..., Any] | None = None
) -> tuple[Any, Any]:
    """Encode a source.

    Args:
        model: of `training.model.build_seq2seq`.
        source: int32 `(B, S)`, padded with 0.
        prepare_memory: what stands in for the decoder's `prepare`.

    Returns:
        The prepared memory and the decoder's first state.
    """
    memory, mask, *states = model.get_layer("encoder")(source, training=False)
    decoder = model.get_layer("decoder")
    prepared = (prepare_memory or decoder.prepare)(memory, mask=mask)
    return prepared, decoder.initial_state(prepared, states)


class PlainStep:
    """A step as the layers compute it, to be used where it is made.

    Args:
        model: of `training.model.build_seq2seq`.
        beam_width: of the search.
    """

    def __init__(self, model: keras.Model, beam_width: int) -> None:
        self._model = model
        self._embedding, self._decoder = _layers(model)
        self._output = output_layer(model, beam_width)

    def prepare(self, source: Tensor) -> tuple[Any, Any]:
        """Return the memory for the steps and the state before the first: see `prepare`."""
        return prepare(self._model, source)

    def __call__(self, tokens: Tensor, memory: Any, state: Any) -> tuple[Tensor, Tensor, Any]:
        """From tokens `(rows,)`, a prepared memory and a state to the next log-probabilities.

        Returns:
            Log-probabilities `(rows, vocabulary)`, weights `(rows, S)` and the next state.
        """
        vector, weights, state = self._decoder.step(self._embedding(tokens), memory, state)
        logits = ops.cast(self._output(vector), "float32")
        return ops.log_softmax(logits, axis=-1), weights, state


class FixedStep:
    """A step with a model's weights as they are now, which a SavedModel runs faster.

    In bfloat16, log-probabilities are those of the best tokens alone, with their logits in float32,
    and with beams, what recurrent cells multiply is multiplied in float32.
    Cells and attention layers that `keras_attention.constant_step` does not know compute as they
    do; the product with the vocabulary then is the only one that differs. On TensorFlow alone.

    Args:
        model: of `training.model.build_seq2seq`.
        beam_width: of the search.
        precision: of the products, "float32" or "bfloat16".

    Attributes:
        taken: the weights that the step holds as constants, and that it needs no more.
    """

    def __init__(self, model: keras.Model, beam_width: int, precision: str) -> None:
        self._model, self._prepare, self.taken = model, None, []
        self._embedding, decoder = _layers(model)
        # With beams it is the vocabulary that takes the time, and what is rounded in a recurrence
        # comes back at every later step.
        self._recurrent_dtype = precision if beam_width == 1 else "float32"
        if supports(decoder):
            embeddings = self._embedding.embeddings
            dtypes = precision, self._recurrent_dtype
            self._advance = ConstantStep(decoder, embeddings, beam_width, *dtypes)
            self._prepare = self._advance.prepare
            self.taken += self._advance.taken
        else:
            embed, step = self._embedding, decoder.step
            self._advance = lambda tokens, *rest: step(embed(tokens), *rest)
        if "output" in {layer.name for layer in model.layers}:
            output = model.get_layer("output")
            kernel, bias = output.kernel.value, output.bias.value
            self.taken += output.weights
        else:  # tied: the embeddings are looked up, too
            kernel, bias = ops.transpose(self._embedding.embeddings.value), None
        if precision == "bfloat16":
            count = min(beam_width + SPARE, kernel.shape[1])
            # Batches are worth more than single sentences where a sentence is one row.
            listed = shortlist(kernel, bias, count, softmax=beam_width == 1)
            self._log_probs = lambda vector: Shortlist(*listed(vector))
        else:
            times_kernel = product(kernel, bias, precision, single=beam_width == 1)
            self._log_probs = lambda vector: ops.log_softmax(times_kernel(vector), axis=-1)

    def prepare(self, source: Tensor) -> tuple[Any, Any]:
        """Return the memory for the steps and the state before the first: see `prepare`."""
        with _multiplying_in(self._recurrent_dtype, encoder_cells(self._model)):
            return prepare(self._model, source, self._prepare)

    def __call__(
        self, tokens: Tensor, memory: Any, state: Any
    ) -> tuple[Tensor | Shortlist, Tensor, Any]:
        """Take one step: see `PlainStep`."""
        vector, weights, state = self._advance(tokens, memory, state)
        return self._log_probs(vector), weights, state


def fixed_steps(models: Sequence[keras.Model], beam_width: int, precision: str) -> list[FixedStep]:
    """Return the `steps` of a search that are the fastest.

    Raises:
        ValueError: if there are several models in bfloat16: their shortlists cannot be averaged.
    """
    if precision == "bfloat16" and len(models) > 1:
        raise ValueError(f"bfloat16 expected one model. Received: {len(models)} models")
    return [FixedStep(model, beam_width, precision) for model in models]


@contextlib.contextmanager
def _multiplying_in(dtype: str, cells: Iterable[Any]) -> Iterator[None]:
    """Within this, the products of cells that have a fast loop are computed in the dtype."""
    policies = [(cell, cell.dtype_policy) for cell in cells if hoisted.supports(cell)]
    policy = keras.DTypePolicy("float32" if dtype == "float32" else f"mixed_{dtype}")
    try:
        for cell, _ in policies:
            cell.dtype_policy = policy
        yield
    finally:
        for cell, was in policies:
            cell.dtype_policy = was


def _layers(model: keras.Model) -> tuple[keras.layers.Layer, keras.layers.Layer]:
    return model.get_layer("target_embedding"), model.get_layer("decoder")
