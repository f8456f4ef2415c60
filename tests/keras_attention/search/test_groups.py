"""Diverse beam search against a plain Python search."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import Shortlist, beam_search
from tests.keras_attention.decoders import END, PAD, START, VOCABULARY, B, Decoder, S
from tests.keras_attention.helpers import array, assert_close

LENGTH = 4


def search(decoder, step=None, **options):
    options = {"beam_width": 6, "num_groups": 3, "max_length": LENGTH, **options}
    found = beam_search(
        step or decoder.step,
        decoder.state(),
        batch_size=B,
        start_id=START,
        end_id=END,
        pad_id=PAD,
        **options,
    )
    return array(found)


def in_groups(decoder, b, penalty, diversity, groups=3, share=2):
    """Vijayakumar et al. 2018, algorithm 1, with the Hamming diversity."""
    beams = [[()] for _ in range(groups)]
    for t in range(LENGTH):
        chosen = []
        for g in range(groups):
            grown = []
            for ids in beams[g]:
                total = sum(decoder.row(b, ids[:i])[0][ids[i]] for i in range(len(ids)))
                if ids and ids[-1] == END:
                    grown.append((total / ((5 + len(ids)) / 6) ** penalty, ids))
                    continue
                for token, p in enumerate(decoder.row(b, ids)[0]):
                    cost = diversity * chosen.count(token)
                    value = (total + p - cost) / ((6 + len(ids)) / 6) ** penalty
                    grown.append((value, (*ids, token)))
            grown.sort(key=lambda pair: -pair[0])
            beams[g] = [ids for _, ids in grown[:share]]
            chosen += [ids[-1] for ids in beams[g] if len(ids) == t + 1]
    found = [ids for beam in beams for ids in beam]
    return sorted(found, key=lambda ids: -decoder.score(b, ids, penalty))


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("diversity", [0.5, 4.0])
def test_groups_pay_for_tokens_that_others_chose_before(rng, diversity, penalty, listed):
    decoder = Decoder(rng, length=LENGTH, end_bias=-1.0)

    def step(tokens, state):
        log_probs, weights, state = decoder.step(tokens, state)
        return Shortlist(*ops.top_k(log_probs, VOCABULARY)), weights, state

    found = search(
        decoder,
        step if listed else None,
        num_results=6,
        length_penalty=penalty,
        diversity=diversity,
    )
    for b in range(B):
        expected = in_groups(decoder, b, penalty, diversity)
        ids = [tuple(found.ids[b, n, : found.lengths[b, n]]) for n in range(6)]
        assert sorted(ids) == sorted(expected)
        for n in range(6):
            assert_close(found.scores[b, n], decoder.score(b, ids[n], penalty))
            weights = decoder.attention(b, ids[n])
            assert_close(found.attention_weights[b, n, : len(ids[n])], weights)
        assert (np.diff(found.scores[b]) <= 1e-6).all()


def test_without_diversity_every_group_finds_the_same(rng):
    decoder = Decoder(rng, length=LENGTH)
    found = search(decoder, num_results=6, diversity=0.0)
    alone = search(decoder, beam_width=2, num_groups=1, num_results=2)
    assert_close(found.scores[:, ::3], alone.scores)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="its batches keep their sizes")
def test_sentences_leave_when_all_their_groups_are_settled(rng):
    decoder = Decoder(rng, length=LENGTH, end_bias=2.0)
    expected = search(decoder, num_results=3)

    def step(tokens, state, memory):
        assert tokens.shape[0] in (None, 6 * memory.shape[0])
        return decoder.step(tokens, state)

    found = search(decoder, step, num_results=3, memory=ops.zeros((B, S)))
    np.testing.assert_array_equal(found.lengths, expected.lengths)
    assert_close(found.scores, expected.scores)


def test_groups_that_do_not_divide_the_beam_are_told(rng):
    with pytest.raises(ValueError, match="num_groups to divide beam_width"):
        search(Decoder(rng), num_groups=4)
