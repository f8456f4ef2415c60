"""Sampling against the probabilities of all hypotheses."""

import collections
import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import Shortlist, sample_search
from tests.keras_attention.decoders import END, START, VOCABULARY, B, Decoder
from tests.keras_attention.helpers import array, assert_close, compiled

LENGTH, COUNT = 2, 4000


def sample(decoder, step=None, **options):
    options = {"max_length": LENGTH, "num_results": COUNT, "seed": 7, **options}
    found = sample_search(
        step or decoder.step,
        decoder.state(),
        batch_size=B,
        start_id=START,
        end_id=END,
        pad_id=-1,
        return_attention_weights=False,
        **options,
    )
    return array(found._asdict())


def kept(log_probs, temperature=1.0, top_k=None, top_p=None):
    """The probabilities of the next token, in plain Python."""
    powers = np.exp(log_probs / temperature)
    order = sorted(range(len(powers)), key=lambda i: -powers[i])
    order = order[:top_k]
    total, before, chosen = powers[order].sum(), 0.0, {}
    for i in order:
        if top_p is None or before < top_p * total:
            chosen[i] = powers[i]
        before += powers[i]
    whole = sum(chosen.values())
    return {i: p / whole for i, p in chosen.items()}


def probabilities(decoder, b, **options):
    """The probability of every hypothesis."""
    found = collections.Counter()

    def grow(ids, p):
        if ids and (ids[-1] == END or len(ids) == LENGTH):
            found[ids] += p
            return
        for token, share in kept(decoder.row(b, ids)[0], **options).items():
            grow((*ids, token), p * share)

    grow((), 1.0)
    return found


OPTIONS = {
    "plain": {},
    "cold": {"temperature": 0.5},
    "hot": {"temperature": 3.0},
    "top-k": {"top_k": 2},
    "top-p": {"top_p": 0.7},
    "all": {"temperature": 1.5, "top_k": 3, "top_p": 0.8},
}


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_hypotheses_are_drawn_as_often_as_they_are_probable(rng, name, listed):
    decoder, options = Decoder(rng), OPTIONS[name]

    def step(tokens, state):
        log_probs, weights, state = decoder.step(tokens, state)
        order = ops.flip(ops.argsort(log_probs, axis=-1), -1)
        return Shortlist(ops.take_along_axis(log_probs, order, -1), order), weights, state

    found = sample(decoder, step if listed else None, **options)
    for b in range(B):
        expected = probabilities(decoder, b, **options)
        drawn = collections.Counter(
            tuple(int(x) for x in ids[:n])
            for ids, n in zip(found["ids"][b], found["lengths"][b], strict=True)
        )
        assert drawn.keys() <= expected.keys()
        for ids, p in expected.items():
            # Five standard deviations: once in a million.
            assert abs(drawn[ids] / COUNT - p) < 5 * np.sqrt(p * (1 - p) / COUNT) + 1e-9


def test_scores_are_log_probabilities_before_the_temperature(rng):
    decoder = Decoder(rng)
    found = sample(decoder, temperature=2.0, num_results=7, length_penalty=0.6)
    for b, n in itertools.product(range(B), range(7)):
        ids = tuple(found["ids"][b, n, : found["lengths"][b, n]])
        assert_close(found["scores"][b, n], decoder.score(b, ids, 0.6))


def test_the_seed_repeats_the_draws_and_a_generator_goes_on(rng):
    decoder = Decoder(rng)
    first, again, other = (sample(decoder, seed=s, num_results=50)["ids"] for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    generator = keras.random.SeedGenerator(5)
    first, second = (sample(decoder, seed=generator, num_results=50)["ids"] for _ in range(2))
    assert (first != second).any()


def test_a_compiled_search_finds_what_its_scores_say(rng):
    decoder = Decoder(rng, end_bias=1.0)

    def run():
        options = {"batch_size": B, "start_id": START, "end_id": END, "max_length": 4}
        found = sample_search(decoder.step, decoder.state(), num_results=11, seed=3, **options)
        return found._asdict()

    found = array(compiled(run)())
    for b, n in itertools.product(range(B), range(11)):
        ids = tuple(found["ids"][b, n, : found["lengths"][b, n]])
        assert_close(found["scores"][b, n], decoder.score(b, ids, 0.0))
        assert END not in ids[:-1]
        assert len(ids) == 4 or ids[-1] == END


def test_a_low_temperature_is_greedy(rng):
    decoder = Decoder(rng)
    found = sample(decoder, temperature=1e-3, num_results=3)
    for b in range(B):
        ids = ()
        while len(ids) < LENGTH and END not in ids:
            ids = (*ids, int(np.argmax(decoder.row(b, ids)[0])))
        for n in range(3):
            assert tuple(found["ids"][b, n, : len(ids)]) == ids


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"num_results": 0}, "num_results >= 1"),
        ({"top_k": 0}, "top_k >= 1"),
        ({"temperature": 0.0}, "temperature > 0"),
        ({"top_p": 0}, "top_p > 0"),
    ],
)
def test_bad_arguments_are_told(rng, options, expected):
    with pytest.raises(ValueError, match=f"sample_search expected {expected}.*Received: "):
        sample(Decoder(rng), **options)


def test_more_tokens_than_there_are_may_be_asked_for(rng):
    decoder = Decoder(rng)
    np.testing.assert_array_equal(
        np.unique(sample(decoder, top_k=VOCABULARY + 3)["ids"]),
        np.unique(sample(decoder)["ids"]),
    )
