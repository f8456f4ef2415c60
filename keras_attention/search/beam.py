"""Beam search."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras import ops, tree

from keras_attention import backend
from keras_attention.search import coverage, groups, results, running, tokens
from keras_attention.search.results import SearchResult, length_norm
from keras_attention.search.running import Progress, Running
from keras_attention.search.tokens import NEVER, Shortlist, Step

Tensor = Any


class _Beam(NamedTuple):
    """What a search was asked for, see `beam_search`."""

    width: int
    num_groups: int
    diversity: float
    length_penalty: float | Tensor
    coverage_penalty: float
    num_results: int
    end_ids: Sequence[int]
    keeps_weights: bool

    @property
    def share(self) -> int:
        """Hypotheses of one group."""
        return self.width // self.num_groups


def beam_search(
    step: Step,
    state: Any,
    *,
    batch_size: int | Tensor,
    start_id: int | Tensor,
    end_id: int | Sequence[int],
    max_length: int | Tensor,
    beam_width: int = 5,
    length_penalty: float = 1.0,
    coverage_penalty: float = 0.0,
    memory_mask: Tensor | None = None,
    num_results: int = 1,
    pad_id: int = 0,
    return_attention_weights: bool = True,
    memory: Any = None,
    prefix: Any = None,
    forbidden: Any = None,
    num_groups: int = 1,
    diversity: float = 0.5,
) -> SearchResult:
    """Keep the `beam_width` best hypotheses at every step.

    A hypothesis that has ended is frozen: it keeps its place, its length and its score until better
    ones push it out. The search stops when no open hypothesis of any sentence can still come among
    its `num_results` best.

    With several groups (diverse beam search, Vijayakumar et al. 2018, arXiv 1610.02424) each has
    its share of the beam. One after the other chooses its tokens as if each were less probable by
    `diversity` for every hypothesis of the groups before that has chosen it at this step (their
    Hamming diversity). Scores are those of the hypotheses alone, and the results the best of all
    groups.

    Args:
        step: the decoder, see `keras_attention.search`.
        state: the decoder's state before the first step, with `batch_size` rows.
        batch_size: number of sentences.
        start_id: the token that the decoder reads first; or int32 `(B,)`, one for each sentence.
        end_id: the token that ends a sentence, or several that do.
        max_length: the greatest number of tokens, end token included; or int32 `(B,)`, one for
            each sentence, where 0 gives an empty one. A Python integer on JAX.
        beam_width: number of hypotheses kept for each sentence.
        length_penalty: see `SearchResult.scores` (Wu et al. 2016, arXiv 1609.08144, eq. 14);
            0 gives the plain sum, more prefers longer results.
        coverage_penalty: what a score loses where the source was not looked at (eq. 14 there):
            `coverage_penalty * sum over s of log(min(sum over t of weights[t, s], 1))`, of the
            mean over heads, no single position below `log(1e-6)`. 0 for none.
        memory_mask: boolean `(B, S)`, the source positions that count for it; needed for it alone.
        num_results: how many results are returned, at most `beam_width`.
        pad_id: what fills `ids` after the end.
        return_attention_weights: whether the attention weights are kept.
        memory: structure of tensors `(B, ...)` for `step`, see `keras_attention.search`; or None.
        prefix: tokens that the results begin with, int32 `(P,)` or `(B, P)`; -1 leaves a place
            free.
        forbidden: tokens that the results do not have, int32 `(F,)` or `(B, F)`; -1 stands for
            none.
        num_groups: number of groups, a divisor of `beam_width`.
        diversity: what a group pays for a token that a group before it has chosen.

    Returns:
        A `SearchResult` with ids `(B, N, T)`, N being `num_results`, best first.

    Raises:
        ValueError: if `num_results` is more than `beam_width`, if one of them or `max_length` is
            below 1, `length_penalty` or `coverage_penalty` below 0, or `memory_mask` is missing;
            if `num_groups` does not divide `beam_width`; for
            `end_id`, `prefix` or `forbidden` of another shape, a state with other than
            `batch_size` rows, and a `Shortlist` with a prefix.

    Example:
        ```python
        table = keras.ops.log_softmax(keras.random.normal((9, 9)))  # a bigram model of 9 tokens

        def step(tokens, state):
            return keras.ops.take(table, tokens, axis=0), None, state

        found = beam_search(
            step, (), batch_size=2, start_id=1, end_id=2, max_length=5, beam_width=3, num_results=3,
            return_attention_weights=False,
        )
        scores = found.scores  # (2, 3)
        ```
    """
    _check(length_penalty, coverage_penalty, memory_mask, num_results, beam_width, num_groups)
    running.check_state("beam_search", state, batch_size)
    rules, longest = tokens.rules("beam_search", batch_size, max_length, prefix, forbidden)
    beam = _Beam(
        width=beam_width,
        num_groups=num_groups,
        diversity=diversity,
        length_penalty=length_penalty,
        coverage_penalty=coverage_penalty,
        num_results=num_results,
        end_ids=tokens.ends("beam_search", end_id),
        keeps_weights=return_attention_weights,
    )
    progress = _start(beam, batch_size, start_id, rules, memory_mask)
    state = tree.map_structure(lambda x: ops.repeat(x, beam_width, axis=0), state)
    outputs, progress, steps = running.unfold(
        functools.partial(_advance, beam, running.decoder(step, memory)),
        running.start(progress, state, memory),
        longest,
        ["tokens", "parents", *(["weights"] if return_attention_weights else [])],
    )
    best, scores, length = _best(beam, progress, batch_size)
    found = results.follow_parents(outputs, steps, best)
    return results.finish(found, length, scores, pad_id)


def _check(
    length_penalty: float,
    coverage_penalty: float,
    memory_mask: Tensor | None,
    num_results: int,
    beam_width: int,
    num_groups: int,
) -> None:
    """Raise a ValueError for what `beam_search` cannot be asked for."""
    results.check_length_penalty("beam_search", length_penalty)
    if coverage_penalty < 0 or (coverage_penalty and memory_mask is None):
        raise ValueError(
            "beam_search expected coverage_penalty >= 0, and a memory_mask with it. "
            f"Received: coverage_penalty={coverage_penalty}, memory_mask={memory_mask}"
        )
    if not 1 <= num_results <= beam_width:
        raise ValueError(
            "beam_search expected 1 <= num_results <= beam_width. "
            f"Received: num_results={num_results}, beam_width={beam_width}"
        )
    if num_groups < 1 or beam_width % num_groups:
        raise ValueError(
            "beam_search expected num_groups to divide beam_width. "
            f"Received: num_groups={num_groups}, beam_width={beam_width}"
        )


def _start(
    beam: _Beam,
    batch_size: int | Tensor,
    start_id: int | Tensor,
    rules: tokens.Rules,
    memory_mask: Tensor | None,
) -> Progress:
    """Return the progress before the first step."""
    zeros = ops.zeros((batch_size, beam.width), "int32")
    # All beams of a group start alike, so all but the first start out of the race.
    first = ops.reshape(ops.arange(beam.width) % beam.share, (1, -1)) == 0
    return Progress(
        settled=rules.limits <= 0,
        tokens=tokens.first_tokens(start_id, zeros),
        finished=ops.expand_dims(rules.limits, 1) <= zeros,
        total=ops.cast(zeros, "float32") + ops.where(first, 0.0, NEVER),
        length=zeros,
        rules=rules,
        coverage=coverage.start(memory_mask, beam.width) if beam.coverage_penalty else (),
    )


def _advance(
    beam: _Beam, decode: Callable[[Tensor, Running], Any], time: Tensor, now: Running
) -> tuple[dict[str, Any], Running]:
    """Take a step of the search: let each hypothesis grow by a token, and keep the best."""
    _, last, finished, _, _, rules, _, covered = now.progress
    log_probs, weights, state = decode(ops.reshape(last, (-1,)), now)
    log_probs = tokens.allowed(log_probs, time, rules, beam.width)
    lost = None
    if beam.coverage_penalty:
        covered = coverage.add(covered, weights, finished)
        lost = beam.coverage_penalty * coverage.loss(covered)  # (B, W)
    parents, picked, total, length = _choose(beam, log_probs, now.progress, lost)
    outputs = {"tokens": picked, "parents": parents}
    if beam.keeps_weights:
        outputs["weights"] = results.kept(weights, ops.shape(picked)[0], beam.width)
    finished = backend.gather_in_rows(finished, parents)
    finished = ops.logical_or(finished, tokens.is_one_of(picked, beam.end_ids))
    finished = ops.logical_or(finished, length >= ops.expand_dims(rules.limits, 1))
    # A frozen beam goes on reading an end token, which any embedding knows.
    last = ops.where(finished, beam.end_ids[0], picked)
    if lost is not None:
        covered = backend.gather_in_rows(covered, parents)
        lost = backend.gather_in_rows(lost, parents)
    progress = Progress((), last, finished, total, length, rules, coverage=covered)
    progress = progress._replace(settled=_is_settled(beam, progress, lost))
    places = ops.expand_dims(ops.arange(ops.shape(picked)[0], dtype="int32"), 1) * beam.width
    places = ops.reshape(places + parents, (-1,))
    state = tree.map_structure(lambda x: backend.gather(x, places), state)
    return running.spread(outputs, now), now._replace(progress=progress, state=state)


def _choose(
    beam: _Beam, log_probs: Tensor | Shortlist, progress: Progress, lost: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the best continuations of the beams, one group after the other.

    Args:
        beam: what the search was asked for.
        log_probs: `(B·W, V)`, or a shortlist.
        progress: before the step, `(B, W)`.
        lost: what the score of each loses for coverage, `(B, W)`, or None.

    Returns:
        Of each its parent among the beams, its token, its total and its length, `(B, W)`.
    """
    beams = (progress.finished, progress.total, progress.length)
    if beam.num_groups == 1:
        return _choose_in_group(log_probs, beams, beam.length_penalty, lost)
    chosen: list[tuple[Tensor, ...]] = []
    taken: list[groups.Taken] = []  # by the groups before
    for group in range(beam.num_groups):
        mine = slice(group * beam.share, (group + 1) * beam.share)
        rows = groups.rows(log_probs, group, beam.num_groups, beam.share)
        cost = None
        if taken:
            rows, cost = groups.with_cost(rows, beam.share, taken, beam.diversity)
        finished, total, length = (x[:, mine] for x in beams)
        parents, picked, total, length = _choose_in_group(
            rows,
            (finished, total, length),
            beam.length_penalty,
            None if lost is None else lost[:, mine],
        )
        ended = backend.gather_in_rows(finished, parents)
        if cost is not None:  # the scores are those of the hypotheses alone
            total = total + ops.where(ended, 0.0, cost(picked))
        taken.append(groups.Taken(picked, ended))
        chosen.append((parents + group * beam.share, picked, total, length))
    parents, picked, total, length = (
        ops.concatenate(xs, axis=1) for xs in zip(*chosen, strict=True)
    )
    return parents, picked, total, length


def _choose_in_group(
    log_probs: Tensor | Shortlist,
    beams: tuple[Tensor, Tensor, Tensor],
    length_penalty: float | Tensor,
    lost: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the best continuations of the beams `(B, W)`, as `_choose` does.

    Args:
        log_probs: `(B·W, V)`, or a shortlist.
        beams: whether each is finished, its total and its length, `(B, W)`.
        length_penalty: see `beam_search`.
        lost: what the score of each loses for coverage, `(B, W)`, or None.
    """
    finished, total, length = beams
    width = finished.shape[1]
    # A frozen beam has one continuation, itself. Only the best W tokens of a beam can be among the
    # best W of a sentence, which spares sorting the joint vocabulary.
    gain, token = tokens.most_probable(log_probs, width)
    choices = token.shape[-1]
    gain, token = (ops.reshape(x, (-1, width, choices)) for x in (gain, token))
    first = ops.reshape(ops.arange(choices), (1, 1, -1)) == 0
    frozen = ops.expand_dims(finished, -1)
    gain = ops.where(frozen, ops.where(first, 0.0, NEVER), gain)
    grown = ops.expand_dims(length, -1) + ops.where(frozen, ops.zeros_like(token), 1)
    sums = ops.expand_dims(total, -1) + gain
    scores = sums / length_norm(grown, length_penalty)
    if lost is not None:
        scores = scores + ops.expand_dims(lost, -1)
    candidates = ops.reshape(scores, (-1, width * choices))
    _, index = ops.top_k(candidates, width)  # (B, W)

    def pick(x: Tensor) -> Tensor:
        return backend.gather_in_rows(ops.reshape(x, (-1, width * choices)), index)

    parents = ops.cast(ops.floor_divide(index, choices), "int32")
    return parents, pick(token), pick(sums), pick(grown)


def _score(beam: _Beam, total: Tensor, length: Tensor, lost: Tensor | None) -> Tensor:
    """Return what hypotheses are compared by, `(B, W)`."""
    scores = total / length_norm(length, beam.length_penalty)
    return scores if lost is None else scores + lost


def _is_settled(beam: _Beam, progress: Progress, lost: Tensor | None) -> Tensor:
    """Whether no open hypothesis of a sentence can still come among its results: `(B,)`."""
    _, _, finished, total, length, rules, _, _ = progress
    scores = _score(beam, total, length, lost)
    limits = ops.expand_dims(rules.limits, 1)
    if beam.num_groups > 1:  # each by itself
        limits = ops.repeat(limits, beam.num_groups, axis=0)
        finished, scores, total, length = (
            ops.reshape(x, (-1, beam.share)) for x in (finished, scores, total, length)
        )
    ended = ops.where(finished, scores, NEVER)
    # An open hypothesis scores best if all that follows costs nothing and covers all.
    reach = total / length_norm(ops.maximum(limits, length), beam.length_penalty)
    reach = ops.where(finished, NEVER, reach)
    worst_result = ops.top_k(ended, min(beam.num_results, beam.share))[0][:, -1]
    best_open = ops.max(reach, axis=1, initial=NEVER)
    settled = ops.logical_or(worst_result >= best_open, ops.all(finished, axis=1))
    if beam.num_groups == 1:
        return settled
    return ops.all(ops.reshape(settled, (-1, beam.num_groups)), 1)


def _best(
    beam: _Beam, progress: Progress, batch_size: int | Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the places of the results among the beams, their scores and lengths, `(B, N)`."""
    count = beam.num_results
    lost = None
    if beam.coverage_penalty:
        lost = beam.coverage_penalty * coverage.loss(progress.coverage)
    length = progress.length
    scores = _score(beam, progress.total, length, lost)
    if beam.num_groups == 1:  # the beams are in order of their scores already: top_k sorts
        best = ops.zeros((batch_size, count), "int32") + ops.arange(count, dtype="int32")
        return best, scores[:, :count], length[:, :count]
    best = ops.cast(ops.top_k(scores, count)[1], "int32")
    return best, backend.gather_in_rows(scores, best), backend.gather_in_rows(length, best)
