"""The searches against plain Python searches over a random decoder."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_attention as ka
from keras_attention import backend
from keras_attention.search.arguments import top_k
from tests.keras_attention.decoders import (
    END,
    LENGTH,
    PAD,
    START,
    VOCABULARY,
    B,
    Decoder,
    S,
    assert_found,
    changed,
    naive_search,
    search,
    searched,
)
from tests.keras_attention.helpers import array, assert_close, compiled, few, normal

BACKEND = keras.backend.backend()
FINDS = [ka.greedy_search, ka.beam_search]
EACH = [5, 1, 7]  # a limit for each sentence
# Seed, bias of the end, beam or None for a greedy search, length penalty, limit and ends.
CASES = [
    *((7, -1.0, 1, 0.6, 7, [END]), (7, 2.0, 3, 0.6, 7, [END]), (8, -1.0, 2, 0.0, 7, END)),
    *((8, 2.0, 7, 2.0, 7, [END]), (9, 2.0, 2, 2.0, 7, [4, END])),
    # Found by drawing: a later beam of worse hypotheses pushes the best of a sentence out.
    *((18, -1.0, 2, 1.0, 7, END), (14, -1.0, 3, 1.0, 7, END), (31, 1.0, 3, 1.5, 7, END)),
    *((56, -2.0, 2, 1.0, 7, END), (5, -1.0, 4, 0.0, EACH, END), (5, -1.0, 4, 1.0, EACH, END)),
    *((6, -1.0, None, 0.0, EACH, END), (6, -1.0, None, 1.0, 7, [4, END])),
    # All hypotheses there are, fewer than the results.
    *((3, 0.0, 160, 0.0, 3, [END]), (4, 0.0, 160, 0.0, 3, [4, END])),
]


@pytest.mark.parametrize(
    "case", few(CASES, *CASES[:2], *([CASES[9]] if BACKEND == "torch" else []))
)
def test_a_search_equals_the_naive_one(case):
    seed, bias, width, penalty, limits, ends = case
    decoder = Decoder(np.random.default_rng(seed), end_bias=bias)
    length = limits if isinstance(limits, int) else ops.convert_to_tensor(limits, "int32")
    options = {"length_penalty": penalty, "max_length": length, "end_id": ends}
    count = 150 if width == 160 else min(width or 1, 3)
    if width:
        result = search(decoder, beam_width=width, num_results=count, **options)
    else:
        result = search(decoder, ka.greedy_search, **options)
        result = type(result)(*(x[:, None] for x in result))

    def score(b, ids):
        return decoder.score(b, ids, penalty)

    ends, limits = np.ravel(ends), np.broadcast_to(limits, B)
    given = [(decoder, b, width or 1, score, limits[b], ends) for b in range(B)]
    expected = [naive_search(*one)[:count] for one in given]
    assert_found(decoder, result, expected, score)


def test_the_search_stops_when_nothing_better_can_come(rng):
    decoder = Decoder(rng, end_bias=4.0)
    full = search(decoder, beam_width=3, num_results=2)
    assert full.lengths.max() < LENGTH - 2
    # Were the search to go on to the end, it would meet the NaNs there.
    decoder.log_probs[:, -2:] = np.nan
    short = search(decoder, beam_width=3, num_results=2)
    np.testing.assert_array_equal(short.lengths, full.lengths)
    np.testing.assert_array_equal(short.scores, full.scores)


@pytest.mark.tensorflow
def test_a_search_goes_on_where_an_open_hypothesis_is_as_good_as_one_that_has_ended():
    """Half of the probability ends, and half goes on: an end is the best of all sequences."""
    table = ops.convert_to_tensor(np.log([[0.5, 1e-9, 0.5]] * 3).astype("float32"))
    options = {"batch_size": 1, "start_id": 1, "end_id": 2, "max_length": 5, "beam_width": 2}
    result = ka.beam_search(
        lambda tokens, _: (table[:1] + ops.zeros((2, 1)), None, ()), (), length_penalty=0, **options
    )
    assert_close((result.lengths, result.scores), ([[1]], [[np.log(0.5)]]))
    assert array(result.ids)[0, 0, 0] == 2


@pytest.mark.tensorflow
@pytest.mark.parametrize("floatx", ["float16", "float64"])
def test_a_search_does_not_depend_on_the_floats_that_keras_makes(rng, floatx):
    decoder, before = Decoder(rng), keras.config.floatx()
    expected = search(decoder, beam_width=3)
    keras.config.set_floatx(floatx)
    try:
        result = search(decoder, beam_width=3)
    finally:
        keras.config.set_floatx(before)
    assert_close(result, tuple(expected))
    assert result.scores.dtype == result.log_probs.dtype == "float32"


def shortlist(log_probs):
    """The best five, which are all, in another order."""
    values, ids = ops.top_k(log_probs, 5)
    return ka.Shortlist(ops.flip(values, 1), ops.flip(ops.cast(ids, "int32"), 1))


# Changes of the step, and options.
SAME = {
    "weights that nobody asks for": ({}, {"return_attention_weights": False}),
    "a step without weights": ({"weights": lambda x: None}, {}),
    "a shortlist": ({"log_probs": shortlist}, {}),
}


@pytest.mark.tensorflow
@pytest.mark.parametrize("find", FINDS)
@pytest.mark.parametrize("way", SAME)
def test_the_same_is_found_in_other_ways(rng, find, way):
    decoder, (changes, options) = Decoder(rng), SAME[way]
    expected = search(decoder, find)
    found = search(decoder, find, changed(decoder, **changes), **options)
    np.testing.assert_array_equal(found.ids, expected.ids)
    assert_close(found.scores, expected.scores)
    assert (found.attention_weights is None) == ("weights" in way)


@pytest.mark.parametrize("find", FINDS)
def test_each_sentence_may_start_with_a_token_of_its_own(rng, find):
    decoder, starts = Decoder(rng), np.array([4, 0, 3], "int32")
    found = search(decoder, find, start_id=starts)
    for b in range(B):
        one = search(decoder, find, start_id=int(starts[b]))
        length = np.ravel(one.lengths[b])[0]
        assert np.ravel(found.lengths[b])[0] == length
        np.testing.assert_array_equal(found.ids[b][..., :length], one.ids[b][..., :length])
        assert_close(found.scores[b], one.scores[b])


slow_on_tensorflow = [pytest.mark.slow] if BACKEND == "tensorflow" else []  # XLA takes seconds
# On a GPU an iteration makes several steps: `most` is a multiple of their number, or none.
UNROLLED = [(ka.greedy_search, 8, True), (ka.beam_search, 5, True)]


@pytest.mark.parametrize(
    ("find", "most", "limited"),
    [(ka.beam_search, 7, False), *(pytest.param(*x, marks=slow_on_tensorflow) for x in UNROLLED)],
)
def test_a_compiled_search_finds_the_same(rng, monkeypatch, find, most, limited):
    """For one length for all; and for limits of which one is above the bound, as on a GPU."""
    decoder = Decoder(rng, length=8, end_bias=-9.0 if limited else 3.0)
    limits = np.array([most + 3, 1, 3], "int32") if limited else most
    expected = search(decoder, find, max_length=np.minimum(limits, most) if limited else most)
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", "gpu" if limited else "cpu")

    def run(limits):
        bounds = {"max_length": limits, "max_steps": most} if limited else {"max_length": most}
        return searched(decoder, find, **bounds)

    found = array(compiled(run)(ops.convert_to_tensor(limits)))
    steps = expected.lengths.max()
    assert steps == most if limited else steps < most
    assert_close((found.scores, found.lengths), (expected.scores, expected.lengths))
    for name, padding in (("ids", PAD), ("log_probs", 0)):
        values = getattr(found, name)
        assert_close(values[..., :steps], getattr(expected, name)[..., :steps])
        assert (values[..., steps:] == padding).all()
    time = found.attention_weights.ndim - 2
    weights, rest = np.split(found.attention_weights, [steps], axis=time)
    assert_close(weights, np.split(expected.attention_weights, [steps], axis=time)[0])
    assert not rest.any()


def attention_decoder(rng):
    """An embedding, an attention RNN and an output layer, as a step function over one memory."""
    embed, project = keras.layers.Embedding(VOCABULARY, 7), keras.layers.Dense(VOCABULARY)
    attention, options = ka.MultiplicativeAttention("general"), {"units": 13, "input_feeding": True}
    cell = keras.layers.GRUCell(11)
    rnn = ka.AttentionRNN(cell, attention, return_attention_scores=True, **options)
    memory = normal(rng, B, S, 5)
    project(rnn(embed(np.ones((B, 1), "int32")), memory)[0])

    def forced(ids):
        """Log-probabilities and weights while the decoder is given the ids."""
        read = np.concatenate([np.full((len(ids), 1), START), ids[:, :-1]], 1)
        outputs, weights = rnn(embed(read), memory)
        return array((ops.log_softmax(project(outputs)), weights))

    def start(memory):
        prepared = rnn.prepare(memory)

        def step(tokens, state):
            output, weights, state = rnn.step(embed(tokens), prepared, state)
            return ops.log_softmax(project(output)), weights, state

        return step, rnn.initial_state(prepared)

    return start, forced, ops.convert_to_tensor(memory), [embed, rnn, project]


def test_weights_and_scores_are_those_of_a_forced_decode(rng):
    start, forced, memory, _ = attention_decoder(rng)
    step, state = start(memory)
    options = {"beam_width": 4, "num_results": 3, "length_penalty": 0.0}
    options |= {"batch_size": B, "start_id": START, "end_id": END, "max_length": LENGTH}
    result = array(ka.beam_search(step, state, **options))
    for n in range(3):
        log_probs, weights = forced(result.ids[:, n])
        for b, length in enumerate(result.lengths[:, n]):
            total = log_probs[b, range(length), result.ids[b, n, :length]].sum()
            assert_close(result.scores[b, n], total)
            assert_close(result.attention_weights[b, n, :length], weights[b, :length])


@pytest.mark.slow  # exports, which have other tests, are such models
@pytest.mark.tensorflow
def test_searches_live_in_a_saved_model(rng, tmp_path):
    import tensorflow as tf

    start, _, memory, layers = attention_decoder(rng)

    def translate(memory, max_length):
        step, state = start(memory)
        options = {"batch_size": ops.shape(memory)[0], "start_id": START, "end_id": END}
        return [find(step, state, max_length=max_length, **options)._asdict() for find in FINDS]

    module = tf.Module()
    module.held = [w.value for layer in layers for w in layer.weights]
    specs = [tf.TensorSpec((None, None, memory.shape[-1])), tf.TensorSpec((None,), tf.int32)]
    module.translate = tf.function(translate, input_signature=specs)
    limits = tf.fill([B], LENGTH)
    tf.saved_model.save(module, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    pairs = zip(loaded.translate(memory, limits), translate(memory, limits), strict=True)
    for found, expected in pairs:
        assert_close([found[name] for name in expected], [array(x) for x in expected.values()])
    assert all(x["ids"].shape[0] == 0 for x in loaded.translate(memory[:0], limits[:0]))


@pytest.mark.parametrize(("find", "weights"), [(ka.greedy_search, True), (ka.beam_search, False)])
def test_finished_sentences_leave_state_and_memory_and_change_nothing(rng, find, weights):
    decoder, batches = Decoder(rng), []
    limits = 4 if BACKEND == "jax" else np.array([LENGTH, 2, 4])
    options = {"max_length": limits, "return_attention_weights": weights, "length_penalty": 0.7}
    expected = search(decoder, find, **options)

    def step(tokens, state, memory):
        """The row is looked up in the memory, so that a wrong one is found out."""
        batches.append(memory["row"].shape[0])
        beams = tokens.shape[0] // memory["row"].shape[0]
        assert state["t"].shape == tokens.shape
        row = ops.repeat(memory["row"], beams, axis=0)
        log_probs, weights, new = decoder.step(tokens, {**state, "row": row})
        del new["row"]
        return log_probs, weights, new

    state = {name: x for name, x in decoder.state().items() if name != "row"}
    options |= {"state": state, "memory": {"row": ops.arange(B, dtype="int32")}}

    def assert_as_expected():
        found = search(decoder, find, step, **options)
        assert (found.attention_weights is None) == (expected.attention_weights is None)
        pairs = [(x, y) for x, y in zip(found, expected, strict=True) if y is not None]
        assert_close(*map(list, zip(*pairs, strict=True)))

    assert_as_expected()
    if not backend.under_xla():
        assert batches == sorted(batches, reverse=True)
        assert {B, B - 1, B - 2} == set(batches)
    del batches[:]
    with ka.fast_paths(False):
        assert_as_expected()
    assert set(batches) == {B}


@pytest.mark.parametrize("find", FINDS)
def test_a_batch_of_no_sentences_has_no_results(rng, find):
    decoder = Decoder(rng)
    state = keras.tree.map_structure(lambda x: x[:0], decoder.state())

    def step(tokens, state, memory):
        assert tokens.shape[0] in (0, None)
        return decoder.step(tokens, state)

    found = searched(decoder, find, step, state=state, memory=ops.zeros((0, S)), batch_size=0)
    assert found.ids.shape[0] == found.scores.shape[0] == 0


# A beam may be wider than the root of a vocabulary.
@pytest.mark.parametrize(("size", "k"), [(1999, 5), (2000, 5), (2503, 5), (2503, 51), (2503, 200)])
def test_the_best_tokens_of_a_large_vocabulary_are_those_of_a_sort(rng, size, k):
    x = normal(rng, 7, size)
    x[0, size - 1] = x[1, 0] = 9.0  # at both ends
    x[2, 101:107] = np.linspace(11, 10, 6)  # all in one place
    x[3, :] = -np.inf
    x[3, 7] = 1.0  # hardly anything left
    expected = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    for enabled in (True, False):
        with ka.fast_paths(enabled):
            values, index = (array(found) for found in top_k(ops.convert_to_tensor(x), k))
        np.testing.assert_array_equal(values, np.take_along_axis(x, expected, axis=-1))
        assert index.max() < size
        finite = np.isfinite(values)
        np.testing.assert_array_equal(index[finite], expected[finite])
        np.testing.assert_array_equal(np.take_along_axis(x, index, axis=-1), values)
