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
