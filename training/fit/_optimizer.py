"""What a model needs for training: loss, perplexity, Adam with clipping, learning-rate schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention import backend
from training.config.schema import Config
from training.data.batches._batches import Batches
from training.data.tokens._prepared import WORDS
from training.data.tokens.store import PAD_ID
from training.fit.devices._processes import ALONE, Processes
from training.model.seq2seq import build_model

Tensor = Any


def token_losses(labels: Tensor, logits: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Return each token's cross-entropy, with label smoothing (Szegedy et al. 2015, 1512.00567).

    Args:
        labels: int32 `(B, T)`.
        logits: `(B, T, V)`.
        label_smoothing: the probability that is spread evenly over the vocabulary.

    Returns:
        float32 `(B, T)`, in nats.
    """
    if not backend.settings.get().fast:
        return _plain_cross_entropy(labels, logits, label_smoothing)
    smooth = _cross_entropy(label_smoothing)
    # Labels become floats: not every backend accepts integers in a function with a custom gradient.
    return smooth(ops.cast(logits, "float32"), ops.cast(labels, "float32"))


def _plain_cross_entropy(labels: Tensor, logits: Tensor, smoothing: float) -> Tensor:
    log_probs = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
    labels = ops.expand_dims(ops.cast(labels, "int32"), -1)  # (B, T, 1)
    chosen = ops.squeeze(ops.take_along_axis(log_probs, labels, axis=-1), -1)
    return -(1 - smoothing) * chosen - smoothing * ops.mean(log_probs, axis=-1)


def _cross_entropy(smoothing: float) -> Callable[[Tensor, Tensor], Tensor]:
    """Return `(logits, labels) -> losses` with a gradient that reuses the exponentials.

    With automatic differentiation, the output layer and its loss took 174 ms for 1,408 tokens and
    5,000 words. With this gradient they take 96 ms, of which the matrix products take 76 (2 cores).
    """

    @ops.custom_gradient
    def cross_entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Callable]:
        labels = ops.expand_dims(ops.cast(labels, "int32"), -1)  # (B, T, 1)
        highest = ops.max(logits, axis=-1, keepdims=True)
        exponentials = ops.exp(logits - highest)
        total = ops.sum(exponentials, axis=-1, keepdims=True)
        losses = ops.log(total) + highest
        losses = losses - (1 - smoothing) * ops.take_along_axis(logits, labels, axis=-1)
        if smoothing:
            losses = losses - smoothing * ops.mean(logits, axis=-1, keepdims=True)

        def gradient(*args: Tensor, upstream: Tensor | None = None) -> tuple[Tensor, Tensor]:
            upstream = args[0] if upstream is None else upstream
            slope = ops.expand_dims(upstream, -1)
            vocabulary = ops.shape(logits)[-1]
            slopes = exponentials * (slope / total)
            if smoothing:
                slopes = slopes - slope * (smoothing / vocabulary)
            chosen = ops.take_along_axis(slopes, labels, axis=-1) - (1 - smoothing) * slope
            # Update one element of each row: a one-hot tensor would be as large as the logits.
            rows = ops.reshape(slopes, (-1, vocabulary))  # (B·T, V)
            numbers = ops.arange(ops.shape(rows)[0], dtype="int32")
            indices = ops.stack([numbers, ops.reshape(labels, (-1,))], -1)  # (B·T, 2)
            rows = ops.scatter_update(rows, indices, ops.reshape(chosen, (-1,)))
            return ops.reshape(rows, ops.shape(logits)), ops.zeros_like(upstream)

        return ops.squeeze(losses, -1), gradient

    return cross_entropy


def divergences(logits: Tensor, others: Tensor) -> Tensor:
    """Return the symmetric Kullback-Leibler divergence of two distributions.

    `KL(p ‖ q) + KL(q ‖ p)`, which equals `Σ (p - q) (log p - log q)`. Gradients flow to both
    arguments.

    Args:
        logits: `(B, T, V)`; `p` is their softmax.
        others: `(B, T, V)`; `q` is their softmax.

    Returns:
        float32 `(B, T)`, in nats.
    """
    logits, others = ops.cast(logits, "float32"), ops.cast(others, "float32")
    log_p, log_q = ops.log_softmax(logits, axis=-1), ops.log_softmax(others, axis=-1)
    return ops.sum((ops.exp(log_p) - ops.exp(log_q)) * (log_p - log_q), axis=-1)


class TokenCrossentropy(keras.losses.Loss):
    """Mean cross-entropy over the tokens of a batch that are not padding.

    With `r_drop`, this is the loss of R-Drop (Liang et al. 2021, arXiv 2106.14448), half of
    equation 4: `(L₁ + L₂) / 2 + α/4 (KL(p₁ ‖ p₂) + KL(p₂ ‖ p₁))`. In training, the model predicts
    twice, with two dropout masks. If it predicts once, the loss is the cross-entropy.

    Args:
        label_smoothing: see `token_losses`.
        r_drop: α. Above 0, `y_pred` is `(2 B, T, V)` for labels `(B, T)`: all first
            predictions, then all second predictions.
    """

    def __init__(self, label_smoothing: float = 0.0, r_drop: float = 0.0) -> None:
        super().__init__(reduction=None)
        self.label_smoothing, self.r_drop = label_smoothing, r_drop

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Return the mean loss, a scalar, of labels `(B, T)` and predictions `(B, T, V)`."""
        labels = ops.cast(y_true, "int32")
        valid = ops.cast(ops.not_equal(labels, PAD_ID), "float32")
        once = y_pred.shape[0] is not None and y_pred.shape[0] == labels.shape[0]
        if self.r_drop and not once:
            answered = ops.concatenate([labels, labels])
            first, second = ops.split(token_losses(answered, y_pred, self.label_smoothing), 2)
            divided = divergences(*ops.split(y_pred, 2))
            losses = (first + second) / 2 + self.r_drop / 4 * divided
        else:
            losses = token_losses(labels, y_pred, self.label_smoothing)
        return ops.sum(losses * valid) / ops.maximum(ops.sum(valid), 1.0)


class Perplexity(keras.metrics.Mean):
    """The exponential of the mean cross-entropy over all tokens that are not padding."""

    def __init__(self) -> None:
        super().__init__(name="perplexity")

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Any = None) -> None:
        """Add a batch of labels `(B, T)` and logits `(B, T, V)`."""
        labels = ops.cast(y_true, "int32")
        super().update_state(token_losses(labels, y_pred), ops.not_equal(labels, PAD_ID))

    def result(self) -> Tensor:
        return ops.exp(super().result())


class ExactAnswers(keras.metrics.Mean):
    """The share of answers whose every token is the most probable one after the tokens before it.

    These are the answers that a greedy search gives exactly, if it is not cut short.
    """

    def __init__(self) -> None:
        super().__init__(name="exact")

    def update_state(self, y_true: Tensor, y_pred: Tensor, sample_weight: Any = None) -> None:
        """Add a batch of labels `(B, T)` and logits `(B, T, V)`; rows of padding do not count."""
        labels = ops.cast(y_true, "int32")
        is_token = ops.not_equal(labels, PAD_ID)
        right = ops.equal(ops.cast(ops.argmax(y_pred, axis=-1), "int32"), labels)
        exact = ops.all(ops.logical_or(right, ops.logical_not(is_token)), axis=-1)
        super().update_state(exact, ops.any(is_token, axis=-1))


class ClippedAdam(keras.optimizers.Adam):
    """Keras's Adam with `global_clipnorm` (Pascanu et al. 2012, arXiv 1211.5063, section 3.2).

    On TensorFlow without XLA, one operation updates a weight; Keras uses a dozen. A norm that is
    not finite makes the weights NaN, and training stops.
    """

    def __init__(self, learning_rate: Any, clip_norm: float) -> None:
        super().__init__(learning_rate, global_clipnorm=clip_norm)

    def _clip_gradients(self, grads: Sequence[Any]) -> Sequence[Any]:
        """Return the clipped gradients; on a GPU, one vector's norm needs only two kernels."""
        if not backend.for_gpu():
            return super()._clip_gradients(grads)
        norm = ops.norm(ops.concatenate([ops.reshape(g, (-1,)) for g in grads]))
        scale = self.global_clipnorm / ops.maximum(norm, self.global_clipnorm) + (norm - norm)
        return [gradient * scale for gradient in grads]

    def apply_here(self, gradients: Sequence[Any], weights: Sequence[keras.Variable]) -> None:
        """Update the copies of weights on one of several TensorFlow devices.

        Keras's `apply` would clip first, and then sum over the devices, and it would send the count
        of steps to all of them.

        Args:
            gradients: the gradients, which must be equal on all devices.
            weights: the weights.
        """
        import tensorflow as tf

        rate = self.learning_rate
        for gradient, weight in zip(self._clip_gradients(gradients), weights, strict=True):
            self.update_step(gradient, weight.value, rate)
            if weight.constraint is not None:
                value = weight.constraint(tf.convert_to_tensor(weight.value))
                tf.raw_ops.AssignVariableOp(resource=weight.value.handle, value=value)
        one = tf.ones((), self.iterations.dtype)
        tf.raw_ops.AssignAddVariableOp(resource=self.iterations.value.handle, value=one)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        if backend.under_xla() or keras.backend.backend() != "tensorflow":
            super().update_step(gradient, variable, learning_rate)
            return
        import tensorflow as tf

        index, step = self._get_variable_index(variable), ops.cast(self.iterations + 1, "float32")
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=self.beta_1**step,
            beta2_power=self.beta_2**step,
            lr=ops.cast(learning_rate, "float32"),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.convert_to_tensor(gradient),
        )


def make_schedule(learning_rate: float, warmup_steps: int, steps: int) -> Any:
    """Return the learning-rate schedule of a training.

    The rate rises from 0 over the warm-up. Then it falls along a cosine (Loshchilov and Hutter
    2016, arXiv 1608.03983) to 1 % of `learning_rate`.

    Args:
        learning_rate: the highest rate.
        warmup_steps: the steps of the warm-up; at most a tenth of `steps` are used.
        steps: all steps of the training.
    """
    warmup = min(warmup_steps, steps // 10)
    return keras.optimizers.schedules.CosineDecay(
        0.0 if warmup else learning_rate,
        max(1, steps - warmup),
        alpha=0.01,
        warmup_target=learning_rate if warmup else None,
        warmup_steps=warmup,
    )


def as_predicted(config: Config, batches: Batches) -> Config:
    """Return the configuration that trains these batches: without XLA if it saves no time."""
    predicted = batches.plan.predicted
    return replace(config, jit_compile=False) if predicted and predicted.graph else config


def configure_keras(config: Config) -> None:
    """Set Keras's seed and precision."""
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.precision)


def make_model(config: Config, vocabulary: tuple[int, int], tokens: Path) -> keras.Model:
    """Build the model for a run.

    Args:
        config: the configuration of the run.
        vocabulary: the numbers of source and of target ids.
        tokens: the folder with the table of the words in both vocabularies, which `copy` needs.
    """
    model = build_model(config, *vocabulary)
    if config.copy:  # before the first checkpoint, which includes the words
        model.get_layer("source_words").words.assign(np.load(tokens / WORDS))
    return model


def make_trainable(
    config: Config,
    vocabulary: tuple[int, int],
    tokens: Path,
    batches: Batches,
    processes: Processes = ALONE,
) -> keras.Model:
    """Build and compile the model that trains on these batches, on all devices of `processes`.

    The other arguments are as for `make_model`.
    """
    with processes.scope():
        model = processes.shared(make_model(config, vocabulary, tokens))
        config = as_predicted(config, batches)
        compile_model(model, config, batches.statistics.steps_per_epoch)
    return model


def compile_model(model: keras.Model, config: Config, steps_per_epoch: int) -> None:
    """Compile a model with its loss and `ClippedAdam`."""
    if config.target == "label":
        loss: keras.losses.Loss = keras.losses.BinaryCrossentropy(from_logits=True)
    else:
        loss = TokenCrossentropy(config.label_smoothing, config.r_drop)
    steps = config.epochs * steps_per_epoch
    rate = make_schedule(config.learning_rate, config.warmup_steps, steps)
    model.compile(ClippedAdam(rate, config.clip_norm), loss, jit_compile=config.compiles())
    model.optimizer.build(model.trainable_variables)


def make_judge(model: keras.Model, *metrics: keras.metrics.Metric) -> keras.Model:
    """Return a compiled model that shares the weights and evaluates the perplexity, and `metrics`.

    On TensorFlow, XLA is off: compiling for each shape of the dev set takes longer than its steps.
    """
    judge = keras.Model(model.input, model.output)
    compiled = model.jit_compile and keras.backend.backend() != "tensorflow"
    judge.compile(loss=TokenCrossentropy(), metrics=[Perplexity(), *metrics], jit_compile=compiled)
    return judge


def judged(judge: keras.Model, dev: Batches) -> dict[str, float]:
    """Return the figures of the model of `make_judge` on the dev set, such as `perplexity`."""
    on_tensorflow = keras.backend.backend() == "tensorflow"
    batches = dev.dataset() if on_tensorflow else dev.epoch()
    steps = None if on_tensorflow else dev.statistics.steps_per_epoch
    scores = judge.evaluate(batches, steps=steps, verbose=0, return_dict=True)
    return {name: float(score) for name, score in scores.items()}
