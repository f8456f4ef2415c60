"""Beam search. Greedy search is a beam search of width 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keras import ops, tree

from keras_attention import backend
from keras_attention.search import _loop, arguments
from keras_attention.search._loop import Progress, Running, SearchResult
from keras_attention.search.arguments import NEVER, Search, Shortlist, Step, expect
from keras_attention.shapes import Tensor, fits

_ABOVE = 0.05  # log-probabilities stay below it, even after rounding to half precision
_NOT_COVERED = 1e-6  # smaller coverages of a source position are raised to it


def beam_search(
    step: Step,
    state: Any,
    *,
    batch_size: int | Tensor,
    start_id: int | Tensor,
    end_id: int | Sequence[int],
    max_length: int | Tensor,
    max_steps: int | Tensor | None = None,
    beam_width: int = 5,
    length_penalty: float = 1.0,
    coverage_penalty: float = 0.0,
    memory_mask: Tensor | None = None,
    num_results: int = 1,
    pad_id: int = 0,
    return_attention_weights: bool = True,
    memory: Any = None,
    _name: str = "beam_search",
) -> SearchResult:
    """Search with the `beam_width` best hypotheses of each sentence at every step.

    A hypothesis that has ended stays in the beam, with its length and score, until better
    hypotheses replace it. The results are the best of all hypotheses that ended at any step;
    TensorFlow Addons returns the hypotheses of the last beam. The search stops when no open
    hypothesis of any sentence can become one of its `num_results` best.

    Args:
        step: the decoder, see `keras_attention.search`.
        state: the decoder's state before the first step, with `batch_size` rows.
        batch_size: number of sentences.
        start_id: the token that the decoder reads first; or int32 `(B,)`, a token for each
            sentence.
        end_id: the token that ends a sentence, or a sequence of such tokens.
        max_length: the greatest number of tokens, end token included; or int32 `(B,)`, a number for
            each sentence, where 0 gives an empty result. On JAX without `max_steps`, a Python
            integer.
        max_steps: an upper bound of a `max_length` `(B,)`. JAX and XLA need it, because they
            compile the search before they know the values of `max_length`.
        beam_width: number of hypotheses kept for each sentence.
        length_penalty: see `SearchResult.scores` (Wu et al. 2016, arXiv 1609.08144, eq. 14). With
            0, a score is the sum of log-probabilities; greater values prefer longer results.
        coverage_penalty: `β`, the penalty for source positions without weight (eq. 14 of the same
            paper): adds `β · Σ_s log(min(Σ_t a_ts, 1))` to the score, where `a` is the mean over
            the heads. Each position adds at least `β · log(1e-6)`. 0 for no penalty.
        memory_mask: boolean `(B, S)`, the positions that the coverage penalty sums; needed only
            for it.
        num_results: number of results for each sentence, at most `beam_width`.
        pad_id: the id that fills `ids` after the end.
        return_attention_weights: whether the attention weights are kept.
        memory: structure of tensors `(B, ...)` for `step`, see `keras_attention.search`; or None.

    Returns:
        A `SearchResult` with ids `(B, N, T)`, N being `num_results`, best first.

    Raises:
        ValueError: if an argument is out of its range; if `coverage_penalty` is given and
            `memory_mask` or the attention weights are missing or do not fit; if state or memory
            have another number of rows; if `step` returns results of another form. In eager mode
            and on JAX outside `jit`, also if log-probabilities are above 0, because `step` returned
            logits or probabilities.

    Example:
        ```python
        table = keras.ops.log_softmax(keras.random.normal((9, 9)))  # a bigram model of 9 tokens

        def step(tokens, state):
            return keras.ops.take(table, tokens, axis=0), None, state

        result = beam_search(
            step, (), batch_size=2, start_id=1, end_id=2, max_length=5, beam_width=3, num_results=3,
            return_attention_weights=False,
        )
        scores = result.scores  # (2, 3)
        ```
    """
    search = arguments.checked(
        _name,
        batch_size,
        start_id,
        end_id,
        max_length,
        max_steps,
        step=step,
        state=state,
        memory=memory,
        width=beam_width,
        num_results=num_results,
        length_penalty=length_penalty,
        coverage_penalty=coverage_penalty,
        memory_mask=memory_mask,
        pad_id=pad_id,
        keeps_weights=return_attention_weights,
    )
    start = _start(search)
    outputs, progress, steps = _loop.run(search, lambda _, now: _advance(search, now), start)
    if beam_width == 1:
        # (T, B, 1, …) to (B, 1, T, …)
        parts = tree.map_structure(lambda x: ops.moveaxis(x, 0, 2), outputs)
        lengths, lost = progress.length, _lost(search, progress.coverage)
        scores = _score(search, progress.total, lengths, lost)
    else:
        lost = _lost(search, start.coverage)
        empty = ops.where(start.ended, _score(search, start.total, start.length, lost), NEVER)
        lengths, scores, places = _loop.best_ended(outputs.pop("scores"), steps, empty, num_results)
        parts = _loop.follow_parents(outputs, lengths, places)
    result = _loop.finish(parts, lengths, scores, pad_id)
    if backend.is_concrete(result.log_probs) and ops.any(result.log_probs > _ABOVE):
        expected = "log-probabilities from step, at most 0, as keras.ops.log_softmax makes them of "
        search.refuse(expected + "logits", f"{float(ops.max(result.log_probs)):.3g}")
    return result


def greedy_search(
    step: Step, state: Any, *, length_penalty: float = 0.0, **options: Any
) -> SearchResult:
    """Take the most probable token at every step: a beam search that keeps one hypothesis.

    Args:
        step: the decoder, see `keras_attention.search`.
        state: the decoder's state before the first step, with `batch_size` rows.
        length_penalty: see `SearchResult.scores`; with 0, a score is the sum of log-probabilities.
        **options: other arguments of `beam_search`, except `beam_width` and `num_results`.

    Returns:
        A `SearchResult` with ids `(B, T)`, lengths and scores `(B,)`, weights `(B, T, S)`, with
        several heads `(B, T, heads, S)`, and log-probabilities `(B, T)`.
    """
    name, widths = "greedy_search", options.keys() & {"beam_width", "num_results"}
    expect(name, not widths, "no beams, which beam_search has", ", ".join(sorted(widths)))
    options |= {"beam_width": 1, "length_penalty": length_penalty, "_name": name}
    result = beam_search(step, state, **options)
    return SearchResult(
        *(x if x is None else tree.map_structure(lambda y: ops.squeeze(y, 1), x) for x in result)
    )


def _start(search: Search) -> Progress:
    """Return the progress before the first step."""
    first = search.start + ops.zeros((1, search.width), "int32")
    zeros = ops.zeros_like(first)
    # All hypotheses of a sentence are equal at the start. So all but the first start with -inf.
    leads = ops.reshape(ops.arange(search.width), (1, -1)) == 0
    coverage: Any = ()
    if search.coverage_penalty:  # masked positions count as covered: (B, W, S)
        coverage = ops.cast(ops.logical_not(ops.cast(search.memory_mask, "bool")), "float32")
        coverage = ops.repeat(ops.expand_dims(coverage, 1), search.width, axis=1)
    return Progress(
        finished=search.limits <= 0,
        tokens=first,
        ended=ops.expand_dims(search.limits, 1) <= zeros,
        total=ops.where(leads, ops.cast(zeros, "float32"), NEVER),
        length=zeros,
        limits=search.limits,
        coverage=coverage,
    )


def _advance(search: Search, running: Running) -> tuple[dict[str, Any], Running]:
    """Take a step of the search: extend each hypothesis by a token, and keep the best `W`.

    Returns the outputs of the step, each `(B, W, ...)`, and the new state of the loop.
    """
    _, _, ended, _, _, limits, covered = running.progress
    log_probs, weights, state = _loop.decode(search, running)
    if search.coverage_penalty:
        covered = _look(search, covered, weights, ended)
    lost = _lost(search, covered)
    if search.width == 1:
        picked, gain, total, length = _best(log_probs, running.progress)
        outputs = {"tokens": picked, "log_probs": gain}
    else:
        chosen = _choose(search, log_probs, running.progress, lost)
        scores, parents, picked, gain, total, length = chosen
        # Tokens and parents in one array, since the loop writes every array at every step.
        outputs = {"codes": picked * search.width + parents, "log_probs": gain}
        places = ops.expand_dims(ops.arange(ops.shape(picked)[0], dtype="int32"), 1) * search.width
        places = ops.reshape(places + parents, (-1,))  # (B·W,), rows of the parents
        state = tree.map_structure(lambda x: backend.gather(x, places), state)
        ended = had_ended = backend.gather_in_rows(ended, parents)
        if lost is not None:
            covered = backend.gather_in_rows(covered, parents)
    if search.keeps_weights:
        outputs["weights"] = _loop.by_hypothesis(weights, ops.shape(picked)[0], search.width)
    ended = ops.logical_or(ended, length >= ops.expand_dims(limits, 1))
    for end in search.ends:
        ended = ops.logical_or(ended, ops.equal(picked, end))
    # A hypothesis that has ended keeps reading an end token, a valid id for any embedding.
    last = ops.where(ended, search.ends[0], picked)
    progress = Progress((), last, ended, total, length, limits, covered)
    if search.width == 1:
        finished = ops.all(ended, axis=1)
    else:
        ends_now = ops.logical_and(ended, ops.logical_not(had_ended))
        outputs["scores"] = ops.where(ends_now, scores, NEVER)
        finished = _is_finished(search, progress, ops.where(ended, scores, NEVER))
    progress = progress._replace(finished=finished)
    return _loop.scatter(outputs, running), running._replace(progress=progress, state=state)


def _best(
    log_probs: Tensor | Shortlist, progress: Progress
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return token, log-probability, total and length `(B, 1)` of each sentence's hypothesis.

    The token is the most probable one. `log_probs` are `(B, V)`.
    """
    gain, token = arguments.most_probable(log_probs, 1)
    gain = ops.where(progress.ended, 0.0, gain)
    grown = progress.length + ops.cast(ops.logical_not(progress.ended), "int32")
    return token, gain, progress.total + gain, grown


def _choose(
    search: Search, log_probs: Tensor | Shortlist, progress: Progress, lost: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the best `W` continuations of each sentence, for log-probabilities `(B·W, V)`.

    Returns, each `(B, W)`: the scores, the parents (places in the beam), the tokens and their
    log-probabilities, the totals and the lengths. `lost` is the coverage penalty `(B, W)` or None.
    """
    width = search.width
    # A hypothesis that has ended has one continuation, itself. Of each hypothesis, only the best W
    # tokens can be among the best W of the sentence: the joint vocabulary need not be sorted.
    gain, token = arguments.most_probable(log_probs, width)
    choices = token.shape[-1]
    gain, token = (ops.reshape(x, (-1, width, choices)) for x in (gain, token))  # (B, W, choices)
    first = ops.reshape(ops.arange(choices), (1, 1, -1)) == 0
    frozen = ops.expand_dims(progress.ended, -1)
    gain = ops.where(frozen, ops.where(first, ops.zeros_like(gain), NEVER), gain)
    grown = ops.expand_dims(progress.length, -1) + ops.where(frozen, ops.zeros_like(token), 1)
    sums = ops.expand_dims(progress.total, -1) + gain  # (B, W, choices)
    lost = None if lost is None else ops.expand_dims(lost, -1)  # (B, W, 1)
    candidates = ops.reshape(_score(search, sums, grown, lost), (-1, width * choices))
    scores, index = ops.top_k(candidates, width)  # (B, W)

    def pick(x: Tensor) -> Tensor:  # (B, W, choices) to (B, W)
        return backend.gather_in_rows(ops.reshape(x, (-1, width * choices)), index)

    parents = ops.cast(ops.floor_divide(index, choices), "int32")
    return scores, parents, pick(token), pick(gain), pick(sums), pick(grown)


def _look(search: Search, covered: Tensor, weights: Any, ended: Tensor) -> Tensor:
    """Return the coverage `(B, W, S)` after a step with weights `(B·W, [heads,] S)`.

    The coverage of hypotheses that have ended does not change.
    """
    shape = tuple(getattr(weights, "shape", (0,)))
    if not fits(shape[-1:], covered.shape[-1:]):
        expected = "with coverage_penalty, attention weights as long as memory_mask, "
        search.refuse(f"{expected}{covered.shape[-1]}", None if weights is None else shape)
    weights = ops.cast(weights, "float32")
    if len(shape) > 2:
        weights = ops.mean(weights, axis=1)
    # (B·W, S) to (B, W, S)
    looked = covered + ops.reshape(weights, (-1, search.width, ops.shape(weights)[-1]))
    return ops.where(ops.expand_dims(ended, -1), covered, looked)


def _lost(search: Search, covered: Any) -> Tensor | None:
    """Return the coverage penalty of each hypothesis, `(B, W)`, or None without one."""
    if not search.coverage_penalty:
        return None
    seen = ops.log(ops.clip(covered, _NOT_COVERED, 1.0))
    return search.coverage_penalty * ops.sum(seen, axis=-1)


def length_norm(length: Tensor, penalty: float | Tensor) -> Tensor:
    """Return `((5 + length) / 6) ** penalty`, by which sums of log-probabilities are divided.

    Wu et al. 2016 (arXiv 1609.08144), eq. 14.

    Args:
        length: number of tokens, any shape.
        penalty: `α`, a number or a scalar.

    Returns:
        float32, in the shape of `length`.
    """
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, penalty)


def _score(search: Search, total: Tensor, length: Tensor, lost: Tensor | None) -> Tensor:
    """Return the scores for sums of log-probabilities, lengths and coverage penalties `lost`."""
    scores = total / length_norm(length, search.length_penalty)
    return scores if lost is None else scores + lost


def _is_finished(search: Search, progress: Progress, scores: Tensor) -> Tensor:
    """Return, boolean `(B,)`, whether no open hypothesis of a sentence can become a result.

    `scores` `(B, W)` are the scores of hypotheses that have ended, and -inf for open hypotheses.
    """
    # An upper bound of a score: all further tokens have probability 1, all positions are covered.
    longest = ops.maximum(ops.expand_dims(progress.limits, 1), progress.length)
    reach = _score(search, progress.total, longest, None)
    worst_result = ops.top_k(scores, search.num_results)[0][:, -1:]
    # At a tie, the search continues: the open hypothesis may be first. With -inf, none is open.
    beaten = ops.logical_or(worst_result > reach, reach == NEVER)
    return ops.all(ops.logical_or(progress.ended, beaten), axis=1)
