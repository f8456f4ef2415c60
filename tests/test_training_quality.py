"""All fast paths of a training step together, against the plain formulas they stand for."""

import keras
import pytest
import tensorflow as tf

from keras_attention import fast_paths
from keras_attention.fast import loop
from tests.keras_attention.helpers import array, assert_close
from training.config.schema import Config
from training.fit import crossentropy
from training.fit.crossentropy import TokenCrossentropy
from training.fit.optimizer import ClippedAdam
from training.model.seq2seq import build_seq2seq

pytestmark = pytest.mark.tensorflow

MODELS = {
    "lstm, bahdanau": {"encoder": "lstm", "decoder": "lstm", "order": "bahdanau"},
    "gru, luong, feeding": {"order": "luong", "input_feeding": True, "tie_embeddings": True},
}


def trained(settings, batches):
    """The weights after a few steps."""
    keras.utils.set_random_seed(1)
    sizes = {"encoder_units": 7, "decoder_units": 13, "embedding_size": 11, "readout_units": 11}
    model = build_seq2seq(Config(attention_units=17, dropout=0.0, **sizes, **settings), 23, 29)
    model.compile(ClippedAdam(0.01, 0.5), TokenCrossentropy(0.1))
    for inputs, labels in batches:
        model.train_on_batch(inputs, labels)
    return [array(weight) for weight in model.weights]


@pytest.mark.parametrize("name", MODELS)
def test_steps_by_fast_paths_are_those_of_the_plain_formulas(rng, monkeypatch, name):
    batches = []
    for _ in range(2):
        source, target = rng.integers(1, 23, (3, 5)), rng.integers(1, 29, (3, 6))
        source[1, 2:] = target[1, 3:] = 0
        inputs = {"source": source.astype("int32"), "target": target[:, :-1].astype("int32")}
        batches.append((inputs, target[:, 1:].astype("int32")))
    taken = []
    paths = [
        (loop, "run_cell"),
        (crossentropy, "_cross_entropy"),
        (tf.raw_ops, "ResourceApplyAdam"),
    ]
    for owner, attribute in paths:
        function = getattr(owner, attribute)

        def noted(*args, attribute=attribute, function=function, **kwargs):
            taken.append(attribute)
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, attribute, noted)
    fast = trained(MODELS[name], batches)
    assert set(taken) == {attribute for _, attribute in paths}
    taken.clear()
    with fast_paths(False):
        assert_close(trained(MODELS[name], batches), fast)
    assert not taken
