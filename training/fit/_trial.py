"""A short trial of two attentions at full size, where the data do not tell which one fits.

Both train for two epochs, and the better one continues with its weights. A killed trial starts
again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import keras
from keras import ops

from training.command.progress import print_choice, progress
from training.config.schema import Config
from training.data.batches._batches import Batches
from training.fit import _optimizer as optimizer
from training.fit.devices._processes import ALONE, Processes
from training.runs.checkpoints import save_checkpoint
from training.runs.files import RunFiles

EPOCHS, MOST_STEPS = 2, 300  # of each attention
CLEAR_SHARE, CLEAR_FACTOR = 0.1, 2  # exact answers that decide: this share, this often the other's


class Tried(NamedTuple):
    """How well a model predicts the dev set after its part of the trial."""

    exact: float  # share of the answers that a greedy search would give exactly
    perplexity: float  # infinite if the training diverged

    def __str__(self) -> str:
        return f"{self.exact:.1%} of dev exact, perplexity {self.perplexity:.3g}"


def is_better(other: Tried, first: Tried) -> bool:
    """Return whether `other` wins against `first`, the choice of the rules, which wins a tie.

    The exact answers decide if one has CLEAR_SHARE of them, and CLEAR_FACTOR times as many as the
    other one. Otherwise the perplexity decides: few exact answers are chance.
    """
    less, more = sorted((other.exact, first.exact))
    if more >= CLEAR_SHARE and more >= CLEAR_FACTOR * less:
        return other.exact > first.exact
    return other.perplexity < first.perplexity


def settle_attention(
    files: RunFiles,
    config: Config,
    model: keras.Model,
    make: Callable[[Config], keras.Model],
    batches: Batches,
    dev: Batches,
    processes: Processes,
) -> tuple[Config, keras.Model]:
    """Try `attention` and `other_attention` of a run; return the settled configuration and model.

    The checkpoint before the first epoch then holds the better weights, with an optimizer that has
    made no step. The configuration is saved last, so that a killed trial starts again. On several
    devices, and with XLA, nothing is tried, and the attention of the rules stays.

    Args:
        files: the files of the run.
        config: the configuration, whose `other_attention` is not empty.
        model: the compiled model of `config`, with its first weights.
        make: makes the compiled model of another configuration.
        batches: the batches to train with.
        dev: the batches of the dev set.
        processes: the devices that train the run.
    """
    first, second = (
        replace(config, attention=attention, other_attention="")
        for attention in (config.attention, config.other_attention)
    )
    if processes.devices > 1 or model.jit_compile:
        why = "with XLA, which compiles long" if model.jit_compile else "on several devices"
        chosen = f"{_words(first.attention)}: nothing else is tried {why}"
        print_choice("attention", chosen, f"--set attention={second.attention}")
        processes.write(first.save, files.config)
        return first, model
    began = time.monotonic()
    kept, kept_model, tried = first, model, _try(first, model, batches, dev)
    line = f"{_words(first.attention)} has {tried}"
    other_model = make(second)
    other = _try(second, other_model, batches, dev)
    line += f"; {_words(second.attention)} has {other}"
    if is_better(other, tried):
        kept, kept_model = second, other_model
    seconds = time.monotonic() - began
    chosen = f"{_words(kept.attention)} continues with its weights: {line}. {seconds:.0f} s"
    print_choice("attention", chosen, f"--set attention={first.attention}")
    save_checkpoint(files, kept_model, [])
    kept.save(files.config)
    return kept, kept_model


def _words(attention: str) -> str:
    return attention.replace("_", " ")


def _try(config: Config, model: keras.Model, batches: Batches, dev: Batches) -> Tried:
    """Train a model for its part of the trial, and return how well it predicts the dev set.

    Afterwards the optimizer is as before, so that the training begins with its own warm-up.
    """
    state = [ops.convert_to_numpy(variable) for variable in model.optimizer.variables]
    steps = batches.statistics.steps_per_epoch
    left = min(EPOCHS * steps, MOST_STEPS)
    with progress(left, f"steps of the trial of {_words(config.attention)}") as advance:
        count_step = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda _, logs: advance(1, loss=logs["loss"])
        )
        for epoch in range(EPOCHS):
            if now := min(steps, left):
                model.fit(
                    ALONE.epoch(batches, epoch),
                    steps_per_epoch=now,
                    callbacks=[count_step, keras.callbacks.TerminateOnNaN()],
                    shuffle=False,
                    verbose=0,
                )
            left -= now
    for variable, value in zip(model.optimizer.variables, state, strict=True):
        variable.assign(value)
    scores = optimizer.judged(optimizer.make_judge(model, optimizer.ExactAnswers()), dev)
    perplexity = scores["perplexity"]
    return Tried(scores["exact"], perplexity if math.isfinite(perplexity) else math.inf)
