"""A training step on several JAX devices: each takes its rows, gradients are summed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import keras
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec

from training.data.tokens.store import PAD_ID
from training.runs.checkpoints import random_states

Tensor = Any
AXIS = "batch"  # name of the axis of keras.distribution.DataParallel's mesh
_WHOLE, _ROWS = PartitionSpec(), PartitionSpec(AXIS)
_GOLDEN = 0x9E3779B9  # odd, so its multiples modulo 2**32 are all different


@contextmanager
def undistributed() -> Iterator[None]:
    """Within this context, Keras makes variables and tensors on one device of this process.

    Keras makes variables when it saves weights. If a variable belongs to all processes, all of them
    must make it: a single process would wait for ever. Tensors would be laid out over all devices.
    """
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)


class ShardedModel(keras.Model):
    """A Functional model that is trained under `keras.distribution.DataParallel`.

    XLA's partitioner would sum a weight's gradient over the devices in each step of a recurrent
    loop's backward pass. Here each device computes the whole gradient of its own rows, and the
    gradients are summed once.

    The loss equals the loss of one device with the whole batch: the mean over tokens that are not
    padding, or over rows, plus the losses that layers add, which are means over rows. Dropout draws
    different numbers on each device. Batch normalization uses the rows of the device.
    """

    def train_step(self, state: tuple, data: tuple) -> tuple[dict[str, Tensor], tuple]:
        """Take a step; arguments and results are the same as in Keras's step on JAX."""
        weights, others, optimizer, metrics = state
        x, y, valid = data
        seeds = {id(seed) for seed in random_states(self)}
        is_seed = [id(variable) in seeds for variable in self.non_trainable_variables]

        def local(
            weights: list, others: list, optimizer: list, x: Any, y: Tensor, valid: Tensor
        ) -> tuple[Tensor, Tensor, list, list]:
            there = (y != PAD_ID).astype("float32") if y.ndim == 2 else valid[:, None]
            # tokens, rows with tokens, rows: (3,)
            counts = jnp.stack([there.sum(), there.max(axis=1).sum(), valid.sum()])
            totals = jax.lax.psum(counts, AXIS)
            share, row_share, _ = counts / jnp.maximum(totals, 1.0)
            others = own_seeds(others, is_seed, 1)
            is_mean: list[bool] = []  # for each state, whether the step changes it, such as a mean

            def loss_of(weights: list) -> tuple[Tensor, tuple[Tensor, list]]:
                logits, updated, added = self.stateless_call(
                    weights, others, x, training=True, return_losses=True
                )
                is_mean[:] = [
                    new is not old and not seed
                    for new, old, seed in zip(updated, others, is_seed, strict=True)
                ]
                losses = self.loss.call(y, logits)  # the mean over tokens, or one for each row
                if losses.ndim:
                    losses = (losses * valid).sum() / jnp.maximum(valid.sum(), 1.0)
                loss = losses * share + sum(added) * row_share
                with keras.StatelessScope(
                    list(zip(self.optimizer.variables, optimizer, strict=True))
                ):
                    return self.optimizer.scale_loss(loss), (loss, updated)

            gradients, (loss, updated) = jax.grad(loss_of, has_aux=True)(weights)
            # One vector: each sum between processes takes milliseconds, even of a small tensor.
            means = [v * row_share for v, mean in zip(updated, is_mean, strict=True) if mean]
            flat, parts = ravel_pytree((loss, gradients, means))
            loss, gradients, means = parts(jax.lax.psum(flat, AXIS))
            rest = iter(means)
            updated = [next(rest) if mean else v for v, mean in zip(updated, is_mean, strict=True)]
            return loss, totals[2], gradients, own_seeds(updated, is_seed, -1)

        mesh = keras.distribution.distribution().device_mesh.backend_mesh
        specs = _WHOLE, _WHOLE, _WHOLE, _ROWS, _ROWS, _ROWS
        with undistributed():
            on_each = jax.shard_map(
                local, mesh=mesh, in_specs=specs, out_specs=_WHOLE, check_vma=False
            )
            loss, rows, gradients, others = on_each(weights, others, optimizer, x, y, valid)
        weights, optimizer = self.optimizer.stateless_apply(optimizer, gradients, weights)
        values = list(zip(self.metrics_variables, metrics, strict=True))
        with keras.StatelessScope(values) as scope:
            self.metrics[0].update_state(loss, sample_weight=rows)  # Keras's running mean of losses
            logs = self.get_metrics_result()
        metrics = [scope.get_current_value(variable) for variable in self.metrics_variables]
        return logs, (weights, others, optimizer, metrics)


def own_seeds(values: Sequence[Tensor], is_seed: Sequence[bool], sign: int) -> list[Tensor]:
    """Return the values with the seeds of this device; the sign -1 reverses the change.

    Args:
        values: variables that are equal on all devices. A seed is the state of a random generator,
            uint32 `(2,)`; other values stay the same.
        is_seed: for each value, whether it is a seed.
        sign: 1 from common to own seeds, -1 back.
    """
    moved = (jax.lax.axis_index(AXIS) * sign).astype("uint32") * jnp.uint32(_GOLDEN)
    return [
        value.at[0].add(moved.astype(value.dtype)) if seed else value
        for value, seed in zip(values, is_seed, strict=True)
    ]
