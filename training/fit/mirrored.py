"""Training on several devices of TensorFlow: each takes its rows, and gradients are summed once.

Keras's own training step cannot be used under a strategy of `tf.distribute`. It multiplies a scalar
loss by the number of devices. It clips the gradients of each device instead of their sum. It does
not weight the devices by their tokens, and compiles no step with XLA.
"""

from __future__ import annotations

import functools
import gc
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from training.command.errors import RunError, UserError
from training.command.workers import Worker
from training.data.batches import Batches
from training.data.store import PAD_ID
from training.fit.processes import ALONE, Processes
from training.runs.checkpoints import random_states

Tensor = Any
_CHUNK = 1024  # int32 numbers that processes exchange at a time
_GOLDEN = 0x9E3779B9  # odd, so its multiples are all different; seeds are int64 on TensorFlow


@dataclass(frozen=True)
class MirroredProcesses(Processes):
    """Several devices of TensorFlow, in one process or several."""

    strategy: Any = field(default=None, repr=False)  # a `tf.distribute.Strategy`

    def scope(self) -> AbstractContextManager[Any]:
        """Return the strategy's scope: each variable gets a copy on each device."""
        return self.strategy.scope()

    def shared(self, model: keras.Model) -> keras.Model:
        """Return a `MirroredModel` of the same layers."""
        return MirroredModel(model.input, model.output, name=model.name)

    def epoch(self, batches: Batches, number: int) -> Any:
        """Return the batches of an epoch, as `share` divides them."""
        return share(self.strategy, batches.dataset(number))

    def _total(self, values: np.ndarray) -> np.ndarray:
        chunks = np.resize(values, (-(-len(values) // _CHUNK), _CHUNK))  # traced for one size
        sums = [_sum(self.strategy, self.devices // self.count, chunk) for chunk in chunks]
        return np.concatenate(sums)[: len(values)]


def _sum(strategy: tf.distribute.Strategy, here: int, values: np.ndarray) -> np.ndarray:
    """Return the sum of the processes' arrays of size _CHUNK; each has `here` devices."""

    def of_replica(context: tf.distribute.ValueContext) -> tf.Tensor:
        return tf.constant(values * (context.replica_id_in_sync_group % here == 0))

    parts = strategy.experimental_distribute_values_from_function(of_replica)
    return strategy.experimental_local_results(_summing(strategy)(parts))[0].numpy()


@functools.cache
def _summing(strategy: tf.distribute.Strategy) -> Any:
    def of_device(part: Tensor) -> Tensor:
        part = tf.identity(part)  # on a device, unlike the argument of the function
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, part)

    return tf.function(lambda parts: strategy.run(of_device, args=(parts,)), autograph=False)


@contextmanager
def joined(worker: Worker, limit: int | None) -> Iterator[Processes]:
    """Use the devices of this process, together with the other workers of TF_CONFIG.

    See `training.fit.joining.joined`.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if limit and gpus[limit:]:
        tf.config.set_visible_devices(gpus[:limit], "GPU")
    if worker.count > 1:
        worker.gather()
        try:
            strategy = tf.distribute.MultiWorkerMirroredStrategy()
            devices = strategy.num_replicas_in_sync
            _expect_all_batches(strategy)
            yield MirroredProcesses(worker.number, worker.count, devices, strategy)
        except tf.errors.OpError as error:
            raise _lost(error) from None
        return
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if limit and limit > len(devices):
        listed = ", ".join(device.name.removeprefix("/device:") for device in devices)
        raise UserError(
            f"--devices is {limit}, but TensorFlow has {len(devices)} to train on: {listed}"
        )
    names = [device.name for device in devices[:limit]]
    if len(names) == 1:
        yield ALONE
        return
    strategy = tf.distribute.MirroredStrategy(names)
    _expect_all_batches(strategy)
    yield MirroredProcesses(devices=len(names), strategy=strategy)


def _expect_all_batches(strategy: tf.distribute.Strategy) -> None:
    """Stop workers from asking one another in each step whether a batch is left.

    `fit` counts the steps.
    """
    strategy.extended.experimental_enable_get_next_as_optional = False


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
        """Take a device's part of a step."""
        x, y, valid, shares, rows = data
        context = tf.distribute.get_replica_context()
        states, weights = self.non_trainable_variables, self.trainable_variables
        moved = tf.cast(context.replica_id_in_sync_group, "int64") * _GOLDEN * [1, 0]
        others = [tf.convert_to_tensor(state.value) for state in states]
        others = [
            value + tf.cast(moved, value.dtype) if seed else value
            for value, seed in zip(others, self._is_seed, strict=True)
        ]
        values = [tf.convert_to_tensor(weight.value) for weight in weights]
        scale = self.optimizer.scale_loss(tf.ones(()))
        loss, gradients, updated = self._gradients(values, others, scale, x, y, valid, shares)
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


def share(strategy: tf.distribute.Strategy, batches: tf.data.Dataset) -> Any:
    """Return batches of which each device takes its rows; added rows make them as many.

    A device's part is `(x, y, valid, shares, rows)`: inputs and labels; float32 `(b,)`, 0 for an
    added row; the device's shares of the batch's tokens (for a label: rows) and of its rows,
    `(2,)`; and the number of rows of the batch, `()`. An added row has the source of the first row
    and only padding as target.
    """
    count = strategy.num_replicas_in_sync

    def split(x: dict, y: Tensor) -> tuple:
        missing = -tf.shape(y)[0] % count

        def parts(rows: Tensor, added: Tensor) -> Tensor:
            shape = rows.shape[1:]
            added = tf.repeat(tf.cast(added, rows.dtype), missing, axis=0)
            rows = tf.concat([rows, added], 0)
            size = tf.shape(rows)
            rows = tf.reshape(rows, tf.concat([[count, size[0] // count], size[1:]], 0))
            rows.set_shape([count, None, *shape])
            return rows

        texts = y.shape.rank == 2
        target = PAD_ID * tf.ones_like(y[:1])
        tokens = tf.cast(y != PAD_ID, "float32") if texts else tf.ones_like(y)[:, None]
        tokens = tf.concat([tokens, tf.zeros([missing, tf.shape(tokens)[1]])], 0)
        tokens = tf.reshape(tokens, [count, -1, tf.shape(tokens)[1]])  # (count, b, T)
        valid = tf.reduce_max(tokens, 2)
        counts = tf.stack([tf.reduce_sum(tokens, [1, 2]), tf.reduce_sum(valid, 1)], 1)
        totals = tf.reduce_sum(counts, 0)
        xs = {key: parts(v, target if key == "target" else v[:1]) for key, v in x.items()}
        rows = tf.fill([count], tf.cast(tf.shape(y)[0], "float32"))
        return xs, parts(y, target), valid, counts / tf.maximum(totals, 1.0), rows

    def of_worker(context: tf.distribute.InputContext) -> tf.data.Dataset:
        here = context.num_replicas_in_sync // context.num_input_pipelines
        first = context.input_pipeline_id * here

        def own(*data: Any) -> Any:
            return tf.nest.map_structure(lambda part: part[first : first + here], data)

        return batches.map(split).map(own).unbatch().prefetch(2 * here)

    return strategy.distribute_datasets_from_function(of_worker)


def _lost(error: tf.errors.OpError) -> RunError:
    reason = (error.message.splitlines() or [""])[0]
    # A pool of threads in a frame would print a traceback of its own when Python ends.
    traceback.clear_frames(error.__traceback__)
    gc.collect()
    return RunError(
        "Another worker was lost. Start the same command on all workers, with --resume instead of "
        f"the data: training continues after its last epoch. TensorFlow reports: {reason}"
    )
