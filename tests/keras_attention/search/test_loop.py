"""Searches whose settled sentences leave the batch."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import backend, beam_search, fast_paths, greedy_search
from tests.keras_attention.decoders import END, LENGTH, START, B, Decoder, S
from tests.keras_attention.helpers import array, assert_close


@pytest.mark.parametrize(("find", "weights"), [(greedy_search, True), (beam_search, False)])
def test_finished_sentences_leave_state_and_memory_and_change_nothing(rng, find, weights):
    decoder, batches = Decoder(rng), []
    options = {"batch_size": B, "start_id": START, "end_id": END, "length_penalty": 0.7}
    options |= {"max_length": np.array([LENGTH, 2, 4]), "return_attention_weights": weights}
    if keras.backend.backend() == "jax":
        options["max_length"] = 4
    expected = array(find(decoder.step, decoder.state(), **options)._asdict())

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
    memory = {"row": ops.arange(B, dtype="int32")}
    found = find(step, state, memory=memory, **options)
    for name, x in array({k: v for k, v in found._asdict().items() if v is not None}).items():
        assert_close(x, expected[name])
    if not backend.under_xla():
        assert batches == sorted(batches, reverse=True)
        assert {B, B - 1, B - 2} == set(batches)
    del batches[:]
    with fast_paths(False):
        plain = find(step, state, memory=memory, **options)
    assert set(batches) == {B}
    for name, x in array({k: v for k, v in plain._asdict().items() if v is not None}).items():
        assert_close(x, expected[name])


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
