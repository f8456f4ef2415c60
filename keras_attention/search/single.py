"""Searches that choose one token at a time and never look back: greedy search and sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops, tree

from keras_attention import backend
from keras_attention.search import loop, results, tokens
from keras_attention.search.loop import Progress, Running, Search
from keras_attention.search.results import SearchResult
from keras_attention.search.tokens import Shortlist, Step

Tensor = Any


def greedy_search(
    step: Step,
    state: Any,
    *,
    batch_size: int | Tensor,
    start_id: int | Tensor,
    end_id: int | Sequence[int],
    max_length: int | Tensor,
    length_penalty: float = 0.0,
    pad_id: int = 0,
    return_attention_weights: bool = True,
    memory: Any = None,
    prefix: Any = None,
    forbidden: Any = None,
) -> SearchResult:
    """Take the most probable token at every step.

    Args:
        step: the decoder, see `keras_attention.search`.
        state: the decoder's state before the first step, with `batch_size` rows.
        batch_size: number of sentences.
        start_id: the token that the decoder reads first; or int32 `(B,)`, one for each sentence.
        end_id: the token that ends a sentence, or several that do.
        max_length: the greatest number of tokens, end token included; or int32 `(B,)`, one for
            each sentence, where 0 gives an empty one. A Python integer on JAX.
        length_penalty: see `SearchResult.scores`; 0 gives the plain sum.
        pad_id: the id that fills `ids` after the end.
        return_attention_weights: whether the attention weights are kept.
        memory: structure of tensors `(B, ...)` for `step`, see `keras_attention.search`; or None.
        prefix: tokens that the results begin with, int32 `(P,)` or `(B, P)`; -1 leaves a place
            free.
        forbidden: tokens that the results do not have, int32 `(F,)` or `(B, F)`; -1 stands for
            none.

    Returns:
        A `SearchResult` with ids `(B, T)`, lengths and scores `(B,)`, weights `(B, T, S)`,
            log-probabilities `(B, T)`.

    Raises:
        ValueError: if `max_length` is below 1 or `length_penalty` below 0, for `end_id`, `prefix`
            or `forbidden` of another shape, a state with other than `batch_size` rows, and a
            `Shortlist` with a prefix.

    Example:
        ```python
        table = keras.ops.log_softmax(keras.random.normal((9, 9)))  # a bigram model of 9 tokens

        def step(tokens, state):
            return keras.ops.take(table, tokens, axis=0), None, state

        found = greedy_search(
            step, (), batch_size=2, start_id=1, end_id=2, max_length=5,
            return_attention_weights=False,
        )
        ```
    """
    search = Search(
        loop.decoder("greedy_search", step, state, memory, batch_size),
        tokens.rules("greedy_search", batch_size, start_id, end_id, max_length, prefix, forbidden),
        results.form("greedy_search", length_penalty, pad_id, return_attention_weights),
    )
    found = _one_by_one(search, lambda log_probs, *_: tokens.most_probable(log_probs, 1), 1)
    return SearchResult(*(_without_results(x) for x in found))


def _without_results(x: Any) -> Any:
    """Return tensors `(B, 1, ...)` as `(B, ...)`; None as None."""
    return None if x is None else tree.map_structure(lambda y: ops.squeeze(y, 1), x)


def sample_search(
    step: Step,
    state: Any,
    *,
    batch_size: int | Tensor,
    start_id: int | Tensor,
    end_id: int | Sequence[int],
    max_length: int | Tensor,
    num_results: int = 1,
    temperature: float | Tensor = 1.0,
    top_k: int | None = None,
    top_p: float | Tensor | None = None,
    seed: int | keras.random.SeedGenerator | None = None,
    length_penalty: float = 0.0,
    pad_id: int = 0,
    return_attention_weights: bool = True,
    memory: Any = None,
    prefix: Any = None,
    forbidden: Any = None,
) -> SearchResult:
    """Draw every token from the decoder's distribution.

    The `top_k` most probable tokens of `softmax(log_probs / temperature)` are kept
    (Fan et al. 2018, arXiv 1805.04833), and of these the fewest that have `top_p` of the
    probability together (nucleus sampling, Holtzman et al. 2020, arXiv 1904.09751).

    Args:
        step: the decoder, see `keras_attention.search`.
        state: the decoder's state before the first step, with `batch_size` rows.
        batch_size: number of sentences.
        start_id: see `greedy_search`.
        end_id: see `greedy_search`.
        max_length: see `greedy_search`.
        num_results: how many results are drawn for each sentence, one independently of the other.
        temperature: below 1 for likelier tokens, above 1 for more variety.
        top_k: how many tokens are chosen from; None for all.
        top_p: the probability, above 0, of what is chosen from; None for all.
        seed: integer, or a `keras.random.SeedGenerator`, which goes on from call to call.
        length_penalty: see `SearchResult.scores`; 0 gives the plain sum.
        pad_id: the id that fills `ids` after the end.
        return_attention_weights: whether the attention weights are kept.
        memory: see `greedy_search`.
        prefix: see `greedy_search`.
        forbidden: see `greedy_search`.

    Returns:
        A `SearchResult` with ids `(B, N, T)`, N being `num_results`, in the order in which they
        were drawn. Scores are of the decoder's own log-probabilities, before the temperature.

    Raises:
        ValueError: as for `greedy_search`; if `num_results` or `top_k` is below 1, or
            `temperature` or `top_p` not above 0.

    Example:
        ```python
        table = keras.ops.log_softmax(keras.random.normal((9, 9)))  # a bigram model of 9 tokens

        def step(tokens, state):
            return keras.ops.take(table, tokens, axis=0), None, state

        found = sample_search(
            step, (), batch_size=2, start_id=1, end_id=2, max_length=5, num_results=4, top_p=0.9,
            return_attention_weights=False,
        )
        scores = found.scores  # (2, 4)
        ```
    """
    for name, value, least in (("num_results", num_results, 1), ("top_k", top_k, 1)):
        if value is not None and value < least:
            raise ValueError(f"sample_search expected {name} >= 1. Received: {name}={value}")
    for name, number in (("temperature", temperature), ("top_p", top_p)):
        if isinstance(number, (int, float, np.number)) and not number > 0:
            raise ValueError(f"sample_search expected {name} > 0. Received: {name}={number}")
    search = Search(
        loop.decoder("sample_search", step, state, memory, batch_size),
        tokens.rules("sample_search", batch_size, start_id, end_id, max_length, prefix, forbidden),
        results.form("sample_search", length_penalty, pad_id, return_attention_weights),
    )
    # Drawn before the loop, or the seed's state would leak out of it.
    draws = keras.random.uniform((batch_size, num_results, search.rules.longest), seed=seed)

    def draw(log_probs: Any, time: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        now = ops.reshape(ops.take(draws, time, axis=2), (-1, 1))
        return _drawn(log_probs, now, temperature, top_k, top_p)

    return _one_by_one(search, draw, num_results, draws)


def _drawn(
    log_probs: Any,
    draws: Tensor,
    temperature: float | Tensor,
    top_k: int | None,
    top_p: float | Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return a token of each row, and its log-probability, `(rows, 1)`."""
    listed = isinstance(log_probs, Shortlist)
    values = ops.cast(log_probs.log_probs if listed else log_probs, "float32")
    ids = None
    if top_k is not None:
        values, ids = tokens.most_probable(log_probs, top_k)
    elif top_p is not None:
        order = ops.cast(ops.argsort(-values, axis=-1), "int32")
        values = backend.gather_in_rows(values, order)
        ids = backend.gather_in_rows(ops.cast(log_probs.ids, "int32"), order) if listed else order
    elif listed:
        ids = ops.cast(log_probs.ids, "int32")
    highest = backend.greatest(values, tokens.NEVER, axis=-1, keepdims=True)
    # If no token is left, all are alike: the sum is -inf whichever is drawn.
    shares = ops.exp(ops.where(highest > tokens.NEVER, values - highest, 0.0) / temperature)
    up_to = ops.cumsum(shares, axis=-1)
    if top_p is not None:  # sorted: a token is kept if those before it have less than that
        shares = ops.where(up_to - shares < top_p * up_to[:, -1:], shares, 0.0)
        up_to = ops.cumsum(shares, axis=-1)
    # The first whose sum is above the draw; a draw of nearly 1, rounded, would be above all.
    index = ops.argmax(ops.cast(up_to > draws * (1 - 1e-6) * up_to[:, -1:], "int32"), axis=-1)
    index = ops.expand_dims(ops.cast(index, "int32"), 1)
    gain = backend.gather_in_rows(values, index)
    return gain, index if ids is None else backend.gather_in_rows(ids, index)


def _one_by_one(
    search: Search,
    choose: Callable[[Any, Tensor, Any], tuple[Tensor, Tensor]],
    count: int,
    draws: Any = (),
) -> SearchResult:
    """Search for `count` results of each sentence, one token at a time.

    Args:
        search: its arguments.
        choose: `(log-probabilities, step number, draws)` to the log-probability and the id of one
            token of each row, `(rows, 1)`.
        count: number of results of a sentence.
        draws: see `Progress`.
    """

    def advance(time: Tensor, now: Running) -> tuple[dict[str, Any], Running]:
        _, last, finished, total, length, rules, draws, _ = now.progress
        log_probs, weights, state = loop.decode(search, time, now)
        gain, best = (ops.reshape(x, ops.shape(last)) for x in choose(log_probs, time, draws))
        total = total + ops.where(finished, 0.0, gain)
        length = length + ops.cast(ops.logical_not(finished), "int32")
        outputs = {"tokens": best, "log_probs": gain}
        if search.form.keeps_weights:
            outputs["weights"] = results.kept(weights, ops.shape(best)[0], count)
        ends = search.rules.ends
        finished = ops.logical_or(finished, tokens.are_last(best, length, ends, rules))
        # A finished sentence goes on with an end token, which any embedding knows.
        last = ops.where(finished, ends[0], best)
        progress = Progress(ops.all(finished, 1), last, finished, total, length, rules, draws)
        return loop.spread(outputs, now), now._replace(progress=progress, state=state)

    rules = search.rules.sentences
    first = search.rules.start + ops.zeros((1, count), "int32")
    zeros = ops.zeros_like(first)
    finished = zeros >= ops.expand_dims(rules.limits, 1)
    total = ops.cast(zeros, "float32")
    progress = Progress(rules.limits <= 0, first, finished, total, zeros, rules, draws)
    outputs, progress, _ = loop.run(search, advance, progress)
    found = tree.map_structure(lambda x: ops.moveaxis(x, 0, 2), outputs)
    scores = search.form.score(progress.total, progress.length)
    return search.form.finish(found, progress.length, scores)
