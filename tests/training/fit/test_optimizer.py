"""The one-pass Adam against Keras's."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.keras_attention.helpers import array, assert_close, normal
from training.fit.optimizer import Adam


@pytest.mark.parametrize("settings", [{}, {"global_clipnorm": 0.1}, {"amsgrad": True}])
def test_training_goes_as_with_keras_adam(rng, settings):
    words = rng.permutation(17)[:15].reshape(5, 3)  # an embedding's gradient is sparse
    labels = normal(rng, 5, 3, 7)

    def trained(optimizer):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Embedding(17, 13), keras.layers.Dense(7)])
        model.compile(optimizer(0.1, beta_1=0.7, beta_2=0.9, epsilon=1e-3, **settings), "mse")
        for _ in range(3):
            model.train_on_batch(words, labels)
        return [array(w) for w in [*model.weights, *model.optimizer.variables]]

    found, wanted = trained(Adam), trained(keras.optimizers.Adam)
    assert_close(found, wanted)
    assert int(found[3]) == 3


def test_parts_of_a_sparse_gradient_for_one_row_are_added_up(rng):
    rows, parts = np.array([2, 0, 2]), normal(rng, 3, 5)
    dense = np.zeros((3, 5), "float32")
    np.add.at(dense, rows, parts)
    sparse = tf.IndexedSlices(tf.constant(parts), tf.constant(rows), tf.constant([3, 5]))

    def updated(gradient):
        variable, optimizer = keras.Variable(np.ones((3, 5), "float32")), Adam(0.1, epsilon=0.1)
        for _ in range(2):
            optimizer.apply_gradients([(gradient, variable)])
        return array(variable.value)

    assert_close(updated(sparse), updated(tf.constant(dense)))


def test_its_configuration_and_variables_are_those_of_keras_adam():
    made = Adam(0.25, beta_1=0.5)
    again, other = Adam.from_config(made.get_config()), keras.optimizers.Adam(0.25, beta_1=0.5)
    assert {**again.get_config(), "name": ""} == {**other.get_config(), "name": ""}
    kernel = keras.Variable(np.zeros((2, 3)), name="kernel")
    again.build([kernel])
    other.build([kernel])
    assert [v.name for v in again.variables] == [v.name for v in other.variables]
