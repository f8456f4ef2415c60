"""What older libraries compute, its successors of docs/migration.md do."""

import re
from pathlib import Path

import keras
import numpy as np

import keras_attention
from keras_attention import distributions
from tests.keras_attention.helpers import array, assert_close, normal

PAGE = Path(__file__).parents[2] / "docs" / "migration.md"


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_the_loss_of_addons_is_the_mean_over_weights(rng):
    """`sequence_loss`, loss.py 146."""
    logits, targets = normal(rng, 3, 5, 7), rng.integers(0, 7, (3, 5))
    weights = (np.arange(5) < np.array([[5], [2], [1]])).astype("float32")
    surprise = -np.log(np.take_along_axis(softmax(logits), targets[..., None], -1)[..., 0])
    (expression,) = re.findall(r"`keras\.(losses\.Sparse.*?\))`", PAGE.read_text())
    loss = eval(f"keras.{expression}")
    assert_close(loss(targets, logits, sample_weight=weights), (surprise * weights).sum() / 8)


def test_concat_of_keras_is_additive_attention_without_projections(rng):
    """`Attention(score_mode="concat")`, keras/src/layers/attention/attention.py 124."""
    query, value = normal(rng, 2, 3, 5), normal(rng, 2, 7, 5)
    old = keras.layers.Attention(score_mode="concat")
    before = old([query, value])
    layer = keras_attention.AdditiveAttention(5)
    layer.build(query.shape, value.shape)
    one = float(array(old.concat_score_weight))
    layer.set_weights([np.eye(5), np.eye(5), np.full(5, one)])
    assert_close(layer(query, value), array(before), 1e-5)


def test_self_attention_of_pypi_has_the_successors_of_its_table(rng):
    """keras-self-attention 0.51.0, `seq_self_attention.py` 154 to 214, in NumPy."""
    x, kernel, ba = normal(rng, 2, 7, 5), normal(rng, 5, 5), 0.3
    scores = np.einsum("bqd,de,bve->bqv", x, kernel, x)
    past = np.arange(7)[:, None] - np.arange(7)

    def sigmoid(scores, mask):
        return distributions.softmax(keras.ops.sigmoid(scores + ba), mask)

    def general(**options):
        return keras_attention.MultiplicativeAttention("general", **options)

    local = keras_attention.LocalAttention(general(), half_width=2)
    activated = softmax(1 / (1 + np.exp(-scores - ba)))
    near = softmax(np.where((past >= 0) & (past < 3), scores, -np.inf))
    for layer, causal, weights in (
        (general(distribution=sigmoid), False, activated),
        (local, True, near),
    ):
        layer.build(x.shape, x.shape)
        layer.set_weights([kernel])
        assert_close(layer(x, x, use_causal_mask=causal), weights @ x)
