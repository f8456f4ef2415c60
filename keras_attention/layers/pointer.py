"""A pointer-generator: it mixes a vocabulary with words copied from the source."""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_attention import backend
from keras_attention.layer import BaseLayer
from keras_attention.shapes import Shape, Tensor, fits

TINY = 1e-30  # probability of a word that neither vocabulary nor source has


@keras.saving.register_keras_serializable("keras_attention")
class PointerGenerator(BaseLayer):
    """A pointer-generator: it generates words of a vocabulary, or copies words of the source.

    See, Liu and Manning 2017 (arXiv 1704.04368, section 2.2). The next word comes from the
    vocabulary with the probability `p_gen = sigmoid(wᵀ x + b)` (eq. 8). Otherwise it comes from the
    source, from place `i` with the probability `a_i` (eq. 9):

    `P(w) = p_gen · P_vocab(w) + (1 - p_gen) · Σ_{i: w_i = w} a_i`

    The paper's features `x` are `[c_t; s_t; y_{t-1}]`. A source of S places extends the vocabulary
    of V words to `V + S` words. Word `V + i` is the word at place `i` of the source, if the
    vocabulary lacks it: see `copied_ids`.

    Args:
        **kwargs: `kernel_initializer`, `kernel_regularizer`, `kernel_constraint` of `w`; `name`,
            `dtype`. The layer computes in float32.

    Call arguments:
        features: `x`, `(B, T, dim)`, or one step `(B, dim)`.
        logits: of the vocabulary, `(B, T, V)` or `(B, V)`.
        attention_weights: `a`, `(B, T, S)` or `(B, S)`. If they sum to less than 1, so do the
            probabilities.
        source_ids: int32 `(B, S)`, the word of each place in the extended vocabulary. Places
            without weight, such as padding, may have any word.

    Output:
        The log-probabilities of the extended vocabulary, float32 `(B, T, V + S)` or `(B, V + S)`;
        at most -69 for words that neither the vocabulary nor the source has.

    Weights: `kernel` `w` `(dim, 1)` and `bias` `b` `()`.

    Raises:
        ValueError: if ranks, batch sizes or lengths do not fit.

    Example:
        ```python
        features, logits = keras.random.normal((2, 3, 8)), keras.random.normal((2, 3, 10))
        weights = keras.ops.softmax(keras.random.normal((2, 3, 5)))
        source_ids = keras.random.randint((2, 5), 0, 15)
        log_probs = PointerGenerator()(features, logits, weights, source_ids)  # (2, 3, 15)
        ```
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"autocast": False, **kwargs})

    def build(
        self,
        features_shape: tuple[Any, ...],
        logits_shape: Any = None,
        attention_weights_shape: Any = None,
        source_ids_shape: Any = None,
    ) -> None:
        """Make the weights for features of this width."""
        self._expect_inputs(logits_shape, attention_weights_shape, source_ids_shape)
        self.width, received = features_shape[-1], f"{tuple(features_shape)}"
        self._expect(self.width is not None, "features of a known width", received)
        self.kernel = self.add_kernel((self.width, 1), "kernel", autocast=False)
        self.bias = self.add_weight((), "zeros", name="bias", autocast=False)

    def call(
        self, features: Tensor, logits: Tensor, attention_weights: Tensor, source_ids: Tensor
    ) -> Tensor:
        """Return the log-probabilities; the class documents the arguments and the output."""
        self._check(features.shape, logits.shape, attention_weights.shape, source_ids.shape)
        if len(features.shape) == 2:
            steps = [ops.expand_dims(x, 1) for x in (features, logits, attention_weights)]
            return ops.squeeze(self.call(steps[0], steps[1], steps[2], source_ids), 1)
        inputs = features, logits, attention_weights
        features, logits, weights = (ops.cast(x, "float32") for x in inputs)
        switch = ops.matmul(features, ops.cast(self.kernel, "float32"))
        switch = switch + ops.cast(self.bias, "float32")  # (B, T, 1)
        generate, copy = ops.log_sigmoid(switch), ops.log_sigmoid(-switch)
        generated = ops.log_softmax(logits, axis=-1) + generate
        beyond = ops.broadcast_to(copy + math.log(TINY), ops.shape(weights))
        log_probs = ops.concatenate([generated, beyond], axis=-1)
        source_ids = ops.cast(source_ids, "int32")
        same = _same(source_ids)
        mixed = _mixed(
            backend.take_in_rows(log_probs, source_ids),
            ops.matmul(weights, ops.cast(same, "float32")),
            copy,
        )
        # The mixture replaces the generated probability of each word of the source, once.
        places = ops.arange(ops.shape(weights)[-1], dtype="int32")
        once = ops.expand_dims(ops.cast(ops.equal(_first_places(same), places), "float32"), 1)
        size = ops.shape(log_probs)[-1]
        in_source = backend.add_in_rows(once, source_ids, size) > 0  # (B, 1, V + S)
        return ops.where(in_source, backend.add_in_rows(once * mixed, source_ids, size), log_probs)

    def _check(self, features: Shape, logits: Shape, weights: Shape, source: Shape) -> None:
        steps, places = tuple(features[:-1]), (features[0], *weights[-1:])
        valid = len(features) in (2, 3) and fits(source, places) and 0 not in source[1:]
        valid = valid and fits(logits[:-1], steps) and fits(weights[:-1], steps)
        received = ", ".join(str(tuple(x)) for x in (features, logits, weights, source))
        expected = "features (B, T, dim), logits (B, T, V) and attention weights (B, T, S), or all "
        self._expect(valid, expected + "three without T, and source_ids (B, S)", received)
        width = getattr(self, "width", features[-1])
        self._expect(features[-1] == width, f"features of width {width}", received)

    def output_spec(
        self, features: Any, logits: Any, attention_weights: Any, source_ids: Any
    ) -> keras.KerasTensor:
        """Return the symbolic log-probabilities."""
        self._check(features.shape, logits.shape, attention_weights.shape, source_ids.shape)
        places = attention_weights.shape[-1]
        size = None if places is None else logits.shape[-1] + places
        return keras.KerasTensor((*logits.shape[:-1], size), "float32")


def copied_ids(source_ids: Tensor, vocabulary_ids: Tensor, vocab_size: int) -> Tensor:
    """Return the word of each place of a source in the extended vocabulary.

    Args:
        source_ids: int32 `(B, S)`: equal where words are equal.
        vocabulary_ids: int32 `(B, S)`: the words in the vocabulary, -1 for those it lacks.
        vocab_size: V.

    Returns:
        int32 `(B, S)`: a word that the vocabulary lacks is `V + i`, where `i` is its first place.
    """
    first = _first_places(_same(source_ids))
    return ops.where(vocabulary_ids >= 0, vocabulary_ids, vocab_size + first)


def _mixed(generated: Tensor, weights: Tensor, copy: Tensor) -> Tensor:
    """Return `log(exp(generated) + weights · exp(copy))`, of `(B, T, S)` and `copy` `(B, T, 1)`.

    Both terms are divided by the greater term, and added before the logarithm: the logarithm of a
    weight of 0 would have an infinite slope. For scaled sums below 1, the logarithm is continued as
    a straight line.
    """
    highest = ops.maximum(generated, copy + ops.log(ops.maximum(weights, TINY)))
    highest = ops.stop_gradient(highest)
    total = ops.exp(generated - highest) + weights * ops.exp(copy - highest)
    safe = ops.maximum(total, 1.0)
    return highest + ops.log(safe) + (total - safe)


def _same(source_ids: Tensor) -> Tensor:
    """Return boolean `(B, S, S)`: whether the words at two places are the same."""
    return ops.equal(ops.expand_dims(source_ids, 2), ops.expand_dims(source_ids, 1))


def _first_places(same: Tensor) -> Tensor:
    """Return for each place the first with the same word, int32 `(B, S)`."""
    return ops.cast(ops.argmax(ops.cast(same, "int32"), axis=-1), "int32")
