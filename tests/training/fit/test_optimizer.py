import keras
import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose

from training.fit._optimizer import ClippedAdam, Perplexity, TokenCrossentropy, token_losses

B, T, V = 3, 5, 11


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    labels = rng.integers(1, V, (B, T))
    labels[1, 3:] = 0
    labels[2, 1:] = 0
    return labels.astype("int32"), rng.normal(0, 3, (B, T, V)).astype("float32")


def mean_loss(labels, logits, smoothing):
    """The formula, token by token: cross-entropy with (1 - ε) one-hot + ε/V."""
    losses = []
    for b in range(B):
        for t in range(T):
            if labels[b, t]:
                z = logits[b, t].astype("float64")
                log_p = z - np.log(np.exp(z).sum())
                q = np.full(V, smoothing / V)
                q[labels[b, t]] += 1 - smoothing
                losses.append(-(q * log_p).sum())
    return np.mean(losses)


def test_perplexity_weighs_every_token_alike_across_batches(batch):
    labels, logits = batch
    metric = Perplexity()
    for b in range(B):
        metric.update_state(labels[b : b + 1], logits[b : b + 1])
    assert_allclose(metric.result(), np.exp(mean_loss(labels, logits, 0.0)), rtol=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_losses_and_gradients_are_those_of_keras_own_cross_entropy(batch, smoothing):
    labels, logits = batch[0], tf.constant(batch[1])
    upstream = tf.constant(np.random.default_rng(1).normal(size=(B, T)).astype("float32"))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(logits)
        ours = token_losses(labels, logits, smoothing)
        targets = tf.one_hot(labels, V) * (1 - smoothing) + smoothing / V
        theirs = keras.ops.categorical_crossentropy(targets, logits, from_logits=True)
    found, expected = (tape.gradient(losses, logits, upstream) for losses in (ours, theirs))
    assert_allclose(found, expected, atol=1e-5)
    there = labels > 0
    assert_allclose(ours.numpy()[there], theirs.numpy()[there], rtol=1e-5)


def test_large_logits_do_not_overflow():
    logits = np.zeros((1, 1, V), "float32")
    logits[0, 0, 3] = 1e4
    assert_allclose(token_losses(np.array([[3]]), logits), [[0.0]], atol=1e-6)
    assert_allclose(token_losses(np.array([[4]]), logits), [[1e4]])


def test_a_batch_of_padding_alone_has_no_loss():
    assert TokenCrossentropy()(np.zeros((2, 3), "int32"), np.ones((2, 3, V), "float32")) == 0


def mean_divergence(labels, first, second):
    """Both Kullback-Leibler divergences of two answers, token by token."""
    found = []
    for b, t in zip(*labels.nonzero(), strict=True):
        p, q = (np.exp(z[b, t].astype("float64")) for z in (first, second))
        p, q = p / p.sum(), q / q.sum()
        found.append((p * np.log(p / q)).sum() + (q * np.log(q / p)).sum())
    return np.mean(found)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_two_answers_cost_their_mean_and_what_divides_them(batch, smoothing):
    labels, first = batch
    second = np.random.default_rng(2).normal(0, 3, (B, T, V)).astype("float32")
    loss = TokenCrossentropy(smoothing, r_drop=5.0)
    expected = 5 / 4 * mean_divergence(labels, first, second)
    expected += (mean_loss(labels, first, smoothing) + mean_loss(labels, second, smoothing)) / 2
    assert_allclose(loss(labels, np.concatenate([first, second])), expected, rtol=1e-5)
    same = loss(labels, np.concatenate([first, first]))
    assert_allclose(same, mean_loss(labels, first, smoothing), rtol=1e-5)
    assert_allclose(loss(labels, first), mean_loss(labels, first, smoothing), rtol=1e-5)


@pytest.mark.parametrize("constraint", [None, keras.constraints.NonNeg()])
@pytest.mark.parametrize("clip_norm", [0.01, 1e6])
def test_it_updates_as_adam_does(rng, clip_norm, constraint):
    """In one operation, or where a weight has a constraint by Keras's own."""
    start = [rng.normal(size=shape).astype("float32") for shape in ((5, 3), (7,), (11, 2))]
    gradients = [rng.normal(size=array.shape).astype("float32") for array in start[:2]]
    rows = tf.IndexedSlices(rng.normal(size=(2, 2)).astype("float32"), [3, 10], (11, 2))
    results = []
    plain = keras.optimizers.Adam(0.1, global_clipnorm=clip_norm)
    for made in (plain, ClippedAdam(0.1, clip_norm)):
        variables = [keras.Variable(array) for array in start]
        variables[0].constraint = constraint
        for sign in (1, -3):
            made.apply([*(sign * g for g in gradients), rows], variables)
        results.append([v.numpy() for v in variables])
    for expected, received in zip(*results, strict=True):
        np.testing.assert_allclose(received, expected, rtol=1e-5, atol=2e-6)


def test_a_norm_that_is_not_finite_is_not_hidden():
    variable = keras.Variable([1.0, 2.0])
    made = ClippedAdam(0.1, 1.0)
    made.apply([np.array([np.inf, 0.0], "float32")], [variable])
    assert np.isnan(variable.numpy()).all()
