"""Searches that are bound to ends, starts and limits of their own, against enumeration."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import Shortlist, beam_search, greedy_search
from tests.keras_attention.decoders import END, PAD, START, VOCABULARY, B, Decoder
from tests.keras_attention.helpers import array, assert_close, compiled

LENGTH = 3
FINDS = [greedy_search, beam_search]


def search(find, decoder, step=None, **options):
    options = {"start_id": START, "end_id": END, "max_length": LENGTH, "pad_id": PAD, **options}
    options = {"batch_size": B, "length_penalty": 0.0, **options}
    return array(find(step or decoder.step, decoder.state(), **options)._asdict())


def every_hypothesis(ends=(END,), length=LENGTH):
    """All id sequences."""

    def grow(ids):
        if ids and (ids[-1] in ends or len(ids) == length):
            yield ids
            return
        for token in range(VOCABULARY):
            yield from grow((*ids, token))

    return list(grow(()))


def assert_best(decoder, found, hypotheses):
    """Hold a beam search that keeps everything to all hypotheses `[[ids, ...], ...]`."""
    for b in range(B):
        ranked = sorted(hypotheses[b], key=lambda ids: -decoder.score(b, ids, 0.0))
        for n in range(found["ids"].shape[1]):
            if n >= len(ranked):
                assert found["scores"][b, n] == -np.inf
                assert found["lengths"][b, n] == 0
                assert (found["ids"][b, n] == PAD).all()
                assert not found["attention_weights"][b, n].any()
                continue
            ids = tuple(found["ids"][b, n, : found["lengths"][b, n]])
            assert ids == ranked[n]
            assert_close(found["scores"][b, n], decoder.score(b, ids, 0.0))
            weights = decoder.attention(b, ids)
            assert_close(found["attention_weights"][b, n, : len(ids)], weights)


WIDE = {"beam_width": 160, "num_results": 150}


def test_there_are_as_many_results_as_hypotheses_and_the_rest_is_empty(rng):
    decoder = Decoder(rng)
    hypotheses = every_hypothesis()
    assert len(hypotheses) < 150
    assert_best(decoder, search(beam_search, decoder, **WIDE), [hypotheses] * B)


def test_any_of_several_tokens_ends_a_sentence(rng):
    decoder, ends = Decoder(rng), (4, END)
    found = search(beam_search, decoder, end_id=list(ends), **WIDE)
    assert_best(decoder, found, [every_hypothesis(ends)] * B)
    greedy = search(greedy_search, decoder, end_id=ends, max_length=7)
    for b in range(B):
        ids = greedy["ids"][b, : greedy["lengths"][b]]
        assert not np.isin(ids[:-1], ends).any()
        assert len(ids) == 7 or ids[-1] in ends


@pytest.mark.parametrize("find", FINDS)
def test_each_sentence_may_start_with_a_token_of_its_own(rng, find):
    decoder = Decoder(rng)
    starts = np.array([4, 0, 3], "int32")
    found = search(find, decoder, start_id=starts)
    for b in range(B):
        one = search(find, decoder, start_id=int(starts[b]))
        length = np.ravel(one["lengths"][b])[0]
        assert np.ravel(found["lengths"][b])[0] == length
        np.testing.assert_array_equal(found["ids"][b][..., :length], one["ids"][b][..., :length])
        assert_close(found["scores"][b], one["scores"][b])


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
    assert np.ravel(found["lengths"][1])[0] == 0
    assert np.ravel(found["scores"][1])[0] == 0
    assert (found["ids"][1] == PAD).all()
    assert_close(found["scores"][2], expected["scores"][2])
    found = search(find, decoder, step, **{**options, "max_length": np.zeros(3, "int32")})
    assert not found["lengths"].any()


@pytest.mark.parametrize("find", FINDS)
def test_the_vocabulary_need_not_be_known_when_a_search_is_traced(rng, find):
    import tensorflow as tf

    decoder = Decoder(rng)
    more = {"beam_width": 7, "num_results": 7} if find is beam_search else {}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
    def run(columns):
        def step(tokens, state):
            log_probs, weights, state = decoder.step(tokens, state)
            return tf.gather(log_probs, columns, axis=1), weights, state

        options = {"batch_size": B, "start_id": START, "end_id": END, "max_length": LENGTH}
        return find(step, decoder.state(), pad_id=PAD, length_penalty=0.0, **options, **more)

    found = array(run(tf.range(VOCABULARY)))._asdict()
    expected = search(find, decoder, **more)
    np.testing.assert_array_equal(found["ids"], expected["ids"])
    assert_close(found["scores"], expected["scores"])


def ending(*, log_probs=None, weights=None, state=None):
    """A step whose values are changed."""
    changes = [x or (lambda x: x) for x in (log_probs, weights, state)]
    return lambda values: tuple(f(x) for f, x in zip(changes, values, strict=True))


# Options, or what becomes of the step's values, and what is told.
BAD = {
    "ends": ({"end_id": [[1], [2]]}, "a token or several"),
    "no end": ({"end_id": []}, "a token or several"),
    "None for an end": ({"end_id": None}, "a token or several"),
    "an end of another vocabulary": ({"end_id": [END, VOCABULARY]}, f"among the {VOCABULARY}"),
    "an end below 0": ({"end_id": -1}, f"among the {VOCABULARY}"),
    "starts of another batch": ({"start_id": [1] * (B + 1)}, "start_id to be a token, or one for"),
    "a start between two tokens": ({"start_id": 1.5}, "start_id to be a token"),
    "no steps": ({"max_length": [1] * B, "max_steps": 0}, "max_steps >= 1"),
    "length 0": ({"max_length": np.int64(0)}, "max_length >= 1"),
    "half a length": ({"max_length": 2.5}, "max_length >= 1, an integer"),
    "lengths of another batch": ({"max_length": [3] * (B + 1)}, "one for each sentence"),
    "no batch size": ({"batch_size": None}, "batch_size >= 0"),
    "a batch size below 0": ({"batch_size": -1}, "batch_size >= 0"),
    "another batch size": ({"batch_size": np.int64(B + 1)}, "a state with one row for each"),
    "a memory of another batch": ({"memory": np.ones((B + 1, 2))}, "a memory with one row for"),
    "a penalty below 0": ({"length_penalty": -1.0}, "length_penalty >= 0"),
    "a penalty as text": ({"length_penalty": "1"}, "length_penalty >= 0"),
    "a mask of one row": (
        {"coverage_penalty": 0.2, "memory_mask": np.ones(5, bool)},
        "a memory_mask with it, (B, S)",
    ),
    "a mask of another batch": (
        {"coverage_penalty": 0.2, "memory_mask": np.ones((B + 1, 5), bool)},
        "a memory_mask with it, (B, S)",
    ),
    "a state that is tiled already": (
        ending(state=lambda x: keras.tree.map_structure(lambda y: ops.repeat(y, 5, 0), x)),
        "the next state in the form of the last",
    ),
    "two values": (lambda x: (x[0], x[2]), "and the next state. Received: 2 values"),
    "no values": (lambda x: None, "and the next state. Received: NoneType"),
    "logits": (ending(log_probs=lambda x: x + 3.0), "log-probabilities from step, at most 0"),
    "probabilities": (ending(log_probs=ops.exp), "log-probabilities from step, at most 0"),
    "an axis of steps": (ending(log_probs=lambda x: x[:, None]), "(rows, vocabulary) from step"),
    "one row": (ending(log_probs=lambda x: x[:1]), "(rows, vocabulary) from step"),
    "one token": (ending(log_probs=lambda x: x[:, 0]), "(rows, vocabulary) from step"),
    "weights of one row": (ending(weights=lambda x: x[:1]), "attention weights ("),
    "weights of no place": (ending(weights=lambda x: x[:, 0]), "attention weights ("),
    "no state": (ending(state=lambda x: ()), "the next state in the form of the last"),
    "a state of one row": (
        ending(state=lambda x: keras.tree.map_structure(lambda y: y[:1], x)),
        "the next state in the form of the last",
    ),
    "ids of another shape": (
        ending(log_probs=lambda x: Shortlist(x, ops.zeros((1, 3), "int32"))),
        "a Shortlist of ids (rows, K)",
    ),
}


@pytest.mark.parametrize("find", FINDS)
def test_a_state_may_come_back_in_a_list_but_in_traced_loops_of_its_dtype_and_width(find):
    table = ops.log_softmax(ops.ones((VOCABULARY, VOCABULARY)))
    options = {"batch_size": B, "start_id": START, "end_id": END, "max_length": LENGTH}

    def run(change):
        def step(tokens, state):
            return ops.take(table, tokens, axis=0), None, change(state[0])

        return compiled(lambda: find(step, (ops.zeros((B, 3)),), **options).scores)()

    assert_close(run(lambda x: [x]), array(run(lambda x: (x,))))
    for change in (lambda x: ops.cast(x, "float16"), lambda x: x[:, :2]):
        with pytest.raises(ValueError, match=r"in the form of the last, .*, 3.*float32"):
            run(change)


# Greedy search is a beam search of another name.
@pytest.mark.parametrize(
    ("find", "case"),
    [
        *((beam_search, case) for case in BAD),
        *((greedy_search, case) for case in ("ends", "two values", "logits")),
    ],
)
def test_bad_arguments_and_steps_are_told_with_the_name_of_the_search(rng, find, case):
    (change, expected), decoder = BAD[case], Decoder(rng)
    options = change if isinstance(change, dict) else {}

    def step(*args):
        values = decoder.step(*args[:2])
        return values if options else change(values)

    with pytest.raises(ValueError, match=rf"^{find.__name__} expected .*Received: ") as error:
        search(find, decoder, step, **options)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


def test_greedy_search_is_a_loop_over_the_best_tokens_in_random_searches():
    """Batches, vocabularies, lengths, ends and limits drawn at random, against plain Python."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        batch, size, length = rng.integers(1, 6), rng.integers(2, 8), int(rng.integers(1, 7))
        table = np.log(rng.dirichlet(np.ones(size), size)).astype("float32")
        start = rng.integers(0, size, batch).astype("int32")
        ends = sorted({int(x) for x in rng.integers(0, size, 2)})
        tensor = ops.convert_to_tensor(table)

        def step(tokens, state, tensor=tensor):
            return ops.take(tensor, tokens, axis=0), None, state

        options = {"start_id": start, "end_id": ends, "max_length": length, "pad_id": -1}
        result = array(greedy_search(step, (), batch_size=int(batch), **options)._asdict())
        for b in range(batch):
            ids, last, total = [], start[b], 0.0
            while len(ids) < length and (not ids or ids[-1] not in ends):
                total += table[last].max()
                last = int(table[last].argmax())
                ids.append(last)
            row = result["ids"][b]
            assert row[: len(ids)].tolist() == ids
            assert (row[len(ids) :] == -1).all()
            assert result["lengths"][b] == len(ids)
            assert_close(result["scores"][b], total)
