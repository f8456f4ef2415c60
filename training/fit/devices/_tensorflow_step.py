"""A training step on several TensorFlow devices: each takes its rows, gradients are summed once.

Keras's own training step cannot be used under a strategy of `tf.distribute`. It multiplies a scalar
loss by the number of devices. It clips the gradients of each device instead of their sum. It does
not weight the devices by their tokens, and compiles no step with XLA.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from training.runs.checkpoints import random_states

Tensor = Any
_GOLDEN = 0x9E3779B9  # odd, so its multiples are all different; seeds are int64 on TensorFlow


class MirroredModel(keras.Model):
    """A Functional model that `fit` trains under a strategy, on the batches of `share`.

    The loss is the loss of one device with the whole batch: a mean over tokens that are not
    padding, or over rows; losses that layers add are means over rows. Dropout draws other numbers
    on each device. In each step, one list travels between devices: loss, gradients and states.

    Batch normalization uses the whole batch, unless XLA compiles the step. Then each device
    normalizes by its own rows, because a compiled function cannot wait for another device.
    """

    def compile(self, optimizer: Any, loss: Any, jit_compile: bool = False) -> None:
        """Compile for training; XLA compiles the gradients, not the step that sums them."""
        super().compile(optimizer, loss, jit_compile=False)
        seeds = {id(seed) for seed in random_states(self)}
        self._is_seed = [id(v) in seeds for v in self.non_trainable_variables]
        # The function neither reads nor changes a variable, so all devices share it.
        self._gradients = tf.function(self._of_rows, jit_compile=True, autograph=False)
        if not jit_compile:
            self._gradients = self._of_rows
        for layer in self._flatten_layers():
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.synchronized = not jit_compile

    def _maybe_symbolic_build(self, iterator: Any = None, data_batch: Any = None) -> None:
        """Do nothing: the model is built. Keras would take a batch of all devices, and add it."""

    def make_train_function(self, force: bool = False) -> Any:
        """Make the function that `fit` calls. Keras's cannot reduce scalars of several workers."""
        made: Any = self.train_function  # type: ignore[has-type]
        if made is None or force:
            strategy = self.distribute_strategy

            @tf.function(autograph=False)
            def step(batches: Any) -> dict[str, Tensor]:
                logs = strategy.run(self.train_step, args=(next(batches),))
                return {name: strategy.experimental_local_results(v)[0] for name, v in logs.items()}

            self.train_function = step
        return self.train_function

    def _of_rows(
        self,
        weights: list,
        others: list,
        scale: Tensor,
        x: Any,
        y: Tensor,
        valid: Tensor,
        shares: Tensor,
    ) -> tuple[Tensor, list, list]:
        """Return a device's part of loss and gradients, and its states; None if unchanged."""
        with tf.GradientTape() as tape:
            tape.watch(weights)
            outputs, updated, added = self.stateless_call(
                weights, others, x, training=True, return_losses=True
            )
            losses = self.loss.call(y, outputs)  # the mean over tokens, or one for each row
            if losses.shape.rank:
                losses = tf.reduce_sum(losses * valid) / tf.maximum(tf.reduce_sum(valid), 1.0)
            loss = losses * shares[0]
            for each in added:
                loss += tf.cast(each, "float32") * shares[1]
            scaled = loss * scale
        zero = tf.UnconnectedGradients.ZERO
        gradients = tape.gradient(scaled, weights, unconnected_gradients=zero)
        gradients = [tf.convert_to_tensor(each) for each in gradients]  # an embedding's is sparse
        changed = [
            new if new is not old else None for new, old in zip(updated, others, strict=True)
        ]
        return loss, gradients, changed

    def train_step(self, data: tuple) -> dict[str, Tensor]:
        """Take a device's part of a step, of a batch of `share`."""
        context = tf.distribute.get_replica_context()
        number = context.replica_id_in_sync_group % tf.shape(data[-1])[0]
        with tf.device("CPU:0"):  # only the device's own part leaves the host
            own = tf.nest.map_structure(lambda parts: tf.gather(parts, number), data)
        x, y, valid, shares, rows = own
        states, weights = self.non_trainable_variables, self.trainable_variables
        moved = tf.cast(context.replica_id_in_sync_group, "int64") * _GOLDEN * [1, 0]
        others = [tf.convert_to_tensor(state.value) for state in states]
        others = [
            value + tf.cast(moved, value.dtype) if seed else value
            for value, seed in zip(others, self._is_seed, strict=True)
        ]
        values = [tf.convert_to_tensor(weight.value) for weight in weights]
        scale = self.optimizer.scale_loss(tf.ones(()))
        arguments = values, others, scale, x, y, valid, shares
        gradients_of = self._gradients
        if isinstance(gradients_of, tf.types.experimental.PolymorphicFunction):
            # Traced once for all devices. Otherwise names would depend on which device comes first,
            # and the next training would not find the programs that XLA keeps.
            with tf.device(None):
                gradients_of = gradients_of.get_concrete_function(*arguments)
        loss, gradients, updated = gradients_of(*arguments)
        kinds = [
            (variable, value, seed)
            for variable, value, seed in zip(states, updated, self._is_seed, strict=True)
            if value is not None
        ]
        means = [(v, tf.cast(x, "float32") * shares[1]) for v, x, seed in kinds if not seed]
        parts = [loss, *gradients, *(mean for _, mean in means)]
        loss, *parts = context.all_reduce(tf.distribute.ReduceOp.SUM, parts)
        update(self.optimizer, parts[: len(weights)], weights)
        for (variable, _), mean in zip(means, parts[len(weights) :], strict=True):
            variable.assign(tf.cast(mean, variable.dtype))
        for variable, value, seed in kinds:
            if seed:
                variable.assign(value - tf.cast(moved, value.dtype))
        self.metrics[0].update_state(loss, sample_weight=rows)
        return self.get_metrics_result()


def update(optimizer: Any, gradients: list[Tensor], weights: list[keras.Variable]) -> None:
    """Update a device's copies of weights by the gradients of all devices.

    Args:
        optimizer: a `ClippedAdam`, or Keras's `LossScaleOptimizer` of one.
        gradients: equal on all devices, and multiplied by the loss scale, if there is one.
        weights: the weights.
    """
    if not isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        optimizer.apply_here(gradients, weights)
        return
    scale, steps = optimizer.dynamic_scale, optimizer.step_counter

    def step() -> Tensor:
        optimizer.inner_optimizer.apply_here([g / scale for g in gradients], weights)
        grows = ops.equal(steps, optimizer.dynamic_growth_steps - 1)
        scale.assign(ops.where(grows, scale * 2.0, scale))
        steps.assign(ops.where(grows, 0, steps + 1))
        return tf.constant(True)

    def skip() -> Tensor:
        scale.assign(scale * 0.5)
        steps.assign(0)
        return tf.constant(False)

    tf.cond(optimizer.check_finite(gradients), step, skip)
