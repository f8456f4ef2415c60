"""All fast paths of a training step together, against the plain formulas they stand for."""

from pathlib import Path

import keras
import pytest

from tests.keras_attention.helpers import array, assert_close
from training.clipping import ClippedAdam
from training.config import Config
from training.losses import TokenCrossentropy
from training.model import build_seq2seq

ROOT = Path(__file__).parent.parent
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
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import training_quality

    from keras_attention import exponential, hoisted
    from training import losses
    from training.optimizer import Adam

    batches = []
    for _ in range(2):
        source, target = rng.integers(1, 23, (3, 5)), rng.integers(1, 29, (3, 6))
        source[1, 2:] = target[1, 3:] = 0
        inputs = {"source": source.astype("int32"), "target": target[:, :-1].astype("int32")}
        batches.append((inputs, target[:, 1:].astype("int32")))
    taken = []
    plain = {
        (hoisted, "supports"): hoisted.supports,
        (exponential, "pays"): exponential.pays,
        (losses, "token_losses"): losses.token_losses,
        (Adam, "update_step"): Adam.update_step,
    }
    for (owner, attribute), function in plain.items():

        def noted(*args, attribute=attribute, function=function, **kwargs):
            taken.append(attribute)
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, attribute, noted)
    fast = trained(MODELS[name], batches)
    assert set(taken) == {attribute for _, attribute in plain}
    taken.clear()
    training_quality.take_plain_paths()
    assert_close(trained(MODELS[name], batches), fast)
    assert not taken
