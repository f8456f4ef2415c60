"""Scheduled sampling: a decoder that is trained on what it says itself."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from training.config.schema import Config
from training.data.ids import PAD_ID

Tensor = Any
LAYER = "scheduled_sampling"


@keras.saving.register_keras_serializable("training")
class ScheduledSampling(keras.layers.Layer):
    """Puts tokens that the model says in the place of some that it is given, in training alone.

    Bengio et al. 2015 (arXiv 1506.03099), in two passes instead of one token after the other, as
    Mihaylova and Martins 2019 (arXiv 1906.07651) do: the tokens are drawn from what the model says
    after the given ones.

    Args:
        seed: integer seed.

    Call arguments:
        target: int32 `(B, T)`, the given tokens, START first, padded with PAD_ID.
        logits: `(B, T, V)`, of the token that follows each; no gradient goes through them.
        training: whether anything is replaced.

    Output:
        int32 `(B, T)`: START and padding stay.

    Weights: `rate` `()`, the probability of a replacement; 0 at the start, see `set_rate`.
    """

    def __init__(self, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, target_shape: tuple, logits_shape: tuple) -> None:
        """Make the rate."""
        self.rate = self.add_weight((), "zeros", trainable=False, dtype="float32", name="rate")

    def call(self, target: Tensor, logits: Tensor, training: bool | None = None) -> Tensor:
        """Replace tokens; arguments and result as the class says."""
        if not training:
            return target
        batch, time, size = ops.shape(logits)
        rows = ops.reshape(ops.cast(ops.stop_gradient(logits), "float32"), (-1, size))
        drawn = keras.random.categorical(rows, 1, dtype="int32", seed=self.seed_generator)
        drawn = ops.reshape(drawn, (batch, time))
        own = ops.concatenate([target[:, :1], drawn[:, :-1]], axis=1)  # what is read a step later
        chance = keras.random.uniform((batch, time), seed=self.seed_generator)
        replaced = ops.logical_and(chance < self.rate, ops.not_equal(target, PAD_ID))
        return ops.where(replaced, own, target)

    def compute_output_spec(self, target: Any, logits: Any, **kwargs: Any) -> keras.KerasTensor:
        """Return the symbolic tokens."""
        return keras.KerasTensor(target.shape, "int32")

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "seed": self.seed}


def set_rate(model: keras.Model, config: Config, epoch: int) -> None:
    """Set the probability for an epoch, counted from 0: it grows evenly to that of the last."""
    if config.scheduled_sampling:
        rate = config.scheduled_sampling * (epoch + 1) / config.epochs
        model.get_layer(LAYER).rate.assign(min(rate, 1.0))
