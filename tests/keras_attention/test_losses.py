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
every_loss = pytest.mark.parametrize("name", FORMULAS)


def alignment(rng):
    """Random weights, and the masks of their rows and columns."""
    weights = rng.dirichlet(np.ones(S), size=(B, T)).astype("float32")
    target = np.array([np.arange(T) < t for t, _ in LENGTHS])
    source = np.array([np.arange(S) < s for _, s in LENGTHS])
    return weights, target, source


def of_parts(name, weights):
    return [FORMULAS[name](np.float64(weights[b, :t, :s])) for b, (t, s) in enumerate(LENGTHS)]


@every_loss
def test_loss_and_gradient_follow_the_formula_and_heads_count_as_their_mean(rng, name):
    weights, *masks = alignment(rng)
    loss = losses.BY_NAME[name]
    heads = np.stack([1.3 * weights, 0.7 * weights], axis=1)
    assert_close(loss(ops.convert_to_tensor(weights)), [FORMULAS[name](a) for a in weights])
    for x in (weights, heads):
        assert_close(loss(ops.convert_to_tensor(x), *masks), of_parts(name, weights))
    slope = gradient(lambda a: ops.sum(loss(a)), weights[:1])
    assert_close(slope, reference.differences(lambda a: FORMULAS[name](a[0]), weights[:1]), 1e-4)


@every_loss
def test_weights_of_0_and_1_masked_rows_and_no_sentences_give_no_nan(name):
    loss, weights, outputs = (
        losses.BY_NAME[name],
        np.zeros((2, 3, 3), "float32"),
        np.zeros((0, 3, 7)),
    )
    weights[0] = np.eye(3)
    masks = np.array([[True] * 3, [False] * 3])

    def total(a):
        return ops.sum(loss(a, masks, masks))

    assert np.isfinite(array(total(ops.convert_to_tensor(weights))))
    assert np.isfinite(gradient(total, weights)).all()
    assert loss(weights[:0]).shape == (0,)
    layer = losses.AttentionLoss(name)
    assert layer(outputs, weights[:0]).shape == outputs.shape
    assert_close(layer.losses[0], 0.0)


@every_loss
def test_the_layer_adds_the_loss_and_passes_the_outputs_on(rng, name):
    weights, target, source = alignment(rng)
    layer = losses.AttentionLoss(name, weight=0.5)
    outputs, target[2] = normal(rng, B, T, 2), False  # whose loss is left out of the mean
    assert_close(layer(outputs, weights, outputs_mask=target, memory_mask=source), outputs)
    assert_close(layer.losses[0], 0.5 * np.mean(of_parts(name, weights)[:2]))
    again = losses.AttentionLoss.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


@every_loss
def test_padding_does_not_change_the_loss_of_a_model(rng, name):
    """The masks go on to the loss, with the outputs or by name."""
    embedding = keras.layers.Embedding(7, 6, mask_zero=True)
    decoder = AttentionRNN(keras.layers.GRUCell(7), AdditiveAttention(5))
    ids = [keras.Input((None,), dtype="int32") for _ in range(2)]
    outputs, weights = decoder(*map(embedding, ids), return_attention_scores=True)
    passed = losses.AttentionLoss(name, weight=0.5)(outputs, weights, memory_mask=ids[1] != 0)
    model = keras.Model(ids, [passed, weights])
    randomize(model, rng)
    given = [mask * rng.integers(1, 7, mask.shape) for mask in alignment(rng)[1:]]
    for padding in (0, 3):
        _, weights = array(model([np.pad(x, [[0, 0], [0, padding]]) for x in given]))
        assert_close(model.losses, [0.5 * np.mean(of_parts(name, weights))])
    eager = losses.AttentionLoss(name)(decoder(*map(embedding, given)), alignment(rng)[0])
    assert_close(eager._keras_mask, given[0] != 0)
