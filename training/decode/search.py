"""Search and forced decoding with one trained model or an ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_attention import SearchResult, Shortlist, backend, beam_search
from training.command.errors import UserError
from training.data.rules import most_tokens
from training.data.tokens.store import END_ID, PAD_ID, START_ID
from training.decode.settings import SearchSettings
from training.decode.steps import ConstantModelStep, PlainStep, embed, prepare
from training.model.seq2seq import mean_of_heads
from training.runs.run import Run

Tensor = Any


def check_search(settings: SearchSettings, runs: Sequence[Run]) -> None:
    """Raise a UserError if the settings do not fit the loaded runs."""
    settings.check(runs)
    for run in (run for run in runs if run.config.copy):
        if settings.beam_width > (size := run.target_tokenizer.vocab_size):
            raise UserError.expected("--beam-width", f"at most {size}", settings.beam_width)


def bound_of(runs: Sequence[Run]) -> tuple[float, int]:
    """Return the bound of an output's length over all runs.

    Returns:
        A factor and a constant: an output has at most `factor * source tokens + constant` tokens,
        see `training.data.rules.most_tokens`.
    """
    factors, more = zip(*(run.config.bound for run in runs), strict=True)
    return max(factors), max(more)


class Encoded(NamedTuple):
    """Encoded sources, which one or more searches use."""

    source: Tensor  # int32 `(B, S)`
    memories: list[Any]  # for each model its prepared memory: structures of tensors `(B, …)`
    states: list[Any]  # for each model the decoder's first state: structures of tensors `(B, …)`


def encode(steps: Sequence[PlainStep], source: Tensor) -> Encoded:
    """Encode source ids, int32 `(B, S)`, with the model of each step."""
    memories, states = map(list, zip(*(advance.prepare(source) for advance in steps), strict=True))
    return Encoded(source, memories, states)


def search(
    models: Sequence[keras.Model],
    source: Tensor | Encoded,
    settings: SearchSettings | None = None,
    *,
    max_length: int | None = None,
    bound: tuple[float, int] = (2, 10),
    return_attention_weights: bool = False,
    steps: Sequence[PlainStep] | None = None,
) -> SearchResult:
    """Translate source ids; an ensemble averages the probabilities of its models.

    Args:
        models: models of `training.model.seq2seq.build_seq2seq`, with the same vocabularies.
        source: int32 `(B, S)`, padded with 0, S at least 1; or its `Encoded` from `encode`.
        settings: beam width, penalties and number of results; by default `SearchSettings()`.
        max_length: most target tokens; by default `bound` gives them for each sentence.
        bound: factor and constant of the most target tokens: see `bound_of`.
        return_attention_weights: whether to return the weights, averaged over the models.
        steps: for each model one step of its decoder, see `training.decode.steps`; by default
            `PlainStep`.

    Returns:
        A `SearchResult` with ids `(B, settings.num_results, T)`.
    """
    settings = settings or SearchSettings()
    steps = steps or [PlainStep(model, settings.beam_width) for model in models]
    source, memories, states = source if isinstance(source, Encoded) else encode(steps, source)
    max_steps = None
    if max_length is None:
        lengths = ops.sum(ops.cast(ops.not_equal(source, PAD_ID), "int32"), axis=1)
        max_length = most_tokens(lengths, bound)
        max_steps = most_tokens(ops.shape(source)[1], bound) if backend.under_xla() else None

    def step(tokens, states, memories):
        log_probs, weights, states = _advance(steps, tokens, memories, states)
        if steps[0].copying:  # the size of its vocabulary depends on the source
            values, ids = ops.top_k(log_probs, settings.beam_width)
            log_probs = Shortlist(values, ops.cast(ids, "int32"))
        return log_probs, sum(weights) / len(models), states

    arguments: dict[str, Any] = {
        "batch_size": ops.shape(source)[0],
        "start_id": START_ID,
        "end_id": END_ID,
        "max_length": max_length,
        "max_steps": max_steps,
        "length_penalty": settings.length_penalty,
        "return_attention_weights": return_attention_weights,
        "memory": memories,
    }
    if settings.coverage_penalty and settings.beam_width > 1:
        arguments["coverage_penalty"] = settings.coverage_penalty
        arguments["memory_mask"] = ops.not_equal(source, PAD_ID)
    return beam_search(
        step, states, beam_width=settings.beam_width, num_results=settings.num_results, **arguments
    )


def score_targets(
    models: Sequence[keras.Model],
    source: Tensor | Encoded,
    target: Tensor,
    steps: Sequence[ConstantModelStep] | None = None,
) -> Tensor:
    """Return the log-probability of each target token given the tokens before it.

    Args:
        models: as for `search`.
        source: as for `search`.
        target: int32 `(B, T)`, padded with 0, T at least 1. END is scored like other tokens.
        steps: as for `search`, in float32.

    Returns:
        float32 `(B, T)`.
    """
    alone: list[Any] = [advance.with_beams(1) for advance in steps or ()]
    alone = alone or [PlainStep(model, 1) for model in models]
    _, memories, states = source if isinstance(source, Encoded) else encode(alone, source)

    def step(tokens, states):
        read, wanted = tokens  # (B,) each
        log_probs, _, states = _advance(alone, read, memories, states)
        log_probs = backend.gather_in_rows(log_probs, ops.expand_dims(wanted, 1))
        return ops.cast(ops.squeeze(log_probs, 1), "float32"), states

    wanted = ops.transpose(target)  # (T, B)
    start = ops.full_like(wanted[:1], START_ID)
    read = ops.concatenate([start, wanted[:-1]], axis=0)  # (T, B): the token before each
    log_probs, _ = backend.scan(step, states, (read, wanted), "float32")
    return ops.transpose(log_probs)


def force_decode(models: Sequence[keras.Model], source: Tensor, target: Tensor) -> Tensor:
    """Return the attention weights of forced decoding, averaged over the models.

    Args:
        models: models of `training.model.seq2seq.build_seq2seq`.
        source: a batch of sources; for texts int32 `(B, S)`.
        target: int32 `(B, T)`, beginning with START.

    Returns:
        float32 `(B, T, S)`: row `t` has the weights with which the decoder predicts the token
        after `target[:, t]`.
    """
    total = 0.0
    for model in models:
        memory, state = prepare(model, source)
        inputs = embed(model)(target)
        decoder = model.get_layer("decoder")

        def step(x, state, decoder=decoder, memory=memory):
            _, weights, state = decoder.step(x, memory, state)
            return mean_of_heads(weights, 2), state

        inputs = ops.swapaxes(inputs, 0, 1)  # (T, B, …)
        weights, _ = backend.scan(step, state, inputs, decoder.compute_dtype)  # (T, B, S)
        total += ops.cast(ops.transpose(weights, (1, 0, 2)), "float32")
    return total / len(models)


def _advance(
    steps: Sequence[PlainStep], tokens: Tensor, memories: list[Any], states: list[Any]
) -> tuple[Any, Sequence[Tensor], list[Any]]:
    """Take a step of each model.

    Returns:
        The log of the models' mean probabilities `(rows, V)`, and for each model its weights
        `(rows, S)` and its next state.
    """
    results = [step(tokens, *each) for step, *each in zip(steps, memories, states, strict=True)]
    log_probs, weights, states = map(list, zip(*results, strict=True))
    if len(results) == 1:
        return log_probs[0], weights, states
    mean = ops.logsumexp(ops.stack(log_probs), axis=0) - ops.log(float(len(results)))
    return mean, weights, states
