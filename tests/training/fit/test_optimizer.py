"""The optimizer of trainings against Keras's Adam with `global_clipnorm`."""

import keras
import numpy as np
import pytest

from tests.keras_attention.helpers import array, assert_close, normal
from training.fit import optimizer
from training.fit.optimizer import ClippedAdam


@pytest.mark.parametrize("large", [1, 1 << 20])
def test_training_goes_as_with_keras_adam(rng, large, monkeypatch):
    """Whether XLA compiles the update or not; an embedding's gradient is sparse."""
    monkeypatch.setattr(optimizer, "LARGE", large)
    words, labels = rng.permutation(17)[:15].reshape(5, 3), normal(rng, 5, 3, 7)

    def trained(made):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Embedding(17, 13), keras.layers.Dense(7)])
        model.compile(made, "mse")
        for _ in range(3):
            model.train_on_batch(words, labels)
        return [array(w) for w in [*model.weights, *model.optimizer.variables]]

    seen = keras.metrics.Sum()
    found = trained(ClippedAdam(0.1, 0.01, seen.update_state))
    assert_close(found, trained(keras.optimizers.Adam(0.1, global_clipnorm=0.01)))
    assert int(found[3]) == 3
    assert float(seen.result()) > 3 * 0.01  # before clipping


def test_a_norm_that_is_not_finite_makes_the_weights_nan(rng):
    variable = keras.Variable(np.ones((2, 3)))
    made = ClippedAdam(0.1, 1.0)
    made.apply_gradients([(keras.ops.full((2, 3), np.inf), variable)])
    assert np.isnan(array(variable)).all()
