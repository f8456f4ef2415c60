"""Mistakes in making a layer and in calling it, each told in one line."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_attention as ka

UNITS, HALF = 17, "mixed_bfloat16"
Additive, Chunkwise = ka.AdditiveAttention, ka.MonotonicChunkwiseAttention


def general(**options):
    return ka.MultiplicativeAttention("general", **options)


def rnn(**options):
    return ka.AttentionRNN(keras.layers.GRUCell(UNITS), Additive(UNITS), **options)


def gru():
    return keras.layers.GRUCell(3)


def cell():
    return ka.AttentionCell(gru(), general())


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


MADE_WRONG = [
    ("in the call", lambda: Additive(8, ones(2, 5, 7))),  # the memory, as in Addons
    ("prepare", lambda: Additive(8, memory=ones(2, 5, 7))),
    ("a mask in the call", lambda: Additive(8, memory_sequence_length=[3])),
    ("units=", lambda: rnn(attention_layer_size=8)),
    ("noise >= 0", lambda: ka.MonotonicAttention(general(), noise=None)),
    ("noise >= 0", lambda: ka.MonotonicAttention(general(), noise=-1)),
    ("bias_initial >= -inf", lambda: ka.MonotonicAttention(general(), bias_initial="x")),
    ("an integer seed", lambda: Additive(8, seed="x")),
    ("not several: join the memories", lambda: ka.AttentionRNN(gru(), [Additive(8)] * 2)),
    ("use_bias to be True or False", lambda: Additive(8, 0.1)),
    ("normalize to be True or False", lambda: ka.CoverageAttention(8, normalize=0.5)),
    ("as many heads as the inner layer has, 1", lambda: ka.LocalAttention(general(), num_heads=4)),
    ("activation only with units", lambda: rnn(activation="relu")),
    ("and the attentional readout", lambda: rnn(activation="relu", units=4, readout="maxout")),
    ("keras.config.set_dtype_policy", lambda: rnn(dtype=HALF)),
    ("inner layers with its dtype", lambda: ka.LocalAttention(general(), dtype=HALF)),
    ("inner layers with its dtype", lambda: Chunkwise(Additive(8), Additive(8, dtype=HALF))),
    ("a cell with its dtype", lambda: ka.HoistedRNN(gru(), dtype=HALF)(ones(2, 3, 4))),
    ("units with predictive=True alone", lambda: ka.LocalAttention(general(), units=8)),
    ("units >= 1, an integer", lambda: ka.LocalAttention(general(), 10, True, 0.5)),
    ("units >= 1, an integer", lambda: Additive(0)),
    ("units >= 1, an integer", lambda: Additive("8")),
    ("0 <= dropout < 1", lambda: Additive(8, dropout="0.1")),
    ("0 arguments by their place", lambda: ka.PointerGenerator(8)),
    ("loss to be one of coverage", lambda: ka.losses.AttentionLoss(ka.losses.coverage)),
    ("max_wavelength >= 1", lambda: ka.SinePositionEncoding("long")),
    ("GRUCell, not a layer", lambda: ka.AttentionRNN(keras.layers.GRU(3), Additive(3))),
    ("not a layer that runs one", lambda: ka.AttentionRNN(cell(), Additive(3))),
    ("not a layer that runs one", lambda: ka.AttentionRNN(keras.layers.Dense(3), Additive(3))),
    ("an attention layer", lambda: ka.AttentionRNN(gru(), keras.layers.Attention())),
    ("bahdanau, luong", lambda: rnn(order="graves")),
    ("maxout with units", lambda: rnn(readout="maxout")),
    ("dot, scaled_dot, general", lambda: ka.MultiplicativeAttention("cosine")),
    ("num_heads divides", lambda: Additive(3, num_heads=2)),
    ("num_heads divides", lambda: ka.AttentionPooling(6, num_heads=4)),
    ("num_heads=3 divides", lambda: ka.AttentionPooling(6, num_heads=3)(ones(2, 3, 5))),
    ("softmax, sparsemax", lambda: Additive(3, distribution="max")),
    # The function takes no mask.
    ("function(scores, mask)", lambda: Additive(3, distribution=keras.ops.softmax)),
    ("function(scores, mask)", lambda: ka.AttentionPooling(3, keras.activations.sigmoid)),
    ("max_length >= 1", lambda: ka.LocationAttention(0)),
    ("nothing but a score", lambda: ka.LocalAttention(ka.CoverageAttention(3))),
    ("without dropout", lambda: ka.MonotonicAttention(Additive(3, dropout=0.5))),
    ("parallel", lambda: ka.MonotonicAttention(general(), mode="soft")),
    ("of num_heads=2", lambda: Chunkwise(Additive(4, num_heads=2), general())),
    ("no distribution", lambda: ka.MonotonicAttention(general(), distribution="sparsemax")),
    ("chunk_size >= 1", lambda: Chunkwise(general(), general(), 0)),
    ("filters >= 1", lambda: ka.LocationSensitiveAttention(3, 0)),
    ("num_heads=1", lambda: ka.CoverageAttention(4, num_heads=2)),
    ("one of additive", lambda: ka.mechanisms.make("additiv", 6)),
    ("no Bidirectional around it", lambda: keras.layers.Bidirectional(rnn())),
]


def dot(query, value, **shapes):
    """Call dot attention with ones of these shapes; masks are boolean."""
    others = {n: np.ones(s, "bool" if "mask" in n else "float32") for n, s in shapes.items()}
    return ka.MultiplicativeAttention("dot")(ones(*query), ones(*value), **others)


def point(*shapes):
    return ka.PointerGenerator()(*(ones(*shape) for shape in shapes))


def built_for(dim):
    layer = ka.SinePositionEncoding()
    layer(ones(2, 3, dim))
    return layer


def asked_for_scores_late(layer, count=2):
    inputs = [keras.Input((None, 4))] * count
    layer(*inputs)
    layer(*inputs, return_attention_scores=True)


X, Q, V, GRID = ones(2, 3, 4), (2, 3, 7), (2, 5, 7), ones(2, 3, 5, 4)
INSTEAD = "use AttentionRNN(cell, attention)(inputs, memory)"
LATE = "expected return_attention_scores=True at its first call"
POINTED, IN_TIME = "features (B, T, dim), logits", keras.layers.TimeDistributed
BAD_CALLS = [
    ("query (B, Tq, dim) or (B, dim)", lambda: dot((2, 3, 5, 7), V)),
    ("value (B, Tv, dim)", lambda: dot(Q, (2, 7))),
    ("one batch size", lambda: dot(Q, (3, 5, 7))),
    ("one batch size", lambda: rnn()(X, ones(3, 5, 6))),
    ("query and key of the same width", lambda: dot(Q, (2, 5, 11))),
    ("key and value of the same length", lambda: dot(Q, (2, 5, 11), key=(2, 4, 7))),
    ("query_mask (2, 3)", lambda: dot(Q, V, query_mask=(2, 5))),
    ("value_mask (2, 5)", lambda: dot(Q, V, value_mask=(2, 3))),
    ("key_mask (2, 5)", lambda: dot(Q, V, key_mask=(2, 5, 7))),
    ("attention_mask (2, 3, 5)", lambda: dot(Q, V, attention_mask=(2, 5, 3))),
    ("layer(query, value)", lambda: Additive(UNITS)([X, X])),
    ("layer(query, value)", lambda: Additive(UNITS)([keras.Input((3, 4))] * 2)),
    ("layer(query, value)", lambda: Additive(UNITS)(X)),
    ("layer(query, value)", lambda: IN_TIME(ka.LocalAttention(general()))(GRID)),
    ("layer(inputs, memory)", lambda: rnn()([X, X])),
    ("layer(inputs, memory)", lambda: rnn()([keras.Input((3, 4))] * 2)),
    ("layer(inputs, memory)", lambda: IN_TIME(rnn())(GRID)),
    ("layer(value)", lambda: ka.AttentionPooling(UNITS)([X, X])),
    (INSTEAD, lambda: keras.layers.RNN(cell())),
    (INSTEAD, lambda: ka.HoistedRNN(cell())),
    (INSTEAD, lambda: keras.layers.RNN(rnn())),
    ("layer(features, logits, attention_weights, source_ids)", lambda: ka.PointerGenerator()(X)),
    (POINTED, lambda: point((2, 4), (2, 3, 7), (2, 3, 5), (2, 5))),
    (POINTED, lambda: point((2, 3, 4), (2, 4, 7), (2, 3, 5), (2, 5))),
    (POINTED, lambda: point((2, 3, 4), (2, 3, 7), (2, 3, 6), (2, 5))),
    (POINTED, lambda: point((2, 3, 4), (2, 3, 7), (2, 3, 5), (3, 5))),
    ("layer(outputs, attention_weights)", lambda: ka.losses.AttentionLoss("coverage")(X)),
    ("no arguments but query, value", lambda: Additive(UNITS)(X, X, mask=[X > 0] * 2)),
    ("memory_mask, initial_state", lambda: rnn()(X, X, value_mask=X[..., 0] > 0)),
    ("inputs (B, T, dim)", lambda: rnn()(ones(2, 4), ones(2, 5, 6))),
    ("memory (B, S, dim)", lambda: rnn()(X, ones(2, 6))),
    ("inputs_mask (2, 3)", lambda: rnn()(X, ones(2, 5, 6), inputs_mask=ones(2, 5))),
    ("1 initial state(s)", lambda: rnn()(X, ones(2, 5, 6), initial_state=2 * [ones(2, UNITS)])),
    ("(B, T, dim)", lambda: ka.AttentionPooling(3)(ones(2, 3))),
    ("multiple of 2", lambda: ka.SinePositionEncoding()(ones(2, 4, 7))),
    ("value (2, 3, 7)", lambda: built_for(4)(ones(2, 3, 7))),
    ("value (2, 3, 5, 6)", lambda: built_for(4)(ones(2, 3, 5, 6))),
    ("value (2, 4)", lambda: built_for(4)(ones(2, 4))),
    ("a known dim", lambda: ka.SinePositionEncoding()(keras.Input((None, None)))),
    ("to be called, or build", lambda: Additive(3).prepare(ones(2, 3, 5))),
    ("position at least", lambda: Additive(3)(ones(2, 0, 5), ones(2, 3, 5))),
    ("position at least", lambda: Additive(3)(ones(2, 3, 5), ones(2, 0, 5))),
    ("position at least", lambda: rnn()(ones(2, 0, 5), ones(2, 3, 5))),
    ("position at least", lambda: rnn()(ones(2, 3, 5), ones(2, 0, 5))),
    ("position at least", lambda: ka.AttentionPooling(3)(ones(2, 0, 5))),
    ("(B, T, S)", lambda: ka.losses.AttentionLoss("coverage")(ones(2, 3, 7), ones(2, 3))),
    (LATE, lambda: asked_for_scores_late(Additive(3))),
    (LATE, lambda: asked_for_scores_late(ka.AttentionPooling(3), count=1)),
    (LATE, lambda: asked_for_scores_late(rnn())),
]


BUILT = {
    "attention": (lambda: Additive(UNITS), [(2, 3, 4), (2, 5, 6)]),
    "products": (general, [(2, 3, 4), (2, 5, 6)]),
    "pooling": (lambda: ka.AttentionPooling(UNITS), [(2, 3, 4)]),
    "decoder": (rnn, [(2, 3, 4), (2, 5, 6)]),
    "cell": (lambda: ka.AttentionCell(gru(), ka.CoverageAttention(3)), [(2, 4), (2, 5, 6)]),
    "copying": (ka.PointerGenerator, [(2, 3, 4), (2, 3, 7), (2, 3, 5), (2, 5)]),
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
CELLS, THREE = [ones(2, UNITS)] * 2, [ones(3, UNITS)]
OTHER = STATE._replace(attention=ones(2, 5))
PREPARED = [
    ("a memory from prepare", lambda: MADE.step(ROW, MEMORY, STATE)),
    ("a memory from prepare", lambda: MADE.initial_state(MEMORY)),
    ("inputs (rows, 4) of one", lambda: MADE.step(ROW[:, None], READY, STATE)),
    ("inputs (rows, 4) of one", lambda: MADE.step(ROW[:, 1:], READY, STATE)),
    ("a multiple of 2 queries", lambda: MADE.step(ones(3, 4), READY, STATE._replace(cell=THREE))),
    ("(4, 17)", lambda: MADE.step(ones(4, 4), READY, STATE)),
    ("a State, from initial", lambda: MADE.step(ROW, READY, STATE.cell)),
    ("a State of (2, 17)", lambda: MADE.step(ROW, READY, STATE._replace(cell=[ones(2, 5)]))),
    ("a State of (2, 17)", lambda: MADE.step(ROW, READY, STATE._replace(cell=CELLS))),
    ("a state (), from initial_state(memory)", lambda: MADE.step(ROW, READY, OTHER)),
    ("or a State of this layer", lambda: rnn()(X, MEMORY, initial_state=OTHER)),
    ("a query (rows, 17) of one step", lambda: MADE.attention.step(ones(2, 1, UNITS), READY, ())),
    ("1 initial state(s)", lambda: MADE.initial_state(READY, [ones(3, UNITS)])),
    ("1 initial state(s)", lambda: MADE.initial_state(READY, [None])),
    ("of width 6, as it was built", lambda: MADE.prepare(ones(2, 5, 7))),
    ("of width 6, as it was built", lambda: MADE.prepare(ones(2, 5, 7), ones(2, 5, 6))),
    ("a value (B, Tv, dim)", lambda: MADE.prepare(ones(2, 6))),
    ("a tensor to prepare", lambda: MADE.prepare(READY)),
    ("a tensor to prepare", lambda: MADE.prepare([[1.0]])),
    ("a key like it", lambda: MADE.prepare(MEMORY, ones(2, 5))),
    ("mask (2, 5)", lambda: MADE.prepare(MEMORY, mask=ones(3, 5))),
    ("arange(5) < lengths[:, None]", lambda: MADE.prepare(MEMORY, mask=np.array([5, 3]))),
    ("arange(5) < lengths[:, None]", lambda: Additive(3)(MEMORY, MEMORY, value_mask=[5, 3])),
    ("expected one ", lambda: Additive(3)(MEMORY, MEMORY, value_mask=[ones(2, 3), ones(2, 5)])),
    ("expected one ", lambda: ka.SinePositionEncoding()(MEMORY, mask=[None, ones(2, 5)])),
]


PADDED = "padded tensors and masks, such as x.to_tensor"
IDS = tf.ragged.constant([[True, True], [True]])
ROWS = tf.ragged.constant([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]], ragged_rank=1)
RAGGED = [
    (PADDED, lambda: ka.AttentionPooling(3)(ROWS)),
    (PADDED, lambda: Additive(3)(ROWS, ROWS)),
    (PADDED, lambda: Additive(3)(ones(2, 2, 2), ones(2, 2, 2), value_mask=IDS)),
    (PADDED, lambda: rnn()(ones(2, 3, 4), memory=ROWS)),
    (PADDED, lambda: MADE.prepare(ROWS)),
    (PADDED, lambda: MADE.prepare(MEMORY, ROWS)),
    (PADDED, lambda: MADE.prepare(ones(2, 2, 6), mask=IDS)),
    (PADDED, lambda: MADE.attention.step(ROWS, READY, ())),
    (PADDED, lambda: ka.PointerGenerator()(X, ROWS, ones(2, 3, 4), ones(2, 4))),
    (PADDED, lambda: ka.losses.AttentionLoss("coverage")(ones(2, 2, 3), ROWS)),
    (PADDED, lambda: ka.SinePositionEncoding()(ROWS)),
]
MISTAKES = [*MADE_WRONG, *BAD_CALLS, *PREPARED, *RAGGED]


@pytest.mark.parametrize(("words", "call"), MISTAKES)
def test_a_mistake_is_told_with_the_right_way(words, call):
    assert_told(call, words)


@pytest.mark.parametrize("name", ka.mechanisms.BY_NAME)
def test_the_state_of_a_mechanism_is_of_its_memory_and_rows(name):
    layer = ka.mechanisms.make(name, UNITS)
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
