"""The coverage penalty of the beam search against NumPy, over a random decoder."""

import numpy as np
import pytest
from keras import ops

from keras_attention import beam_search
from tests.keras_attention.decoders import (
    END,
    START,
    B,
    Decoder,
    S,
    every_hypothesis,
    naive_beam_search,
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


def test_a_small_beam_with_a_coverage_penalty_equals_a_naive_search(rng):
    decoder = Decoder(rng)
    decoder.weights *= 0.3
    mask = np.ones((B, S), bool)

    def lost(b, ids):
        return np.log(np.clip(decoder.attention(b, ids).sum(0), 1e-6, 1.0)).sum() if ids else 0.0

    class Covering:
        """The decoder, scored with what is lost for coverage."""

        def score(self, b, ids, penalty):
            return decoder.score(b, ids, penalty) + 0.5 * lost(b, ids)

    result = search(
        decoder,
        beam_width=3,
        num_results=3,
        length_penalty=0.6,
        coverage_penalty=0.5,
        memory_mask=ops.convert_to_tensor(mask),
    )
    for b in range(B):
        for n, ids in enumerate(naive_beam_search(Covering(), b, 3, 0.6)):
            assert tuple(result.ids[b, n][: len(ids)]) == ids
            assert_close(result.scores[b, n], Covering().score(b, ids, 0.6))


@pytest.mark.parametrize(
    ("change", "mask"),
    [
        (lambda weights: (weights, weights), (B, S)),
        (lambda weights: None, (B, S)),
        (lambda weights: weights, (B, S + 1)),
        (lambda weights: weights, (S,)),
    ],
    ids=["several memories", "no weights", "another length", "no batch"],
)
def test_coverage_is_of_one_memory_as_long_as_its_mask(rng, change, mask):
    decoder = Decoder(rng)

    def step(tokens, state):
        log_probs, weights, state = decoder.step(tokens, state)
        return log_probs, change(weights), state

    options = {"start_id": START, "end_id": END, "max_length": 3, "batch_size": B}
    with pytest.raises(ValueError, match=r"beam_search expected.* coverage_penalty"):
        beam_search(
            step, decoder.state(), coverage_penalty=1.0, memory_mask=np.ones(mask, bool), **options
        )
