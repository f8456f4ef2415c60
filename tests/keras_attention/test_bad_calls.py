"""Mistakes in calling and making a layer, each told in one line."""

import re

import keras
import numpy as np
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
from tests.keras_attention.helpers import normal

B, TQ, TV, DQ, DV, UNITS = 2, 3, 5, 7, 11, 17


@pytest.mark.parametrize(
    ("layer", "call"),
    [
        (AdditiveAttention(UNITS), "query, value"),
        (MultiplicativeAttention(), "query, value"),
        (AttentionRNN(keras.layers.GRUCell(DQ), AdditiveAttention(UNITS)), "inputs, memory"),
        (AttentionPooling(UNITS), "value"),
    ],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_a_list_of_inputs_as_keras_layers_take_it_names_the_mistake(layer, call, symbolic, rng):
    query, value = normal(rng, B, TQ, DQ), normal(rng, B, TV, DV)
    if symbolic:
        query, value = keras.Input((TQ, DQ)), keras.Input((TV, DV))
    name = type(layer).__name__
    expected = f"{name} expected to be called as layer({call}). Received: a list of 2"
    with pytest.raises(ValueError, match=re.escape(expected)):
        layer([query, value])


BAD_CALLS = {
    "query of rank 4": ((2, 3, 5, 7), (2, 5, 7), {}, "query (B, Tq, dim) or (B, dim)"),
    "value of rank 2": ((2, 3, 7), (2, 7), {}, "value (B, Tv, dim)"),
    "another batch": ((2, 3, 7), (3, 5, 7), {}, "one batch size"),
    "another width": ((2, 3, 7), (2, 5, 11), {}, "query and key of the same width"),
    "longer key": ((2, 3, 7), (2, 5, 11), {"key": (2, 4, 7)}, "key and value of the same length"),
    "query mask": ((2, 3, 7), (2, 5, 7), {"query_mask": (2, 5)}, "query_mask (2, 3)"),
    "value mask": ((2, 3, 7), (2, 5, 7), {"value_mask": (2, 3)}, "value_mask (2, 5)"),
    "key mask": ((2, 3, 7), (2, 5, 7), {"key_mask": (2, 5, 7)}, "key_mask (2, 5)"),
    "mask": ((2, 3, 7), (2, 5, 7), {"attention_mask": (2, 5, 3)}, "attention_mask (2, 3, 5)"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_shapes_are_told_with_layer_expected_and_received(case):
    query, value, more, expected = BAD_CALLS[case]
    layer = MultiplicativeAttention("dot")
    arguments = {n: np.ones(s, "bool" if "mask" in n else "float32") for n, s in more.items()}
    with pytest.raises(ValueError, match="MultiplicativeAttention expected") as error:
        layer(np.ones(query, "float32"), np.ones(value, "float32"), **arguments)
    assert expected in str(error.value)
    assert "Received: " in str(error.value)


def rnn(**options):
    return AttentionRNN(keras.layers.GRUCell(UNITS), AdditiveAttention(UNITS), **options)


def ones(*shape):
    return np.ones(shape, "float32")


GRU, GENERAL = keras.layers.GRUCell(3), MultiplicativeAttention("general")


MADE_WRONG = {
    "the memory, as Addons takes it": (lambda: AdditiveAttention(8, ones(2, 5, 7)), "in the call"),
    "the memory by its name": (lambda: AdditiveAttention(8, memory=ones(2, 5, 7)), "prepare"),
    "lengths": (lambda: AdditiveAttention(8, memory_sequence_length=[3]), "a mask in the call"),
    "attention_layer_size": (lambda: rnn(attention_layer_size=8), "units="),
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


BUILT = {
    "attention": (lambda: AdditiveAttention(UNITS), [(2, 3, 4), (2, 5, 6)]),
    "products": (lambda: MultiplicativeAttention("general"), [(2, 3, 4), (2, 5, 6)]),
    "pooling": (lambda: AttentionPooling(UNITS), [(2, 3, 4)]),
    "decoder": (rnn, [(2, 3, 4), (2, 5, 6)]),
    "cell": (
        lambda: AttentionCell(keras.layers.GRUCell(3), CoverageAttention(3)),
        [(2, 4), (2, 5, 6)],
    ),
    "copying": (PointerGenerator, [(2, 3, 4), (2, 3, 7), (2, 3, 5), (2, 5)]),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", BUILT)
def test_inputs_of_another_width_than_the_layer_was_built_for_are_told(case, symbolic):
    make, shapes = BUILT[case]
    layer = make()
    layer(*(ones(*shape) for shape in shapes))
    for place in range(min(2, len(shapes)) if case != "copying" else 1):
        wider = [(*s[:-1], s[-1] + (i == place)) for i, s in enumerate(shapes)]
        inputs = [keras.Input(s[1:], s[0]) if symbolic else ones(*s) for s in wider]
        with pytest.raises(ValueError, match=r"width .*Received: ") as error:
            layer(*inputs)
        assert str(shapes[place][-1]) in str(error.value)


@pytest.mark.parametrize("case", BUILT)
def test_an_unknown_width_is_told(case):
    make, shapes = BUILT[case]
    inputs = [keras.Input((*shape[1:-1], None), shape[0]) for shape in shapes]
    with pytest.raises(ValueError, match=r"known .*Received: "):
        make()(*inputs)


def test_a_single_input_is_told_to_be_two():
    expected = r"AdditiveAttention expected to be called as layer\(query, value\)"
    for call in (
        lambda layer: layer(ones(2, 3, 4)),
        lambda layer: keras.layers.TimeDistributed(layer)(ones(2, 3, 5, 4)),
    ):
        with pytest.raises(ValueError, match=expected):
            call(AdditiveAttention(UNITS))


PREPARED = {
    "the memory as it is": (lambda x: x.step(x.row, x.memory, x.state), "a memory from prepare"),
    "of a state": (lambda x: x.initial_state(x.memory), "a memory from prepare(value)"),
    "an axis of steps": (lambda x: x.step(x.row[:, None], x.ready, x.state), "inputs (rows, 4)"),
    "another width": (lambda x: x.step(x.row[:, 1:], x.ready, x.state), "inputs (rows, 4) of one"),
    "rows that share none": (
        lambda x: x.step(ones(3, 4), x.ready, x.changed(cell=[ones(3, UNITS)])),
        "a multiple of 2 queries",
    ),
    "more rows than states": (lambda x: x.step(ones(4, 4), x.ready, x.state), "(4, 17)"),
    "the cell's states": (lambda x: x.step(x.row, x.ready, x.state.cell), "a State, from initial"),
    "a state of another width": (
        lambda x: x.step(x.row, x.ready, x.changed(cell=[ones(2, 5)])),
        "a State of (2, 17)",
    ),
    "a state too many": (
        lambda x: x.step(x.row, x.ready, x.changed(cell=[ones(2, UNITS)] * 2)),
        "a State of (2, 17)",
    ),
    "a state of attention": (
        lambda x: x.step(x.row, x.ready, x.changed(attention=ones(2, 5))),
        "a state (), from initial_state(memory)",
    ),
    "a query of one step": (
        lambda x: x.attention.step(ones(2, 1, UNITS), x.ready, ()),
        "a query (rows, 17) of one step",
    ),
    "initial rows": (lambda x: x.initial_state(x.ready, [ones(3, UNITS)]), "1 initial state(s)"),
    "no initial rows": (lambda x: x.initial_state(x.ready, [None]), "1 initial state(s)"),
    "a memory of another width": (lambda x: x.prepare(ones(2, 5, 7)), "of width 6, as it was"),
    "values of another width": (
        lambda x: x.prepare(ones(2, 5, 7), ones(2, 5, 6)),
        "a memory of width 6, as it was built",
    ),
    "a memory of one place": (lambda x: x.prepare(ones(2, 6)), "a value (B, Tv, dim)"),
    "a memory that is prepared": (lambda x: x.prepare(x.ready), "a tensor to prepare"),
    "a list": (lambda x: x.prepare([[1.0]]), "a tensor to prepare"),
    "a mask for a key": (lambda x: x.prepare(x.memory, ones(2, 5)), "a key like it"),
    "a mask of another batch": (lambda x: x.prepare(x.memory, mask=ones(3, 5)), "mask (2, 5)"),
}


@pytest.mark.parametrize("case", PREPARED)
def test_steps_are_told_what_they_take(case):
    call, expected = PREPARED[case]
    x = rnn()
    x(ones(2, 3, 4), ones(2, 5, 6))
    x.row, x.memory = ones(2, 4), ones(2, 5, 6)
    x.ready = x.prepare(x.memory)
    x.state = x.initial_state(x.ready)
    x.changed = x.state._replace
    with pytest.raises(ValueError, match=r"^\w+ expected .* Received: ") as error:
        call(x)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", mechanisms.BY_NAME)
def test_the_state_of_a_mechanism_is_of_its_memory_and_rows(name):
    layer = mechanisms.make(name, UNITS)
    layer(ones(2, 3, 6), ones(2, 5, 6))
    memory = layer.prepare(ones(2, 5, 6))
    state = layer.initial_state(memory)
    more = keras.tree.map_structure(lambda x: keras.ops.concatenate([x, x]), state)
    calls = [
        lambda: layer.step(ones(2, 6), ones(2, 5, 6), state),
        lambda: layer.initial_state(ones(2, 5, 6)),
        lambda: layer.step(ones(2, 6), memory, ones(2, 5, 1)),
    ]
    if not isinstance(state, tuple):
        calls += [lambda x=x: layer.step(ones(2, 6), memory, x) for x in (more, None, ())]
    for call in calls:
        with pytest.raises(ValueError, match=r"expected a (state|memory) .*from .*Received: "):
            call()


def test_a_state_of_another_mechanism_is_told():
    layer, other = rnn(return_state=True), rnn()
    other.attention = CoverageAttention(UNITS)
    inputs, memory = ones(2, 3, 4), ones(2, 5, 6)
    _, state = layer(inputs, memory)
    with pytest.raises(ValueError, match="or a State of this layer"):
        other(inputs, memory, initial_state=state)


@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 3, 5, 6), (2, 4)])
def test_widths_that_sines_and_cosines_do_not_fit_are_told(shape):
    layer = SinePositionEncoding()
    layer(ones(2, 3, 4))
    with pytest.raises(ValueError, match=r"SinePositionEncoding expected .*Received: value"):
        layer(ones(*shape))
    with pytest.raises(ValueError, match="a known dim"):
        SinePositionEncoding()(keras.Input((None, None)))


@pytest.mark.tensorflow
def test_ragged_tensors_are_told_to_be_padded():
    import tensorflow as tf

    ragged = tf.ragged.constant([[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0]]], ragged_rank=1)
    layer, mask = AdditiveAttention(3), tf.ragged.constant([[True, True], [True]])
    layer.build((2, 3, 2), (2, 3, 2))
    memory = layer.prepare(ones(2, 3, 2))
    for call in (
        lambda: AttentionPooling(3)(ragged),
        lambda: AdditiveAttention(3)(ragged, ragged),
        lambda: rnn()(ones(2, 3, 4), memory=ragged),
        lambda: layer.prepare(ragged),
        lambda: layer.prepare(ones(2, 2, 2), ragged),
        lambda: layer.prepare(ones(2, 2, 2), mask=mask),
        lambda: layer.step(ragged, memory, ()),
        lambda: layer(ones(2, 2, 2), ones(2, 2, 2), value_mask=mask),
        lambda: PointerGenerator()(ones(2, 2, 3), ragged, ones(2, 2, 4), ones(2, 4)),
        lambda: losses.AttentionLoss("coverage")(ones(2, 2, 3), ragged),
        lambda: SinePositionEncoding()(ragged),
    ):
        with pytest.raises(ValueError, match=r"padded tensors and masks, such as x.to_tensor"):
            call()


@pytest.mark.parametrize("make", [lambda: AdditiveAttention(3), lambda: AttentionPooling(3), rnn])
def test_scores_that_the_first_call_did_not_ask_for_are_told(make):
    layer = make()
    inputs = [keras.Input((None, 4))] * (1 if isinstance(layer, AttentionPooling) else 2)
    layer(*inputs)
    with pytest.raises(ValueError, match="expected return_attention_scores=True at its first call"):
        layer(*inputs, return_attention_scores=True)


def test_masks_may_stand_in_their_places_in_a_model(rng):
    query, value = normal(rng, B, TQ, DQ), normal(rng, B, TV, DV)
    masks = np.arange(TQ) < np.array([[2], [3]]), np.arange(TV) < np.array([[5], [4]])
    symbols = [keras.Input(x.shape[1:], dtype=x.dtype.name) for x in (query, value, *masks)]
    layer = rnn()
    model = keras.Model(symbols, layer(*symbols))
    found = keras.ops.convert_to_numpy(model([query, value, *masks]))
    expected = layer(query, value, inputs_mask=masks[0], memory_mask=masks[1])
    np.testing.assert_allclose(found, keras.ops.convert_to_numpy(expected), atol=1e-5)
