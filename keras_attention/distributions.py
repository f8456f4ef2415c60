"""Distributions: functions that turn scores and a mask into attention weights.

Scores are `(..., Tv)`. A mask is boolean, and broadcasts to the scores. Masked positions get weight
exactly 0, and a row without any allowed position gets zeros. All functions compute in at least
float32, and return weights with the shape and dtype of the scores. A layer also accepts your own
function of this form as its `distribution`; to save the layer, register the function with Keras.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from keras import backend as keras_backend
from keras import ops

from keras_attention import backend
from keras_attention.shapes import Tensor

MODES = ("parallel", "hard")
_PAIRED = 256  # in a loop on a GPU, softmax over up to so many positions compares pairs
LEAST = float(np.finfo("float32").min)  # replaces the highest score, -inf, of a fully masked row
LONGEST = 2**16  # greatest length for monotonic attention in an ONNX graph of unknown length


def softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the positions that the mask allows."""
    scores, dtype = _raised(scores)
    if mask is not None and backend.in_gpu_loop():
        weights = _softmax_by_pairs(scores, mask)
    else:
        weights = _masked_softmax(scores, mask)
    return ops.cast(weights, dtype)


def _masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    if mask is not None:
        # Masked scores become -inf: a finite number could be as high as an allowed score. In fully
        # masked rows, all scores become 0 instead. The infinity is a constant: for a tensor,
        # tf2onnx writes a multiplication, and 0 · inf is NaN.
        some = ops.any(mask, axis=-1, keepdims=True)
        scores = ops.where(ops.equal(mask, some), ops.where(mask, scores, 0.0), -np.inf)
    # Keras's softmax warns of a single score. PyTorch's exports trace an unknown length as 1.
    if scores.shape[-1] == 1:
        weights = ops.exp(scores - ops.logsumexp(scores, axis=-1, keepdims=True))
    else:
        weights = ops.softmax(scores, axis=-1)
    return weights if mask is None else ops.where(mask, weights, 0.0)


def _softmax_by_pairs(scores: Tensor, mask: Tensor) -> Tensor:
    """Return `w_i = 1 / Σ_j e^(s_j - s_i)`: one kernel for the weights, one for the gradient.

    With few positions, an exponential for each pair takes a GPU no extra time. If an exponential is
    infinite, the weight is 0.
    """
    few = ops.convert_to_tensor(ops.shape(scores)[-1] <= _PAIRED)  # XLA keeps one branch

    @ops.custom_gradient
    def weigh(scores: Tensor) -> tuple[Tensor, Any]:
        def by_pairs() -> Tensor:
            finite = ops.maximum(scores, LEAST)
            ratios = ops.exp(finite[..., None, :] - finite[..., None])
            total = ops.sum(ops.where(mask[..., None, :], ratios, 0.0), axis=-1)
            return ops.where(mask, 1 / total, 0.0)

        def gradient_by_pairs(upstream: Tensor) -> Tensor:
            differences = upstream[..., None] - upstream[..., None, :]
            return weights * ops.sum(weights[..., None, :] * differences, axis=-1)

        def gradient_in_turn(upstream: Tensor) -> Tensor:
            return weights * (upstream - ops.sum(weights * upstream, axis=-1, keepdims=True))

        weights = backend.checkpointed(
            ops.cond, few, by_pairs, lambda: _masked_softmax(scores, mask)
        )

        def gradient(g: Tensor) -> Tensor:
            return ops.cond(few, lambda: gradient_by_pairs(g), lambda: gradient_in_turn(g))

        return weights, gradient

    return weigh(scores)


def sparsemax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Sparsemax: the nearest point of the simplex (Martins and Astudillo 2016, arXiv 1602.02068).

    Most weights are exactly 0.
    """
    scores, dtype = _raised(scores)
    z, ordered, rank = _ordered(scores, mask)
    # Algorithm 1: the support is a prefix of the ordered scores, and gives the threshold.
    inside = ops.cast(1 + rank * ordered > ops.cumsum(ordered, axis=-1), z.dtype)
    size = ops.sum(inside, axis=-1, keepdims=True)
    threshold = (ops.sum(inside * ordered, axis=-1, keepdims=True) - 1) / size
    # The threshold has no gradient yet. One Newton step from it has the gradient of the scores.
    chosen = ops.cast(z > threshold, z.dtype)
    excess = ops.sum(ops.relu(z - threshold), axis=-1, keepdims=True) - 1
    threshold = threshold + excess / ops.maximum(ops.sum(chosen, axis=-1, keepdims=True), 1.0)
    return ops.cast(_visible(ops.relu(z - threshold), mask), dtype)


def entmax15(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """1.5-entmax, between softmax and sparsemax (Peters et al. 2019, arXiv 1905.05702).

    Some weights are exactly 0.
    """
    scores, dtype = _raised(scores)
    z, ordered, rank = _ordered(scores / 2, mask)
    # Algorithm 2: the threshold of each prefix of the ordered scores.
    mean = ops.cumsum(ordered, axis=-1) / rank
    square = ops.cumsum(ops.square(ordered), axis=-1) / rank
    deviation = rank * (square - ops.square(mean))
    thresholds = mean - ops.sqrt(ops.relu((1 - deviation) / rank))
    inside = ops.cast(thresholds <= ordered, z.dtype)
    last = ops.cast(rank == ops.sum(inside, axis=-1, keepdims=True), z.dtype)
    threshold = ops.sum(last * thresholds, axis=-1, keepdims=True)
    # The closed form on the chosen support has the right derivatives of any order.
    chosen = ops.cast(z > threshold, z.dtype)
    size = ops.sum(chosen, axis=-1, keepdims=True)
    mean = ops.sum(chosen * z, axis=-1, keepdims=True) / size
    deviation = ops.sum(chosen * ops.square(z - mean), axis=-1, keepdims=True)
    threshold = mean - ops.sqrt(ops.clip((1 - deviation) / size, 1e-12, 2.0))
    return ops.cast(_visible(chosen * ops.square(z - threshold), mask), dtype)


def monotonic(
    scores: Tensor, previous: Tensor, mask: Tensor | None = None, mode: str = "parallel"
) -> Tensor:
    """Monotonic attention (Raffel et al. 2017, arXiv 1704.00784).

    Each query starts at the position of the previous query, moves to the right, and stops at
    position `j` with the probability `p_j = sigmoid(e_j)`. The weights are the probabilities of
    stopping: `a_j = p_j q_j` with `q_j = (1 - p_{j-1}) q_{j-1} + a'_j`, where `a'` are the weights
    of the previous query. The weights sum to less than 1 if the query may reach the end without
    stopping.

    Args:
        scores: `e`, `(..., Tv)`.
        previous: `a'`, `(..., Tv)`; for the first query, 1 at position 0 and 0 elsewhere.
        mask: boolean; the query never stops at False positions.
        mode: `"parallel"` computes the weights in `log2(Tv)` steps, exactly for any length;
            `"hard"` stops at the first position with `e > 0` (algorithm 1; not differentiable).

    Raises:
        ValueError: if the mode is unknown.
    """
    if mode not in MODES:
        raise ValueError(
            f"monotonic expected mode to be one of {', '.join(MODES)}. Received: mode={mode!r}"
        )
    scores, dtype = _raised(_visible(scores, mask))
    previous = ops.cast(previous, scores.dtype)
    if mode == "hard":
        stop = ops.cast(scores > 0, scores.dtype)
        stay = 1 - stop
    else:
        stop, stay = ops.sigmoid(scores), ops.sigmoid(-scores)
    if mask is not None:
        mask = ops.broadcast_to(mask, ops.shape(scores))
        stop, stay = ops.where(mask, stop, 0.0), ops.where(mask, stay, 1.0)
    # The probability of moving on from position j - 1 to j.
    stay = ops.concatenate([ops.zeros_like(stay[..., :1]), stay[..., :-1]], axis=-1)
    return ops.cast(stop * _recurrence(stay, previous), dtype)


def _recurrence(factors: Tensor, terms: Tensor) -> Tensor:
    """Return `q` with `q_j = factors_j q_{j-1} + terms_j` along the last axis, `(..., Tv)`.

    After step n, the term of each position includes the terms of the last `2 ** n` positions.
    """
    length = LONGEST if backend.traces_onnx() else factors.shape[-1]
    if isinstance(length, int):
        distance = 1
        while distance < length:
            terms = terms + factors * _moved(terms, distance)
            factors = factors * _moved(factors, distance)
            distance *= 2
        return terms
    length = ops.shape(factors)[-1]
    positions = ops.arange(length, dtype="int32")

    def double(distance: Tensor, factors: Tensor, terms: Tensor) -> tuple[Tensor, ...]:
        inside = ops.cast(positions >= distance, factors.dtype)
        source = ops.maximum(positions - distance, 0)
        terms = terms + factors * inside * ops.take(terms, source, axis=-1)
        return 2 * distance, factors * inside * ops.take(factors, source, axis=-1), terms

    start = (ops.convert_to_tensor(1, "int32"), factors, terms)
    loop = ops.while_loop(
        lambda distance, *_: distance < length, double, start, maximum_iterations=32
    )
    return loop[2]


def _moved(x: Tensor, distance: int) -> Tensor:
    """Return `x`, shifted to the right by `distance` along the last axis, and filled with zeros."""
    return ops.concatenate([ops.zeros_like(x[..., :distance]), x[..., :-distance]], axis=-1)


BY_NAME = {"softmax": softmax, "sparsemax": sparsemax, "entmax15": entmax15}


def _raised(scores: Tensor) -> tuple[Tensor, str]:
    """Return the scores in at least float32, and the original dtype of the scores."""
    dtype = keras_backend.standardize_dtype(scores.dtype)
    if dtype in ("float16", "bfloat16"):
        scores = ops.cast(scores, "float32")
    return scores, dtype


def _ordered(scores: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return `scores - max`, the same values in descending order, and the ranks 1 … Tv.

    Values are clipped at -2: below -1, a weight is 0. The sorted values have no gradient.
    """
    if mask is not None:
        scores = ops.where(mask, scores, -np.inf)
    ordered = ops.flip(ops.sort(ops.stop_gradient(scores), axis=-1), axis=-1)
    highest = ops.maximum(ordered[..., :1], LEAST)
    z, ordered = (ops.clip(x - highest, -2.0, 1.0) for x in (scores, ordered))
    return z, ordered, ops.cast(ops.arange(1, ops.shape(z)[-1] + 1), z.dtype)


def _visible(weights: Tensor, mask: Tensor | None) -> Tensor:
    # Not a product: NaN times 0 is NaN. Masked scores are also replaced before a function uses
    # them, because the function's gradient at NaN is NaN.
    return weights if mask is None else ops.where(ops.cast(mask, "bool"), weights, 0.0)
