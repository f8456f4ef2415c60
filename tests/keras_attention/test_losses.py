"""The losses of attention weights against NumPy loops."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AdditiveAttention, AttentionRNN, losses
from tests.keras_attention import reference
from tests.keras_attention.helpers import array, assert_close, gradient, normal, randomize

B, T, S = 3, 5, 7
LENGTHS = [(5, 7), (3, 4), (1, 1)]


def coverage(a):
    total, covered = 0.0, np.zeros(a.shape[1])
    for step in a:
        total += sum(min(x, c) for x, c in zip(step, covered, strict=True))
        covered = covered + step
    return total / len(a)


def doubly_stochastic(a):
    return sum((1 - a[:, i].sum()) ** 2 for i in range(a.shape[1]))


FORMULAS = {"coverage": coverage, "doubly_stochastic": doubly_stochastic}


def alignment(rng):
    """Random weights, and the masks of their rows and columns."""
    weights = rng.dirichlet(np.ones(S), size=(B, T)).astype("float32")
    target = np.array([np.arange(T) < t for t, _ in LENGTHS])
    source = np.array([np.arange(S) < s for _, s in LENGTHS])
    return weights, target, source


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", FORMULAS)
def test_loss_follows_the_formula(rng, name, masked):
    weights, target, source = alignment(rng)
    masks = {"target_mask": target, "source_mask": source} if masked else {}
    result = losses.BY_NAME[name](ops.convert_to_tensor(weights), **masks)
    expected = [
        FORMULAS[name](weights[b, :t, :s].astype("float64") if masked else weights[b])
        for b, (t, s) in enumerate(LENGTHS)
    ]
    assert_close(result, expected)


@pytest.mark.parametrize("name", FORMULAS)
def test_gradient_is_finite_differences(rng, name):
    weights = alignment(rng)[0][:1]
    slope = gradient(lambda a: ops.sum(losses.BY_NAME[name](a)), weights)
    assert_close(slope, reference.differences(lambda a: FORMULAS[name](a[0]), weights), 1e-4)


@pytest.mark.parametrize("name", FORMULAS)
def test_weights_of_0_and_1_and_masked_rows_give_no_nan(name):
    weights = np.zeros((2, 3, 3), "float32")
    weights[0] = np.eye(3)
    masks = np.array([[True] * 3, [False] * 3])

    def loss(a):
        return ops.sum(losses.BY_NAME[name](a, masks, masks))

    assert np.isfinite(array(loss(ops.convert_to_tensor(weights))))
    assert np.isfinite(gradient(loss, weights)).all()


@pytest.mark.parametrize("name", FORMULAS)
def test_the_layer_adds_the_loss_and_passes_the_outputs_on(rng, name):
    weights, target, source = alignment(rng)
    layer = losses.AttentionLoss(name, weight=0.5)
    outputs = normal(rng, B, T, 2)
    assert_close(layer(outputs, weights, outputs_mask=target, memory_mask=source), outputs)
    expected = array(losses.BY_NAME[name](ops.convert_to_tensor(weights), target, source))
    assert_close(layer.losses[0], 0.5 * expected.mean())
    again = losses.AttentionLoss.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


@pytest.mark.parametrize("name", FORMULAS)
def test_weights_of_several_heads_count_as_their_mean(rng, name):
    weights, target, source = alignment(rng)
    heads = np.stack([1.3 * weights, 0.7 * weights], axis=1)
    expected = array(losses.BY_NAME[name](ops.convert_to_tensor(weights), target, source))
    found = losses.BY_NAME[name](ops.convert_to_tensor(heads), target, source)
    assert_close(found, expected)


@pytest.mark.parametrize("name", FORMULAS)
def test_padding_does_not_change_the_loss_of_a_model(rng, name):
    """The masks go on to the loss, with the outputs or by name."""
    embedding = keras.layers.Embedding(7, 6, mask_zero=True)
    decoder = AttentionRNN(keras.layers.GRUCell(7), AdditiveAttention(5))
    ids = [keras.Input((None,), dtype="int32") for _ in range(2)]
    target, source = map(embedding, ids)
    outputs, weights = decoder(target, source, return_attention_scores=True)
    passed = losses.AttentionLoss(name, weight=0.5)(outputs, weights, memory_mask=ids[1] != 0)
    model = keras.Model(ids, [passed, weights])
    randomize(model, rng)
    given = [mask * rng.integers(1, 7, mask.shape) for mask in alignment(rng)[1:]]
    for padding in (0, 3):
        _, weights = array(model([np.pad(x, [[0, 0], [0, padding]]) for x in given]))
        expected = [FORMULAS[name](weights[b, :t, :s]) for b, (t, s) in enumerate(LENGTHS)]
        assert_close(model.losses, [0.5 * np.mean(expected)])
    eager = losses.AttentionLoss(name)(decoder(*map(embedding, given)), alignment(rng)[0])
    assert_close(eager._keras_mask, given[0] != 0)


@pytest.mark.parametrize("loss", losses.BY_NAME)
def test_losses_of_no_sentences_are_nothing(loss):
    assert losses.BY_NAME[loss](np.zeros((0, 3, 5), "float32")).shape == (0,)
    layer = losses.AttentionLoss(loss)
    outputs = np.zeros((0, 3, 7), "float32")
    assert layer(outputs, np.zeros((0, 3, 5), "float32")).shape == outputs.shape
    assert_close(layer.losses[0], 0.0)
