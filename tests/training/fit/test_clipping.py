import keras
import numpy as np
import pytest
import tensorflow as tf

from training.fit.optimizer import ClippedAdam


@pytest.mark.parametrize("clip_norm", [0.01, 1e6])
def test_it_updates_as_adam_does_and_tells_the_norm_before_clipping(rng, clip_norm):
    start = [rng.normal(size=shape).astype("float32") for shape in ((5, 3), (7,), (11, 2))]
    gradients = [rng.normal(size=array.shape).astype("float32") for array in start[:2]]
    rows = tf.IndexedSlices(rng.normal(size=(2, 2)).astype("float32"), [3, 10], (11, 2))
    seen, results = [], []
    for optimizer in (
        keras.optimizers.Adam(0.1, global_clipnorm=clip_norm),
        ClippedAdam(0.1, clip_norm, lambda norm: seen.append(float(norm))),
    ):
        variables = [keras.Variable(array) for array in start]
        for sign in (1, -3):
            optimizer.apply([*(sign * g for g in gradients), rows], variables)
        results.append([v.numpy() for v in variables])
    for expected, received in zip(*results, strict=True):
        np.testing.assert_allclose(received, expected, rtol=1e-5, atol=2e-6)
    squares = sum((g**2).sum() for g in gradients)
    rest = float(tf.reduce_sum(rows.values**2))
    assert seen == pytest.approx([np.sqrt(squares + rest), np.sqrt(9 * squares + rest)], rel=1e-5)


def test_a_norm_that_is_not_finite_is_not_hidden():
    variable = keras.Variable([1.0, 2.0])
    optimizer = ClippedAdam(0.1, 1.0, lambda norm: None)
    optimizer.apply([np.array([np.inf, 0.0], "float32")], [variable])
    assert np.isnan(variable.numpy()).all()


def test_a_checkpoint_of_plain_adam_can_be_gone_on_with(tmp_path):
    def model(optimizer):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        model.compile(optimizer, "mse")
        return model

    old = model(keras.optimizers.Adam(0.1, global_clipnorm=1.0))
    old.fit(np.ones((5, 2)), np.ones((5, 3)), verbose=0)
    old.save_weights(tmp_path / "old.weights.h5")
    norm = keras.metrics.Mean()
    new = model(ClippedAdam(0.1, 1.0, norm.update_state))
    new.optimizer.build(new.trainable_variables)
    new.load_weights(tmp_path / "old.weights.h5")
    for a, b in zip(old.optimizer.variables, new.optimizer.variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert int(new.optimizer.iterations) == 1
