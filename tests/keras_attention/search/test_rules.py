"""Limits of 0, graphs, coverage penalties, and mistakes in arguments of a search or its step."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_attention import Shortlist, beam_search, greedy_search
from tests.keras_attention import decoders
from tests.keras_attention.decoders import END, PAD, START, VOCABULARY, B, Decoder, S, changed
from tests.keras_attention.helpers import array, assert_close

LENGTH = 3
SHORT = {"max_length": LENGTH, "length_penalty": 0.0}
FINDS = [greedy_search, beam_search]


def search(find, decoder, step=None, **options):
    return decoders.search(decoder, find, step, **{**SHORT, **options})


@pytest.mark.parametrize("with_memory", [False, True])
@pytest.mark.parametrize("find", FINDS)
def test_a_limit_of_0_gives_an_empty_sentence(rng, find, with_memory):
    decoder, limits = Decoder(rng), {"max_length": np.array([2, 0, 3])}
    memory = {"memory": ops.zeros((B, 1))} if with_memory else {}
    found = search(find, decoder, changed(decoder), **limits, **memory)
    assert np.ravel(found.lengths[1])[0] == 0
    assert np.ravel(found.scores[1])[0] == 0
    assert (found.ids[1] == PAD).all()
    assert_close(found.scores[2], search(find, decoder).scores[2])
    limits = {"max_length": np.zeros(3, "int32")}
    assert not search(find, decoder, changed(decoder), **limits, **memory).lengths.any()


def test_the_vocabulary_need_not_be_known_when_a_search_is_traced(rng):
    decoder, wide = Decoder(rng), {"beam_width": 7, "num_results": 7}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)], autograph=False)
    def run(columns):
        step = changed(decoder, log_probs=lambda x: tf.gather(x, columns, axis=1))
        return decoders.searched(decoder, beam_search, step, **SHORT, **wide)

    found, expected = array(run(tf.range(VOCABULARY))), search(beam_search, decoder, **wide)
    np.testing.assert_array_equal(found.ids, expected.ids)
    assert_close(found.scores, expected.scores)


@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize(("coverage", "width"), [(0.3, 160), (5.0, 160), (0.7, 3)])
def test_the_coverage_penalty_is_the_papers(rng, penalty, coverage, width):
    """Scored by Wu et al. 2016, equation 14, in NumPy: every hypothesis there is, and a beam."""
    decoder = Decoder(rng)
    decoder.weights *= 0.4  # so that some positions are covered, and some are not
    mask = np.arange(S) < np.array([S, 2, S - 1])[:, None]

    def score(b, ids):
        looked = decoder.attention(b, ids).sum(0)[mask[b]] if ids else np.ones(1)
        return decoder.score(b, ids, penalty) + coverage * np.log(np.minimum(looked, 1.0)).sum()

    count = min(width, 11)
    wide = {"beam_width": width, "num_results": count, "length_penalty": penalty}
    covering = {"coverage_penalty": coverage, "memory_mask": ops.convert_to_tensor(mask)}
    result = search(beam_search, decoder, **wide, **covering)
    best = [decoders.naive_search(decoder, b, width, score, LENGTH)[:count] for b in range(B)]
    decoders.assert_found(decoder, result, best, score)
    assert width < 160 or (search(beam_search, decoder, **wide).ids != result.ids).any()


def test_weights_of_heads_cover_by_their_mean(rng):
    decoder = Decoder(rng)
    options = {"beam_width": 3, "coverage_penalty": 0.7, "memory_mask": ops.ones((B, S), "bool")}
    of_heads = changed(decoder, weights=lambda x: ops.stack([1.3 * x, 0.7 * x], axis=1))
    found = search(beam_search, decoder, of_heads, **options)
    assert_close(found.scores, search(beam_search, decoder, **options).scores)
    with pytest.raises(ValueError, match="attention weights as long as memory_mask, 2"):
        search(beam_search, decoder, changed(decoder, weights=lambda x: x[:, :-1]), **options)


def test_a_state_may_come_back_in_a_list_but_in_traced_loops_of_its_dtype_and_width():
    table = ops.log_softmax(ops.ones((VOCABULARY, VOCABULARY)))
    options = {"batch_size": B, "start_id": START, "end_id": END, "max_length": LENGTH}

    def run(change):
        def step(tokens, state):
            return ops.take(table, tokens, axis=0), None, change(state[0])

        traced = tf.function(lambda state: beam_search(step, state, **options), autograph=False)
        return traced((ops.zeros((B, 3)),)).scores

    assert_close(run(lambda x: [x]), array(run(lambda x: (x,))))
    for change in (lambda x: ops.cast(x, "float16"), lambda x: x[:, :2]):
        with pytest.raises(ValueError, match=r"in the form of the last, .*, 3.*float32"):
            run(change)


def of_states(change):
    return {"state": lambda x: keras.tree.map_structure(change, x)}


# By what is told: options, or what becomes of the step's values, by name or of all.
COVERING = [{"coverage_penalty": 0.2, "memory_mask": np.ones(s, bool)} for s in (5, (B + 1, 5))]
BAD_OPTIONS = {
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
}
BAD_STEPS = {
    "the next state in the form of the last": [
        *(of_states(lambda x: ops.repeat(x, 5, 0)), of_states(lambda x: x[:1])),  # tiled, cut
        {"state": lambda x: ()},
    ],
    "and the next state. Received: 2 values": [lambda x: (x[0], x[2])],
    "and the next state. Received: NoneType": [lambda x: None],
    "log-probabilities from step, at most 0": [
        *({"log_probs": lambda x: x + 3.0}, {"log_probs": ops.exp}),
    ],
    "(rows, vocabulary) from step": [
        *({"log_probs": lambda x: x[:, None]}, {"log_probs": lambda x: x[:1]}),
        {"log_probs": lambda x: x[:, 0]},
    ],
    "attention weights (": [{"weights": lambda x: x[:1]}, {"weights": lambda x: x[:, 0]}],
    "a Shortlist of ids (rows, K)": [
        {"log_probs": lambda x: Shortlist(x, ops.zeros((1, 3), "int32"))},
    ],
}
MISTAKES = [(told, change, {}) for told, changes in BAD_STEPS.items() for change in changes]
MISTAKES += [(told, {}, options) for told, several in BAD_OPTIONS.items() for options in several]


@pytest.mark.parametrize("find", FINDS)
@pytest.mark.parametrize(("told", "change", "options"), MISTAKES)
def test_bad_arguments_and_steps_are_told_with_the_name_of_the_search(
    rng, find, told, change, options
):
    decoder = Decoder(rng)
    step = changed(decoder, **(change if isinstance(change, dict) else {}))
    if not isinstance(change, dict):
        plain, step = step, lambda *given: change(plain(*given))
    with pytest.raises(ValueError, match=rf"^{find.__name__} expected .*Received: ") as error:
        search(find, decoder, step, **options)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
