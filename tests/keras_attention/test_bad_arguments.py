"""Mistakes in making a layer, and in inputs as other libraries take them, each told in one line."""

import keras
import pytest

from keras_attention import (
    AdditiveAttention,
    AttentionCell,
    AttentionPooling,
    AttentionRNN,
    CoverageAttention,
    HoistedRNN,
    LocalAttention,
    LocationAttention,
    LocationSensitiveAttention,
    MonotonicAttention,
    MonotonicChunkwiseAttention,
    MultiplicativeAttention,
    PointerGenerator,
    SinePositionEncoding,
    losses,
    mechanisms,
)
from tests.keras_attention.test_bad_calls import UNITS, ones, rnn

GRU, GENERAL = keras.layers.GRUCell(3), MultiplicativeAttention("general")


MADE_WRONG = {
    "the memory, as Addons takes it": (lambda: AdditiveAttention(8, ones(2, 5, 7)), "in the call"),
    "the memory by its name": (lambda: AdditiveAttention(8, memory=ones(2, 5, 7)), "prepare"),
    "lengths": (lambda: AdditiveAttention(8, memory_sequence_length=[3]), "a mask in the call"),
    "attention_layer_size": (lambda: rnn(attention_layer_size=8), "units="),
    "no noise": (
        lambda: MonotonicAttention(GENERAL, noise=None),
        "noise >= 0. Received: noise=None",
    ),
    "a word for a bias": (
        lambda: MonotonicAttention(GENERAL, bias_initial="x"),
        "bias_initial >= -inf. Received: bias_initial='x'",
    ),
    "a word for a seed": (lambda: AdditiveAttention(8, seed="x"), "an integer seed"),
    "two attentions": (
        lambda: AttentionRNN(GRU, [AdditiveAttention(8), AdditiveAttention(8)]),
        "not several: join the memories, or take a second layer",
    ),
    "a rate for use_bias": (lambda: AdditiveAttention(8, 0.1), "use_bias to be True or False"),
    "a rate for a flag of the base": (lambda: CoverageAttention(8, normalize=0.5), "normalize to"),
    "heads beside those of a score": (
        lambda: LocalAttention(MultiplicativeAttention("general"), num_heads=4),
        "as many heads as the inner layer has, 1",
    ),
    "an activation without units": (lambda: rnn(activation="relu"), "activation with units"),
    "an activation of a deep readout": (
        lambda: rnn(activation="relu", units=4, readout="deep"),
        "without a deep readout",
    ),
    "a dtype of its own": (lambda: rnn(dtype="mixed_bfloat16"), "keras.config.set_dtype_policy"),
    "a dtype that the score has not": (
        lambda: LocalAttention(MultiplicativeAttention("general"), dtype="mixed_bfloat16"),
        "inner layers with its dtype, bfloat16",
    ),
    "a dtype of the chunks alone": (
        lambda: MonotonicChunkwiseAttention(
            AdditiveAttention(8), AdditiveAttention(8, dtype="mixed_bfloat16")
        ),
        "inner layers with its dtype, float32",
    ),
    "a dtype that the cell has not": (
        lambda: HoistedRNN(keras.layers.GRUCell(3), dtype="mixed_bfloat16")(ones(2, 3, 4)),
        "a cell with its dtype, bfloat16",
    ),
    "units of a place that is not predicted": (
        lambda: LocalAttention(MultiplicativeAttention("general"), units=8),
        "units with predictive=True alone",
    ),
    "half a unit": (
        lambda: LocalAttention(MultiplicativeAttention("general"), 10, True, 0.5),
        "units >= 1, an integer or None",
    ),
    "a rate as text": (lambda: AdditiveAttention(8, dropout="0.1"), "0 <= dropout < 1"),
    "units of what has none": (lambda: PointerGenerator(8), "0 arguments by their place"),
    "a loss that is no name": (
        lambda: losses.AttentionLoss(losses.coverage),
        "loss to be one of coverage",
    ),
    "a width as text": (lambda: SinePositionEncoding("long"), "max_wavelength >= 1"),
    "several memories": (lambda: AttentionRNN(GRU, [AdditiveAttention(3)]), "an attention layer"),
    "a layer for a cell": (
        lambda: AttentionRNN(keras.layers.GRU(3), AdditiveAttention(3)),
        "GRUCell, not a layer",
    ),
    "a cell that attends": (
        lambda: AttentionRNN(AttentionCell(GRU, AdditiveAttention(3)), AdditiveAttention(3)),
        "not a layer that runs one",
    ),
    "no cell": (
        lambda: AttentionRNN(keras.layers.Dense(3), AdditiveAttention(3)),
        "state_size",
    ),
    "attention of Keras": (lambda: AttentionRNN(GRU, keras.layers.Attention()), "attention layer"),
    "an order": (lambda: rnn(order="graves"), "bahdanau, luong"),
    "a deep readout without units": (lambda: rnn(readout="deep"), "vector, deep, deep with units"),
    "a score": (lambda: MultiplicativeAttention("cosine"), "dot, scaled_dot, general"),
    "no units": (lambda: AdditiveAttention(0), "units >= 1"),
    "units as text": (lambda: AdditiveAttention("8"), "units >= 1, an integer"),
    "heads that do not divide": (lambda: AdditiveAttention(3, num_heads=2), "num_heads divides"),
    "a distribution": (lambda: AdditiveAttention(3, distribution="max"), "softmax, sparsemax"),
    "Keras's softmax, of no mask": (
        lambda: AdditiveAttention(3, distribution=keras.ops.softmax),
        "function(scores, mask)",
    ),
    "a function of scores alone": (
        lambda: AttentionPooling(3, keras.activations.sigmoid),
        "function(scores, mask)",
    ),
    "no places": (lambda: LocationAttention(0), "max_length >= 1"),
    "more than a score": (lambda: LocalAttention(CoverageAttention(3)), "nothing but a score"),
    "a score with dropout": (
        lambda: MonotonicAttention(AdditiveAttention(3, dropout=0.5)),
        "without dropout",
    ),
    "a mode": (lambda: MonotonicAttention(GENERAL, mode="soft"), "parallel"),
    "noise below 0": (lambda: MonotonicAttention(GENERAL, noise=-1), "noise >= 0"),
    "stops of two heads": (
        lambda: MonotonicAttention(AdditiveAttention(4, num_heads=2)),
        "one head",
    ),
    "stops of a distribution": (
        lambda: MonotonicAttention(GENERAL, distribution="sparsemax"),
        "no distribution",
    ),
    "chunks of nothing": (
        lambda: MonotonicChunkwiseAttention(GENERAL, MultiplicativeAttention("general"), 0),
        "chunk_size >= 1",
    ),
    "no filters": (lambda: LocationSensitiveAttention(3, 0), "filters >= 1"),
    "coverage of two heads": (lambda: CoverageAttention(4, num_heads=2), "num_heads=1"),
    "a mechanism's name": (lambda: mechanisms.make("additiv", 6), "one of additive"),
    "heads of values": (
        lambda: AttentionPooling(6, num_heads=3)(ones(2, 3, 5)),
        "num_heads=3 divides",
    ),
    "a row to pool": (lambda: AttentionPooling(3)(ones(2, 3)), "(B, T, dim)"),
    "places of an odd width": (lambda: SinePositionEncoding()(ones(2, 4, 7)), "multiple of 2"),
    "a step before it is built": (
        lambda: AdditiveAttention(3).prepare(ones(2, 3, 5)),
        "to be called, or build",
    ),
    "weights of one step": (
        lambda: losses.AttentionLoss("coverage")(ones(2, 3, 7), ones(2, 3)),
        "(B, T, S)",
    ),
    "inputs of one step": (lambda: rnn()(ones(2, 4), ones(2, 5, 6)), "inputs (B, T, dim)"),
    "a memory of one vector": (lambda: rnn()(ones(2, 3, 4), ones(2, 6)), "memory (B, S, dim)"),
    "a memory of another batch": (lambda: rnn()(ones(2, 3, 4), ones(3, 5, 6)), "one batch size"),
    "the inputs' mask": (
        lambda: rnn()(ones(2, 3, 4), ones(2, 5, 6), inputs_mask=ones(2, 5)),
        "inputs_mask (2, 3)",
    ),
    "states of two cells": (
        lambda: rnn()(ones(2, 3, 4), ones(2, 5, 6), initial_state=2 * [ones(2, UNITS)]),
        "1 initial state(s)",
    ),
}


@pytest.mark.parametrize("case", MADE_WRONG)
def test_a_layer_made_in_another_way_is_told_what_to_do(case):
    make, expected = MADE_WRONG[case]
    with pytest.raises(ValueError, match=r" expected .*Received: ") as error:
        make()
    assert expected in str(error.value)
    # Keras adds the arguments to the message of a call.
    assert "\n" not in str(error.value) or "Arguments received by" in str(error.value)
