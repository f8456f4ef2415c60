"""The searches against plain Python searches over a random decoder."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import (
    AttentionRNN,
    MultiplicativeAttention,
    Shortlist,
    backend,
    beam_search,
    fast_paths,
    greedy_search,
)
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
    naive_beam_search,
    search,
    searched,
)
from tests.keras_attention.helpers import array, assert_close, compiled, few, normal

CASES = [(7, -1.0, 1, 0.6), (7, 2.0, 3, 0.6), (8, -1.0, 2, 0.0), (8, 2.0, 7, 2.0), (9, 2.0, 2, 2.0)]
# Found by drawing: a later beam of worse hypotheses pushes the best of a sentence out.
CASES += [(18, -1.0, 2, 1.0), (14, -1.0, 3, 1.0), (31, 1.0, 3, 1.5), (56, -2.0, 2, 1.0)]


@pytest.mark.parametrize(("seed", "end_bias", "width", "penalty"), few(CASES, *CASES[:2]))
def test_beam_search_equals_the_naive_search(seed, end_bias, width, penalty):
    decoder, results = Decoder(np.random.default_rng(seed), end_bias=end_bias), min(width, 3)
    result = search(decoder, beam_width=width, num_results=results, length_penalty=penalty)
    expected = [naive_beam_search(decoder, b, width, penalty)[:results] for b in range(B)]
    assert_found(decoder, result, expected, penalty)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="its loops have static lengths")
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_each_sentence_may_have_a_limit_of_its_own(rng, penalty):
    decoder, limits = Decoder(rng, end_bias=-1.0), [5, 1, 7]
    options = {"length_penalty": penalty, "max_length": ops.convert_to_tensor(limits, "int32")}
    result = search(decoder, beam_width=4, num_results=3, **options)
    expected = [naive_beam_search(decoder, b, 4, penalty, limits[b])[:3] for b in range(B)]
    assert_found(decoder, result, expected, penalty)
    greedy = search(decoder, greedy_search, **options)
    greedy = type(greedy)(*(x[:, None] for x in greedy))
    # A beam of one is a greedy search.
    expected = [naive_beam_search(decoder, b, 1, penalty, limits[b]) for b in range(B)]
    assert_found(decoder, greedy, expected, penalty)


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
    result = beam_search(
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


@pytest.mark.tensorflow
@pytest.mark.parametrize("find", [greedy_search, beam_search])
def test_weights_are_left_out_on_request_and_without_attention(rng, find):
    decoder = Decoder(rng)
    full = search(decoder, find)

    def step(tokens, state):
        log_probs, _, state = decoder.step(tokens, state)
        return log_probs, None, state

    for result in (
        search(decoder, find, return_attention_weights=False),
        search(decoder, find, step),
    ):
        assert result.attention_weights is None
        np.testing.assert_array_equal(result.ids, full.ids)


# On a GPU an iteration makes several steps: `most` is a multiple of their number, or none.
@pytest.mark.parametrize(
    ("find", "most", "limited"),
    [(greedy_search, 8, True), (beam_search, 5, True), (beam_search, 7, False)],
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
    rnn = AttentionRNN(
        keras.layers.GRUCell(11),
        MultiplicativeAttention("general"),
        units=13,
        input_feeding=True,
        return_attention_scores=True,
    )
    memory = normal(rng, B, S, 5)
    tokens = np.ones((B, 1), "int32")
    project(rnn(embed(tokens), memory)[0])

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
    result = array(beam_search(step, state, **options))
    for n in range(3):
        log_probs, weights = forced(result.ids[:, n])
        for b, length in enumerate(result.lengths[:, n]):
            steps = range(length)
            total = log_probs[b, steps, result.ids[b, n, :length]].sum()
            assert_close(result.scores[b, n], total)
            assert_close(result.attention_weights[b, n, :length], weights[b, :length])


@pytest.mark.tensorflow
def test_searches_live_in_a_saved_model(rng, tmp_path):
    import tensorflow as tf

    start, _, memory, layers = attention_decoder(rng)

    def translate(memory, max_length):
        step, state = start(memory)
        options = {"batch_size": ops.shape(memory)[0], "start_id": START, "end_id": END}
        finds = greedy_search, beam_search
        return [find(step, state, max_length=max_length, **options)._asdict() for find in finds]

    module = tf.Module()
    module.held = [w.value for layer in layers for w in layer.weights]
    specs = [tf.TensorSpec((None, None, memory.shape[-1])), tf.TensorSpec((None,), tf.int32)]
    module.translate = tf.function(translate, input_signature=specs)
    limits = tf.fill([B], LENGTH)
    tf.saved_model.save(module, str(tmp_path / "model"))
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for found, expected in zip(
        loaded.translate(memory, limits), translate(memory, limits), strict=True
    ):
        for name, x in found.items():
            assert_close(x, array(expected[name]))
    assert all(x["ids"].shape[0] == 0 for x in loaded.translate(memory[:0], limits[:0]))


@pytest.mark.tensorflow
@pytest.mark.parametrize("find", [greedy_search, beam_search])
def test_a_shortlist_of_the_best_tokens_is_enough(rng, find):
    decoder = Decoder(rng)

    def step(tokens, state):
        log_probs, weights, state = decoder.step(tokens, state)
        values, ids = ops.top_k(log_probs, 5)
        # In any order.
        return Shortlist(ops.flip(values, 1), ops.flip(ops.cast(ids, "int32"), 1)), weights, state

    expected, found = search(decoder, find), search(decoder, find, step)
    np.testing.assert_array_equal(found.ids, expected.ids)
    assert_close(found.scores, expected.scores)


@pytest.mark.parametrize(("find", "weights"), [(greedy_search, True), (beam_search, False)])
def test_finished_sentences_leave_state_and_memory_and_change_nothing(rng, find, weights):
    decoder, batches = Decoder(rng), []
    limits = 4 if keras.backend.backend() == "jax" else np.array([LENGTH, 2, 4])
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
        for found, wanted in zip(search(decoder, find, step, **options), expected, strict=True):
            assert (found is None) == (wanted is None)
            if wanted is not None:
                assert_close(found, wanted)

    assert_as_expected()
    if not backend.under_xla():
        assert batches == sorted(batches, reverse=True)
        assert {B, B - 1, B - 2} == set(batches)
    del batches[:]
    with fast_paths(False):
        assert_as_expected()
    assert set(batches) == {B}


@pytest.mark.parametrize("find", [greedy_search, beam_search])
def test_a_batch_of_no_sentences_has_no_results(rng, find):
    decoder = Decoder(rng)
    state = keras.tree.map_structure(lambda x: x[:0], decoder.state())

    def step(tokens, state, memory):
        assert tokens.shape[0] in (0, None)
        return decoder.step(tokens, state)

    found = searched(decoder, find, step, state=state, memory=ops.zeros((0, S)), batch_size=0)
    assert found.ids.shape[0] == found.scores.shape[0] == 0
