"""One step of a model's decoder in a search: as the layers compute it, or in bfloat16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_attention import Shortlist
from keras_attention.constant import ConstantStep, shortlist, supports
from training.model import output_layer

Tensor = Any
SPARE = 3  # tokens beyond the beam width whose logits bfloat16 may have put in the wrong order


class PlainStep:
    """A step as the layers compute it, to be used where it is made.

    Args:
        model: of `training.model.build_seq2seq`.
        beam_width: of the search.
    """

    def __init__(self, model: keras.Model, beam_width: int) -> None:
        self._embedding, self._decoder = _layers(model)
        self._output = output_layer(model, beam_width)

    def __call__(self, tokens: Tensor, memory: Any, state: Any) -> tuple[Tensor, Tensor, Any]:
        """From tokens `(rows,)`, a prepared memory and a state to the next log-probabilities.

        Returns:
            Log-probabilities `(rows, vocabulary)`, weights `(rows, S)` and the next state.
        """
        vector, weights, state = self._decoder.step(self._embedding(tokens), memory, state)
        logits = ops.cast(self._output(vector), "float32")
        return ops.log_softmax(logits, axis=-1), weights, state


class Bfloat16Step:
    """A step whose products are in bfloat16, with a model's weights as they are now.

    Log-probabilities are those of the best tokens alone, with their logits in float32. Of cells and
    attention layers that `keras_attention.constant` does not know, only the product with the
    vocabulary is in bfloat16. On TensorFlow alone.

    Args:
        model: of `training.model.build_seq2seq`.
        beam_width: the greatest of the searches.

    Attributes:
        taken: the weights that the step holds as constants, and that it needs no more.
    """

    def __init__(self, model: keras.Model, beam_width: int) -> None:
        self._embedding, decoder = _layers(model)
        self._advance, self.taken = decoder.step, []
        if supports(decoder):
            self._advance = ConstantStep(decoder)
            self.taken += self._advance.taken
        if "output" in {layer.name for layer in model.layers}:
            output = model.get_layer("output")
            kernel, bias = ops.transpose(output.kernel.value), output.bias.value
            self.taken += output.weights
        else:  # tied: the embeddings are looked up, too
            kernel, bias = self._embedding.embeddings.value, None
        self._list = shortlist(kernel, bias, min(beam_width + SPARE, kernel.shape[0]))

    def __call__(self, tokens: Tensor, memory: Any, state: Any) -> tuple[Shortlist, Tensor, Any]:
        """Take one step: see `PlainStep`; the log-probabilities are a `Shortlist`."""
        vector, weights, state = self._advance(self._embedding(tokens), memory, state)
        return Shortlist(*self._list(vector)), weights, state


def bfloat16_steps(models: Sequence[keras.Model], beam_width: int) -> list[Bfloat16Step]:
    """Return the `steps` of a search.

    Raises:
        ValueError: if there are several models: their shortlists cannot be averaged.
    """
    if len(models) > 1:
        raise ValueError(f"bfloat16_steps expected one model. Received: {len(models)} models")
    return [Bfloat16Step(model, beam_width) for model in models]


def _layers(model: keras.Model) -> tuple[keras.layers.Layer, keras.layers.Layer]:
    return model.get_layer("target_embedding"), model.get_layer("decoder")
