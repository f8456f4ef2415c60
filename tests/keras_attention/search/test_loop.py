"""Searches whose settled sentences leave the batch."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import backend, beam_search, fast_paths, greedy_search
from tests.keras_attention.decoders import END, LENGTH, START, B, Decoder, S, search
from tests.keras_attention.helpers import assert_close


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

    options = {"batch_size": 0, "start_id": START, "end_id": END, "max_length": LENGTH}
    found = find(step, state, memory=ops.zeros((0, S)), **options)
    assert found.ids.shape[0] == found.scores.shape[0] == 0
