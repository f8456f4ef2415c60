"""Mistakes in calling a layer, each told in one line."""

import functools
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
    LocalAttention,
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
    with pytest.raises(
        ValueError, match=r"^MultiplicativeAttention expected .*Received: "
    ) as error:
        layer(np.ones(query, "float32"), np.ones(value, "float32"), **arguments)
    assert expected in str(error.value)
    assert "\n" not in str(error.value)


def rnn(**options):
    return AttentionRNN(keras.layers.GRUCell(UNITS), AdditiveAttention(UNITS), **options)


def ones(*shape):
    return np.ones(shape, "float32")


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


NEEDED = {
    "query, value": lambda: AdditiveAttention(UNITS),
    "query, value ": lambda: LocalAttention(MultiplicativeAttention()),
    "inputs, memory": lambda: rnn(),
    "features, logits, attention_weights, source_ids": PointerGenerator,
    "outputs, attention_weights": lambda: losses.AttentionLoss("coverage"),
}


@pytest.mark.parametrize("names", NEEDED)
def test_a_single_input_is_told_to_be_several(names):
    layer = NEEDED[names]()
    expected = rf"^{type(layer).__name__} expected to be called as layer\({names.strip()}\)"
    for call in (layer, keras.layers.TimeDistributed(layer)):
        with pytest.raises(ValueError, match=rf"{expected}. Received: (one|1) input"):
            call(ones(2, 3, 5, 4))


def test_a_list_that_is_no_mask_is_told():
    masks = [ones(2, 3), ones(2, 5)]
    for call in (
        lambda: AttentionPooling(UNITS)(ones(2, 5, 4), mask=masks),
        lambda: SinePositionEncoding()(ones(2, 5, 4), mask=masks),
        lambda: AdditiveAttention(UNITS)(ones(2, 3, 4), ones(2, 5, 4), value_mask=masks),
        lambda: rnn()(ones(2, 3, 4), ones(2, 5, 6), memory_mask=[None, masks[1]]),
    ):
        with pytest.raises(ValueError, match=r"^\w+ expected one \w*mask \(2, 5\)") as error:
            call()
        assert "\n" not in str(error.value)


def test_a_decoder_in_both_directions_is_refused():
    with pytest.raises(ValueError, match=r"AttentionRNN expected no Bidirectional around it"):
        keras.layers.Bidirectional(rnn())


def test_arguments_of_other_layers_are_told_with_the_ones_there_are():
    """`mask=[…]` is the habit of `keras.layers.Attention`."""
    mask, x = ones(2, 3) > 0, ones(2, 3, 4)
    with pytest.raises(
        ValueError, match=r"expected no arguments but query, .* value_mask, .* Received: mask"
    ):
        AdditiveAttention(UNITS)(x, x, mask=[mask, mask])
    with pytest.raises(ValueError, match=r"AttentionRNN .* memory_mask, .* Received: value_mask"):
        rnn()(x, x, value_mask=mask)


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


@functools.cache
def prepared():
    """A layer with what its steps take; no step of a test succeeds, so that none changes it."""
    x = rnn()
    x(ones(2, 3, 4), ones(2, 5, 6))
    x.row, x.memory = ones(2, 4), ones(2, 5, 6)
    x.ready = x.prepare(x.memory)
    x.state = x.initial_state(x.ready)
    x.changed = x.state._replace
    return x


@pytest.mark.parametrize("case", PREPARED)
def test_steps_are_told_what_they_take(case):
    call, expected = PREPARED[case]
    with pytest.raises(ValueError, match=r"^\w+ expected .* Received: ") as error:
        call(prepared())
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
