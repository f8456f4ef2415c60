"""The coverage penalty of the beam search against NumPy, over a random decoder."""

import numpy as np
import pytest
from keras import ops

from tests.keras_attention.decoders import (
    B,
    Decoder,
    S,
    every_hypothesis,
    search,
)
from tests.keras_attention.helpers import assert_close


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("coverage", [0.3, 5.0])
def test_the_coverage_penalty_is_the_papers(rng, penalty, coverage):
    """Every hypothesis there is, scored by Wu et al. 2016, equation 14, in NumPy."""
    decoder, length = Decoder(rng), 3
    decoder.weights *= 0.4  # so that some positions are covered, and some are not
    mask = np.arange(S) < np.array([S, 2, S - 1])[:, None]
    hypotheses = list(every_hypothesis(length))

    def score(b, ids):
        looked = decoder.attention(b, ids).sum(0)[mask[b]]
        lost = np.log(np.minimum(looked, 1.0)).sum()
        return decoder.score(b, ids, penalty) + coverage * lost

    options = {
        "beam_width": len(hypotheses),
        "num_results": 11,
        "length_penalty": penalty,
        "max_length": length,
    }
    plain = search(decoder, **options)
    covering = {"coverage_penalty": coverage, "memory_mask": ops.convert_to_tensor(mask)}
    result = search(decoder, **options, **covering)
    changed = 0
    for b in range(B):
        best = sorted(hypotheses, key=lambda ids, b=b: -score(b, ids))[:11]
        for n, ids in enumerate(best):
            assert tuple(result.ids[b, n][: len(ids)]) == ids
            assert result.lengths[b, n] == len(ids)
            assert_close(result.scores[b, n], score(b, ids))
            changed += tuple(plain.ids[b, n][: len(ids)]) != ids
    assert changed


class OtherWeights(Decoder):
    """Its weights are those of two heads, whose mean is a Decoder's, or cut."""

    def __init__(self, rng, change):
        super().__init__(rng)
        self.change = change

    def step(self, tokens, state):
        log_probs, weights, state = super().step(tokens, state)
        return log_probs, self.change(weights), state


def test_weights_of_heads_cover_by_their_mean_and_those_of_another_length_are_refused(rng):
    options = {"beam_width": 3, "coverage_penalty": 0.7, "memory_mask": ops.ones((B, S), "bool")}
    heads = OtherWeights(rng, lambda weights: ops.stack([1.3 * weights, 0.7 * weights], axis=1))
    plain = OtherWeights(rng, lambda weights: weights)
    plain.log_probs, plain.weights = heads.log_probs, heads.weights
    assert_close(search(heads, **options).scores, search(plain, **options).scores)
    plain.change = lambda weights: weights[:, :-1]
    with pytest.raises(ValueError, match="attention weights as long as memory_mask, 2"):
        search(plain, **options)
