"""Beam search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keras import ops, tree

from keras_attention.fast import backend
from keras_attention.search import results, running, tokens
from keras_attention.search.results import SearchResult, length_norm
from keras_attention.search.running import Progress, Running
from keras_attention.search.tokens import NEVER, Shortlist, Step

Tensor = Any

NOT_COVERED = 1e-6  # the least that a source position counts as looked at


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
    running.check_state("beam_search", state, batch_size)
    rules, longest = tokens.rules("beam_search", batch_size, max_length, prefix, forbidden)
    ids = tokens.ends("beam_search", end_id)
    width, share = beam_width, beam_width // num_groups
    decode = running.decoder(step, memory)

    def advance(time: Tensor, now: Running) -> tuple[dict[str, Any], Running]:
        _, last, finished, total, length, rules, _, coverage = now.progress
        log_probs, weights, state = decode(ops.reshape(last, (-1,)), now)
        log_probs = tokens.allowed(log_probs, time, rules, width)
        looked = lost = None
        if coverage_penalty:
            seen = coverage + _per_position(weights, width)
            looked = ops.where(ops.expand_dims(finished, -1), coverage, seen)
            lost = coverage_penalty * _coverage_loss(looked)  # (B, W)
        chosen: list[tuple[Tensor, ...]] = []
        for group in range(num_groups):
            mine = slice(group * share, (group + 1) * share)
            parents, *rest = _choose(
                _rows_of_group(log_probs, group, num_groups, share),
                (finished[:, mine], total[:, mine], length[:, mine]),
                length_penalty,
                None if lost is None else lost[:, mine],
                [(picked, ended) for _, picked, _, _, ended in chosen],
                diversity,
            )
            was_finished = backend.gather_in_rows(finished[:, mine], parents)
            chosen.append((parents + group * share, *rest, was_finished))
        parents, picked, total, length, was_finished = (
            xs[0] if num_groups == 1 else ops.concatenate(xs, axis=1)
            for xs in zip(*chosen, strict=True)
        )
        outputs = {"tokens": picked, "parents": parents}
        if return_attention_weights:
            outputs["weights"] = results.kept(weights, ops.shape(picked)[0], width)
        finished = ops.logical_or(was_finished, tokens.is_one_of(picked, ids))
        finished = ops.logical_or(finished, length >= ops.expand_dims(rules.limits, 1))
        # A frozen beam goes on reading an end token, which any embedding knows.
        last = ops.where(finished, ids[0], picked)
        if lost is not None:
            coverage = backend.gather_in_rows(looked, parents)
            lost = backend.gather_in_rows(lost, parents)
        settled = is_settled(finished, score(total, length, lost), total, length, rules)
        places = ops.expand_dims(ops.arange(ops.shape(picked)[0], dtype="int32"), 1) * width
        places = ops.reshape(places + parents, (-1,))
        state = tree.map_structure(lambda x: backend.gather(x, places), state)
        progress = Progress(settled, last, finished, total, length, rules, coverage=coverage)
        return running.spread(outputs, now), now._replace(progress=progress, state=state)

    def score(total: Tensor, length: Tensor, lost: Tensor | None) -> Tensor:
        scores = total / length_norm(length, length_penalty)
        return scores if lost is None else scores + lost

    def is_settled(
        finished: Tensor, scores: Tensor, total: Tensor, length: Tensor, rules: tokens.Rules
    ) -> Tensor:
        """Whether no open hypothesis of a sentence can still come among its results: `(B,)`."""
        limits = ops.expand_dims(rules.limits, 1)
        if num_groups > 1:  # each by itself
            limits = ops.repeat(limits, num_groups, axis=0)
            finished, scores, total, length = (
                ops.reshape(x, (-1, share)) for x in (finished, scores, total, length)
            )
        ended = ops.where(finished, scores, NEVER)
        # An open hypothesis scores best if all that follows costs nothing and covers all.
        reach = total / length_norm(ops.maximum(limits, length), length_penalty)
        reach = ops.where(finished, NEVER, reach)
        worst_result = ops.top_k(ended, min(num_results, share))[0][:, -1]
        best_open = ops.max(reach, axis=1, initial=NEVER)
        settled = ops.logical_or(worst_result >= best_open, ops.all(finished, axis=1))
        return settled if num_groups == 1 else ops.all(ops.reshape(settled, (-1, num_groups)), 1)

    zeros = ops.zeros((batch_size, width), "int32")
    # All beams of a group start alike, so all but the first start out of the race.
    first = ops.reshape(ops.arange(width) % share, (1, -1)) == 0
    state = tree.map_structure(lambda x: ops.repeat(x, width, axis=0), state)
    progress = Progress(
        settled=rules.limits <= 0,
        tokens=tokens.first_tokens(start_id, zeros),
        finished=ops.expand_dims(rules.limits, 1) <= zeros,
        total=ops.cast(zeros, "float32") + ops.where(first, 0.0, NEVER),
        length=zeros,
        rules=rules,
    )
    if coverage_penalty:  # what does not count is covered from the start
        covered = ops.cast(ops.logical_not(ops.cast(memory_mask, "bool")), "float32")
        covered = ops.repeat(ops.expand_dims(covered, 1), width, axis=1)
        progress = progress._replace(coverage=covered)
    names = ["tokens", "parents", *(["weights"] if return_attention_weights else [])]
    outputs, progress, steps = running.unfold(
        advance, running.start(progress, state, memory), longest, names
    )
    length, lost = progress.length, None
    if coverage_penalty:
        lost = coverage_penalty * _coverage_loss(progress.coverage)
    scores = score(progress.total, length, lost)
    best = ops.zeros((batch_size, num_results), "int32") + ops.arange(num_results, dtype="int32")
    if num_groups > 1:
        _, best = ops.top_k(scores, num_results)
        best = ops.cast(best, "int32")
        scores, length = (backend.gather_in_rows(x, best) for x in (scores, length))
    else:  # the beams are in order of their scores already: top_k sorts
        scores, length = scores[:, :num_results], length[:, :num_results]
    found = results.follow_parents(outputs, steps, best)
    return results.finish(found, length, scores, pad_id)


def _choose(
    log_probs: Tensor | Shortlist,
    beams: tuple[Tensor, Tensor, Tensor],
    length_penalty: float | Tensor,
    lost: Tensor | None,
    before: list[tuple[Tensor, Tensor]],
    diversity: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the best continuations of the beams `(B, W)`.

    Args:
        log_probs: `(B·W, V)`, or a shortlist.
        beams: whether each is finished, its total and its length, `(B, W)`.
        length_penalty: see `beam_search`.
        lost: what the score of each loses for coverage, `(B, W)`, or None.
        before: of the groups before, the tokens that they chose and whether these were after the
            end, `(B, W)`.
        diversity: see `beam_search`.

    Returns:
        Of each its parent among the beams, its token, its total and its length, `(B, W)`.
    """
    finished, total, length = beams
    width = finished.shape[1]
    cost = None
    if before:
        log_probs, cost = _with_cost(log_probs, width, before, diversity)
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
    picked, total, length = pick(token), pick(sums), pick(grown)
    if cost is not None:
        paid = cost(picked)
        total = total + ops.where(backend.gather_in_rows(finished, parents), 0.0, paid)
    return parents, picked, total, length


def _rows_of_group(log_probs: Any, group: int, groups: int, share: int) -> Any:
    """Return the rows of one group of log-probabilities `(B·W, V)` or of a shortlist."""
    if groups == 1:
        return log_probs

    def rows(x: Tensor) -> Tensor:
        width = ops.shape(x)[-1]
        return ops.reshape(ops.reshape(x, (-1, groups, share, width))[:, group], (-1, width))

    if isinstance(log_probs, Shortlist):
        return Shortlist(*(rows(x) for x in log_probs))
    return rows(log_probs)


def _with_cost(
    log_probs: Any, width: int, before: list[tuple[Tensor, Tensor]], diversity: float
) -> tuple[Any, Any]:
    """Return the log-probabilities less what tokens cost, and that cost as a function of tokens."""
    taken = ops.concatenate([picked for picked, _ in before], axis=1)  # (B, n)
    counts = ops.concatenate([ops.logical_not(ended) for _, ended in before], axis=1)

    def cost(ids: Tensor) -> Tensor:  # (B, ...) to what each costs
        shape = (-1, *[1] * (len(ids.shape) - 1), taken.shape[1])
        same = ops.equal(ops.expand_dims(ids, -1), ops.reshape(taken, shape))
        same = ops.logical_and(same, ops.reshape(counts, shape))
        return diversity * ops.sum(ops.cast(same, "float32"), axis=-1)

    listed = isinstance(log_probs, Shortlist)
    values = ops.cast(log_probs.log_probs if listed else log_probs, "float32")
    size = ops.shape(values)[-1]
    if listed:
        ids = ops.reshape(ops.cast(log_probs.ids, "int32"), (-1, width, size))
        return Shortlist(values - ops.reshape(cost(ids), (-1, size)), log_probs.ids), cost
    vocabulary = ops.reshape(ops.arange(size, dtype="int32"), (1, -1))
    vocabulary = ops.broadcast_to(vocabulary, (ops.shape(taken)[0], size))
    costs = ops.repeat(cost(vocabulary), width, axis=0)
    return values - costs, cost


def _per_position(weights: Tensor, width: int) -> Tensor:
    """Return a step's weights `(B·W, S)` or `(B·W, heads, S)` as `(B, W, S)`."""
    weights = ops.cast(weights, "float32")
    if len(weights.shape) > 2:
        weights = ops.mean(weights, axis=1)
    return ops.reshape(weights, (-1, width, ops.shape(weights)[-1]))


def _coverage_loss(coverage: Tensor) -> Tensor:
    """Return `(B, W)`, at most 0, of what each position of `(B, W, S)` was looked at in all."""
    return ops.sum(ops.log(ops.clip(coverage, NOT_COVERED, 1.0)), axis=-1)
