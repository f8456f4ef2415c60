"""Mistakes in making a layer and in calling it, each told in one line."""

import keras
import numpy as np
import pytest
import tensorflow as tf

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

UNITS = 17


def general(**options):
    return MultiplicativeAttention("general", **options)


def rnn(**options):
    return AttentionRNN(keras.layers.GRUCell(UNITS), AdditiveAttention(UNITS), **options)


def gru():
    return keras.layers.GRUCell(3)


def ones(*shape):
    return np.ones(shape, "float32")


def assert_told(call, words):
    """The call ends in an error of one line: expected, with these words, and received."""
    with pytest.raises(ValueError, match=r"^[\w.]+ expected .*Received: ") as error:
        call()
    told = str(error.value)
    assert words in told
    # Keras adds its call's arguments to an error of a layer of its own.
    assert "\n" not in told or told.startswith("HoistedRNN")


MADE_WRONG = {
    "in the call": [lambda: AdditiveAttention(8, ones(2, 5, 7))],  # the memory, as in Addons
    "prepare": [lambda: AdditiveAttention(8, memory=ones(2, 5, 7))],
    "a mask in the call": [lambda: AdditiveAttention(8, memory_sequence_length=[3])],
    "units=": [lambda: rnn(attention_layer_size=8)],
    "noise >= 0": [lambda noise=x: MonotonicAttention(general(), noise=noise) for x in (None, -1)],
    "bias_initial >= -inf": [lambda: MonotonicAttention(general(), bias_initial="x")],
    "an integer seed": [lambda: AdditiveAttention(8, seed="x")],
    "not several: join the memories": [lambda: AttentionRNN(gru(), [AdditiveAttention(8)] * 2)],
    "use_bias to be True or False": [lambda: AdditiveAttention(8, 0.1)],
    "normalize to be True or False": [lambda: CoverageAttention(8, normalize=0.5)],
    "as many heads as the inner layer has, 1": [lambda: LocalAttention(general(), num_heads=4)],
    "activation only with units": [lambda: rnn(activation="relu")],
    "and the attentional readout": [lambda: rnn(activation="relu", units=4, readout="maxout")],
    "keras.config.set_dtype_policy": [lambda: rnn(dtype="mixed_bfloat16")],
    "inner layers with its dtype": [
        lambda: LocalAttention(general(), dtype="mixed_bfloat16"),
        lambda: MonotonicChunkwiseAttention(
            AdditiveAttention(8), AdditiveAttention(8, dtype="mixed_bfloat16")
        ),
    ],
    "a cell with its dtype": [lambda: HoistedRNN(gru(), dtype="mixed_bfloat16")(ones(2, 3, 4))],
    "units with predictive=True alone": [lambda: LocalAttention(general(), units=8)],
    "units >= 1, an integer": [
        lambda: LocalAttention(general(), 10, True, 0.5),
        lambda: AdditiveAttention(0),
        lambda: AdditiveAttention("8"),
    ],
    "0 <= dropout < 1": [lambda: AdditiveAttention(8, dropout="0.1")],
    "0 arguments by their place": [lambda: PointerGenerator(8)],
    "loss to be one of coverage": [lambda: losses.AttentionLoss(losses.coverage)],
    "max_wavelength >= 1": [lambda: SinePositionEncoding("long")],
    "GRUCell, not a layer": [lambda: AttentionRNN(keras.layers.GRU(3), AdditiveAttention(3))],
    "not a layer that runs one": [
        lambda: AttentionRNN(AttentionCell(gru(), AdditiveAttention(3)), AdditiveAttention(3)),
        lambda: AttentionRNN(keras.layers.Dense(3), AdditiveAttention(3)),
    ],
    "an attention layer": [lambda: AttentionRNN(gru(), keras.layers.Attention())],
    "bahdanau, luong": [lambda: rnn(order="graves")],
    "maxout with units": [lambda: rnn(readout="maxout")],
    "dot, scaled_dot, general": [lambda: MultiplicativeAttention("cosine")],
    "num_heads divides": [
        lambda: AdditiveAttention(3, num_heads=2),
        lambda: AttentionPooling(6, num_heads=4),
    ],
    "num_heads=3 divides": [lambda: AttentionPooling(6, num_heads=3)(ones(2, 3, 5))],
    "softmax, sparsemax": [lambda: AdditiveAttention(3, distribution="max")],
    "function(scores, mask)": [
        lambda: AdditiveAttention(3, distribution=keras.ops.softmax),  # which takes no mask
        lambda: AttentionPooling(3, keras.activations.sigmoid),
    ],
    "max_length >= 1": [lambda: LocationAttention(0)],
    "nothing but a score": [lambda: LocalAttention(CoverageAttention(3))],
    "without dropout": [lambda: MonotonicAttention(AdditiveAttention(3, dropout=0.5))],
    "parallel": [lambda: MonotonicAttention(general(), mode="soft")],
    "of num_heads=2": [
        lambda: MonotonicChunkwiseAttention(AdditiveAttention(4, num_heads=2), general())
    ],
    "no distribution": [lambda: MonotonicAttention(general(), distribution="sparsemax")],
    "chunk_size >= 1": [lambda: MonotonicChunkwiseAttention(general(), general(), 0)],
    "filters >= 1": [lambda: LocationSensitiveAttention(3, 0)],
    "num_heads=1": [lambda: CoverageAttention(4, num_heads=2)],
    "one of additive": [lambda: mechanisms.make("additiv", 6)],
    "no Bidirectional around it": [lambda: keras.layers.Bidirectional(rnn())],
}


def dot(query, value, **shapes):
    """Call dot attention with ones of these shapes; masks are boolean."""
    others = {n: np.ones(s, "bool" if "mask" in n else "float32") for n, s in shapes.items()}
    return MultiplicativeAttention("dot")(ones(*query), ones(*value), **others)


def built_for(dim):
    layer = SinePositionEncoding()
    layer(ones(2, 3, dim))
    return layer


def asked_for_scores_late(layer, count=2):
    inputs = [keras.Input((None, 4))] * count
    layer(*inputs)
    layer(*inputs, return_attention_scores=True)


X, Q, V = ones(2, 3, 4), (2, 3, 7), (2, 5, 7)
BAD_CALLS = {
    "query (B, Tq, dim) or (B, dim)": [lambda: dot((2, 3, 5, 7), V)],
    "value (B, Tv, dim)": [lambda: dot(Q, (2, 7))],
    "one batch size": [lambda: dot(Q, (3, 5, 7)), lambda: rnn()(X, ones(3, 5, 6))],
    "query and key of the same width": [lambda: dot(Q, (2, 5, 11))],
    "key and value of the same length": [lambda: dot(Q, (2, 5, 11), key=(2, 4, 7))],
    "query_mask (2, 3)": [lambda: dot(Q, V, query_mask=(2, 5))],
    "value_mask (2, 5)": [lambda: dot(Q, V, value_mask=(2, 3))],
    "key_mask (2, 5)": [lambda: dot(Q, V, key_mask=(2, 5, 7))],
    "attention_mask (2, 3, 5)": [lambda: dot(Q, V, attention_mask=(2, 5, 3))],
    "layer(query, value)": [
        lambda: AdditiveAttention(UNITS)([X, X]),
        lambda: AdditiveAttention(UNITS)([keras.Input((3, 4))] * 2),
        lambda: AdditiveAttention(UNITS)(X),
        lambda: keras.layers.TimeDistributed(LocalAttention(general()))(ones(2, 3, 5, 4)),
    ],
    "layer(inputs, memory)": [
        lambda: rnn()([X, X]),
        lambda: rnn()([keras.Input((3, 4))] * 2),
        lambda: keras.layers.TimeDistributed(rnn())(ones(2, 3, 5, 4)),
    ],
    "layer(value)": [lambda: AttentionPooling(UNITS)([X, X])],
    "use AttentionRNN(cell, attention)(inputs, memory)": [
        lambda: keras.layers.RNN(AttentionCell(keras.layers.GRUCell(2), general())),
        lambda: HoistedRNN(AttentionCell(keras.layers.GRUCell(2), general())),
        lambda: keras.layers.RNN(rnn()),
    ],
    "layer(features, logits, attention_weights, source_ids)": [lambda: PointerGenerator()(X)],
    "features (B, T, dim), logits": [
        lambda: PointerGenerator()(ones(2, 4), ones(2, 3, 7), ones(2, 3, 5), ones(2, 5)),
        lambda: PointerGenerator()(X, ones(2, 4, 7), ones(2, 3, 5), ones(2, 5)),
        lambda: PointerGenerator()(X, ones(2, 3, 7), ones(2, 3, 6), ones(2, 5)),
        lambda: PointerGenerator()(X, ones(2, 3, 7), ones(2, 3, 5), ones(3, 5)),
    ],
    "layer(outputs, attention_weights)": [lambda: losses.AttentionLoss("coverage")(X)],
    # `mask=[…]` is the habit of `keras.layers.Attention`.
    "no arguments but query, value": [lambda: AdditiveAttention(UNITS)(X, X, mask=[X > 0] * 2)],
    "memory_mask, initial_state": [lambda: rnn()(X, X, value_mask=X[..., 0] > 0)],
    "inputs (B, T, dim)": [lambda: rnn()(ones(2, 4), ones(2, 5, 6))],
    "memory (B, S, dim)": [lambda: rnn()(X, ones(2, 6))],
    "inputs_mask (2, 3)": [lambda: rnn()(X, ones(2, 5, 6), inputs_mask=ones(2, 5))],
    "1 initial state(s)": [lambda: rnn()(X, ones(2, 5, 6), initial_state=2 * [ones(2, UNITS)])],
    "(B, T, dim)": [lambda: AttentionPooling(3)(ones(2, 3))],
    "multiple of 2": [lambda: SinePositionEncoding()(ones(2, 4, 7))],
    "value (2, 3, 7)": [lambda: built_for(4)(ones(2, 3, 7))],
    "value (2, 3, 5, 6)": [lambda: built_for(4)(ones(2, 3, 5, 6))],
    "value (2, 4)": [lambda: built_for(4)(ones(2, 4))],
    "a known dim": [lambda: SinePositionEncoding()(keras.Input((None, None)))],
    "to be called, or build": [lambda: AdditiveAttention(3).prepare(ones(2, 3, 5))],
    "position at least": [
        lambda: AdditiveAttention(3)(ones(2, 0, 5), ones(2, 3, 5)),
        lambda: AdditiveAttention(3)(ones(2, 3, 5), ones(2, 0, 5)),
        lambda: rnn()(ones(2, 0, 5), ones(2, 3, 5)),
        lambda: rnn()(ones(2, 3, 5), ones(2, 0, 5)),
        lambda: AttentionPooling(3)(ones(2, 0, 5)),
    ],
    "(B, T, S)": [lambda: losses.AttentionLoss("coverage")(ones(2, 3, 7), ones(2, 3))],
    "expected return_attention_scores=True at its first call": [
        lambda: asked_for_scores_late(AdditiveAttention(3)),
        lambda: asked_for_scores_late(AttentionPooling(3), count=1),
        lambda: asked_for_scores_late(rnn()),
    ],
}


BUILT = {
    "attention": (lambda: AdditiveAttention(UNITS), [(2, 3, 4), (2, 5, 6)]),
    "products": (general, [(2, 3, 4), (2, 5, 6)]),
    "pooling": (lambda: AttentionPooling(UNITS), [(2, 3, 4)]),
    "decoder": (rnn, [(2, 3, 4), (2, 5, 6)]),
    "cell": (lambda: AttentionCell(gru(), CoverageAttention(3)), [(2, 4), (2, 5, 6)]),
    "copying": (PointerGenerator, [(2, 3, 4), (2, 3, 7), (2, 3, 5), (2, 5)]),
}


@pytest.mark.parametrize("case", BUILT)
def test_widths_that_are_unknown_or_others_than_the_layer_was_built_for_are_told(case):
    make, shapes = BUILT[case]
    unknown = [keras.Input((*shape[1:-1], None), shape[0]) for shape in shapes]
    assert_told(lambda: make()(*unknown), "known ")
    layer = make()
    layer(*(ones(*shape) for shape in shapes))
    for place in range(min(2, len(shapes)) if case != "copying" else 1):
        wider = [(*s[:-1], s[-1] + (i == place)) for i, s in enumerate(shapes)]
        for inputs in ([ones(*s) for s in wider], [keras.Input(s[1:], s[0]) for s in wider]):
            assert_told(lambda inputs=inputs: layer(*inputs), f"width {shapes[place][-1]}")


# A layer with what its steps take; no step here succeeds, so that none changes it.
MADE, ROW, MEMORY = rnn(), ones(2, 4), ones(2, 5, 6)
MADE(X, MEMORY)
READY = MADE.prepare(MEMORY)
STATE = MADE.initial_state(READY)
PREPARED = {
    "a memory from prepare": [
        lambda: MADE.step(ROW, MEMORY, STATE),
        lambda: MADE.initial_state(MEMORY),
    ],
    "inputs (rows, 4) of one": [
        lambda: MADE.step(ROW[:, None], READY, STATE),
        lambda: MADE.step(ROW[:, 1:], READY, STATE),
    ],
    "a multiple of 2 queries": [
        lambda: MADE.step(ones(3, 4), READY, STATE._replace(cell=[ones(3, UNITS)]))
    ],
    "(4, 17)": [lambda: MADE.step(ones(4, 4), READY, STATE)],
    "a State, from initial": [lambda: MADE.step(ROW, READY, STATE.cell)],
    "a State of (2, 17)": [
        lambda: MADE.step(ROW, READY, STATE._replace(cell=[ones(2, 5)])),
        lambda: MADE.step(ROW, READY, STATE._replace(cell=[ones(2, UNITS)] * 2)),
    ],
    "a state (), from initial_state(memory)": [
        lambda: MADE.step(ROW, READY, STATE._replace(attention=ones(2, 5)))
    ],
    "or a State of this layer": [
        lambda: rnn()(X, MEMORY, initial_state=STATE._replace(attention=ones(2, 5)))
    ],
    "a query (rows, 17) of one step": [lambda: MADE.attention.step(ones(2, 1, UNITS), READY, ())],
    "1 initial state(s)": [
        lambda: MADE.initial_state(READY, [ones(3, UNITS)]),
        lambda: MADE.initial_state(READY, [None]),
    ],
    "of width 6, as it was built": [
        lambda: MADE.prepare(ones(2, 5, 7)),
        lambda: MADE.prepare(ones(2, 5, 7), ones(2, 5, 6)),
    ],
    "a value (B, Tv, dim)": [lambda: MADE.prepare(ones(2, 6))],
    "a tensor to prepare": [lambda: MADE.prepare(READY), lambda: MADE.prepare([[1.0]])],
    "a key like it": [lambda: MADE.prepare(MEMORY, ones(2, 5))],
    "mask (2, 5)": [lambda: MADE.prepare(MEMORY, mask=ones(3, 5))],
    "arange(5) < lengths[:, None]": [
        lambda: MADE.prepare(MEMORY, mask=np.array([5, 3])),
        lambda: AdditiveAttention(3)(MEMORY, MEMORY, value_mask=[5, 3]),
    ],
    "expected one ": [
        lambda: AdditiveAttention(3)(MEMORY, MEMORY, value_mask=[ones(2, 3), ones(2, 5)]),
        lambda: SinePositionEncoding()(MEMORY, mask=[None, ones(2, 5)]),
    ],
}


IDS = tf.ragged.constant([[True, True], [True]])
ROWS = tf.ragged.constant([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]], ragged_rank=1)
RAGGED = {
    "padded tensors and masks, such as x.to_tensor": [
        lambda: AttentionPooling(3)(ROWS),
        lambda: AdditiveAttention(3)(ROWS, ROWS),
        lambda: AdditiveAttention(3)(ones(2, 2, 2), ones(2, 2, 2), value_mask=IDS),
        lambda: rnn()(ones(2, 3, 4), memory=ROWS),
        lambda: MADE.prepare(ROWS),
        lambda: MADE.prepare(MEMORY, ROWS),
        lambda: MADE.prepare(ones(2, 2, 6), mask=IDS),
        lambda: MADE.attention.step(ROWS, READY, ()),
        lambda: PointerGenerator()(ones(2, 2, 3), ROWS, ones(2, 2, 4), ones(2, 4)),
        lambda: losses.AttentionLoss("coverage")(ones(2, 2, 3), ROWS),
        lambda: SinePositionEncoding()(ROWS),
    ],
}
MISTAKES = [*MADE_WRONG.items(), *BAD_CALLS.items(), *PREPARED.items(), *RAGGED.items()]


@pytest.mark.parametrize(("words", "calls"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_a_mistake_is_told_with_the_right_way(words, calls):
    for call in calls:
        assert_told(call, words)


@pytest.mark.parametrize("name", mechanisms.BY_NAME)
def test_the_state_of_a_mechanism_is_of_its_memory_and_rows(name):
    layer = mechanisms.make(name, UNITS)
    layer(ones(2, 3, 6), ones(2, 5, 6))
    memory = layer.prepare(ones(2, 5, 6))
    state = layer.initial_state(memory)
    assert_told(lambda: layer.step(ones(2, 6), ones(2, 5, 6), state), "a memory from")
    assert_told(lambda: layer.initial_state(ones(2, 5, 6)), "a memory from")
    others = [ones(2, 5, 1)]
    if not isinstance(state, tuple):
        others += [keras.ops.concatenate([state, state]), None, ()]
    for other in others:
        assert_told(lambda other=other: layer.step(ones(2, 6), memory, other), "a state ")
