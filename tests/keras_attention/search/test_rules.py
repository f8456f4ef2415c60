"""Searches that are bound to ends, starts and limits of their own, against enumeration."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_attention import Shortlist, beam_search, greedy_search
from tests.keras_attention import decoders
from tests.keras_attention.decoders import (
    END,
    PAD,
    START,
    VOCABULARY,
    B,
    Decoder,
    S,
    assert_found,
    every_hypothesis,
)
from tests.keras_attention.helpers import array, assert_close

LENGTH = 3
SHORT = {"max_length": LENGTH, "length_penalty": 0.0}
FINDS = [greedy_search, beam_search]


def search(find, decoder, step=None, **options):
    return decoders.search(decoder, find, step, **{**SHORT, **options})


@pytest.mark.parametrize("ends", [(END,), (4, END)])
def test_there_are_as_many_results_as_hypotheses_and_the_rest_is_empty(rng, ends):
    decoder, hypotheses = Decoder(rng), [*every_hypothesis(LENGTH, ends)]
    assert len(hypotheses) < 150
    ranked = [sorted(hypotheses, key=lambda x, b=b: -decoder.score(b, x, 0.0)) for b in range(B)]
    found = search(beam_search, decoder, end_id=list(ends), beam_width=160, num_results=150)
    assert_found(decoder, found, ranked)
    greedy = search(greedy_search, decoder, end_id=ends, max_length=7)
    for b in range(B):
        ids = greedy.ids[b, : greedy.lengths[b]]
        assert not np.isin(ids[:-1], ends).any()
        assert len(ids) == 7 or ids[-1] in ends


@pytest.mark.parametrize("find", FINDS)
def test_each_sentence_may_start_with_a_token_of_its_own(rng, find):
    decoder = Decoder(rng)
    starts = np.array([4, 0, 3], "int32")
    found = search(find, decoder, start_id=starts)
    for b in range(B):
        one = search(find, decoder, start_id=int(starts[b]))
        length = np.ravel(one.lengths[b])[0]
        assert np.ravel(found.lengths[b])[0] == length
        np.testing.assert_array_equal(found.ids[b][..., :length], one.ids[b][..., :length])
        assert_close(found.scores[b], one.scores[b])


@pytest.mark.parametrize("with_memory", [False, True])
@pytest.mark.parametrize("find", FINDS)
def test_a_limit_of_0_gives_an_empty_sentence(rng, find, with_memory):
    decoder = Decoder(rng)
    options = {"max_length": np.array([2, 0, 3])}
    step = None
    if with_memory:
        options["memory"] = ops.zeros((B, 1))

        def step(tokens, state, memory):
            return decoder.step(tokens, state)

    found = search(find, decoder, step, **options)
    expected = search(find, decoder)
    assert np.ravel(found.lengths[1])[0] == 0
    assert np.ravel(found.scores[1])[0] == 0
    assert (found.ids[1] == PAD).all()
    assert_close(found.scores[2], expected.scores[2])
    found = search(find, decoder, step, **{**options, "max_length": np.zeros(3, "int32")})
    assert not found.lengths.any()


def test_the_vocabulary_need_not_be_known_when_a_search_is_traced(rng):
    decoder = Decoder(rng)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)], autograph=False)
    def run(columns):
        def step(tokens, state):
            log_probs, weights, state = decoder.step(tokens, state)
            return tf.gather(log_probs, columns, axis=1), weights, state

        return decoders.searched(decoder, beam_search, step, **SHORT, **wide)

    wide = {"beam_width": 7, "num_results": 7}
    found, expected = array(run(tf.range(VOCABULARY))), search(beam_search, decoder, **wide)
    np.testing.assert_array_equal(found.ids, expected.ids)
    assert_close(found.scores, expected.scores)


def ending(*, log_probs=None, weights=None, state=None):
    """A step whose values are changed."""
    changes = [x or (lambda x: x) for x in (log_probs, weights, state)]
    return lambda values: tuple(f(x) for f, x in zip(changes, values, strict=True))


def of_states(change):
    return ending(state=lambda x: keras.tree.map_structure(change, x))


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("coverage", [0.3, 5.0])
def test_the_coverage_penalty_is_the_papers(rng, penalty, coverage):
    """Every hypothesis there is, scored by Wu et al. 2016, equation 14, in NumPy."""
    decoder = Decoder(rng)
    decoder.weights *= 0.4  # so that some positions are covered, and some are not
    mask = np.arange(S) < np.array([S, 2, S - 1])[:, None]
    hypotheses = list(every_hypothesis(LENGTH))

    def score(b, ids):
        looked = decoder.attention(b, ids).sum(0)[mask[b]]
        lost = np.log(np.minimum(looked, 1.0)).sum()
        return decoder.score(b, ids, penalty) + coverage * lost

    wide = {"beam_width": len(hypotheses), "num_results": 11, "length_penalty": penalty}
    covering = {"coverage_penalty": coverage, "memory_mask": ops.convert_to_tensor(mask)}
    plain = search(beam_search, decoder, **wide)
    result = search(beam_search, decoder, **wide, **covering)
    changed = 0
    for b in range(B):
        best = sorted(hypotheses, key=lambda ids, b=b: -score(b, ids))[:11]
        for n, ids in enumerate(best):
            assert tuple(result.ids[b, n][: len(ids)]) == ids
            assert result.lengths[b, n] == len(ids)
            assert_close(result.scores[b, n], score(b, ids))
            changed += tuple(plain.ids[b, n][: len(ids)]) != ids
    assert changed


def test_weights_of_heads_cover_by_their_mean(rng):
    decoder = Decoder(rng)
    of_heads = ending(weights=lambda x: ops.stack([1.3 * x, 0.7 * x], axis=1))
    options = {"beam_width": 3, "coverage_penalty": 0.7, "memory_mask": ops.ones((B, S), "bool")}
    found = search(beam_search, decoder, lambda *x: of_heads(decoder.step(*x)), **options)
    assert_close(found.scores, search(beam_search, decoder, **options).scores)
    cut = ending(weights=lambda x: x[:, :-1])
    with pytest.raises(ValueError, match="attention weights as long as memory_mask, 2"):
        search(beam_search, decoder, lambda *x: cut(decoder.step(*x)), **options)


# By what is told: options, or what becomes of the step's values.
COVERING = [{"coverage_penalty": 0.2, "memory_mask": np.ones(s, bool)} for s in (5, (B + 1, 5))]
BAD = {
    "a token or several": [{"end_id": x} for x in ([[1], [2]], [], None)],
    f"among the {VOCABULARY}": [{"end_id": x} for x in ([END, VOCABULARY], -1)],
    "start_id to be a token": [{"start_id": x} for x in ([1] * (B + 1), 1.5)],
    "max_steps >= 1": [{"max_length": [1] * B, "max_steps": 0}],
    "max_length >= 1, an integer": [{"max_length": np.int64(0)}, {"max_length": 2.5}],
    "one for each sentence": [{"max_length": [3] * (B + 1)}],
    "batch_size >= 0": [{"batch_size": None}, {"batch_size": -1}],
    "a state with one row for each": [{"batch_size": np.int64(B + 1)}],
    "a memory with one row for": [{"memory": np.ones((B + 1, 2))}],
    "length_penalty >= 0": [{"length_penalty": -1.0}, {"length_penalty": "1"}],
    "a memory_mask with it, (B, S)": COVERING,
    "the next state in the form of the last": [
        of_states(lambda x: ops.repeat(x, 5, 0)),  # tiled already
        of_states(lambda x: x[:1]),
        ending(state=lambda x: ()),
    ],
    "and the next state. Received: 2 values": [lambda x: (x[0], x[2])],
    "and the next state. Received: NoneType": [lambda x: None],
    "log-probabilities from step, at most 0": [
        ending(log_probs=lambda x: x + 3.0),
        ending(log_probs=ops.exp),
    ],
    "(rows, vocabulary) from step": [
        ending(log_probs=lambda x: x[:, None]),
        ending(log_probs=lambda x: x[:1]),
        ending(log_probs=lambda x: x[:, 0]),
    ],
    "attention weights (": [
        ending(weights=lambda x: x[:1]),
        ending(weights=lambda x: x[:, 0]),
    ],
    "a Shortlist of ids (rows, K)": [
        ending(log_probs=lambda x: Shortlist(x, ops.zeros((1, 3), "int32"))),
    ],
}


def test_a_state_may_come_back_in_a_list_but_in_traced_loops_of_its_dtype_and_width():
    table = ops.log_softmax(ops.ones((VOCABULARY, VOCABULARY)))
    options = {"batch_size": B, "start_id": START, "end_id": END, "max_length": LENGTH}

    def run(change):
        def step(tokens, state):
            return ops.take(table, tokens, axis=0), None, change(state[0])

        @tf.function(autograph=False)
        def traced():
            return beam_search(step, (ops.zeros((B, 3)),), **options).scores

        return traced()

    assert_close(run(lambda x: [x]), array(run(lambda x: (x,))))
    for change in (lambda x: ops.cast(x, "float16"), lambda x: x[:, :2]):
        with pytest.raises(ValueError, match=r"in the form of the last, .*, 3.*float32"):
            run(change)


@pytest.mark.parametrize("expected", BAD)
def test_bad_arguments_and_steps_are_told_with_the_name_of_the_search(rng, expected):
    decoder = Decoder(rng)
    for change in BAD[expected]:
        options = change if isinstance(change, dict) else {}

        def step(*args, change=change, options=options):
            values = decoder.step(*args[:2])
            return values if options else change(values)

        for find in FINDS:
            told = rf"^{find.__name__} expected .*Received: "
            with pytest.raises(ValueError, match=told) as error:
                search(find, decoder, step, **options)
            assert expected in str(error.value)
            assert "\n" not in str(error.value)
