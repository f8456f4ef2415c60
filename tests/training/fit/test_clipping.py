import keras
import numpy as np
import pytest
import tensorflow as tf

from training.fit.optimizer import ClippedAdam


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
