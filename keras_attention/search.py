"""Greedy and beam search over a step function, for any decoder.

The decoder is a function `step(tokens, state) -> (log_probs, attention_weights, state)`:

- `tokens`: int32 `(rows,)`, the last token of each hypothesis;
- `state`: any structure of tensors whose first axis is `rows`;
- `log_probs`: `(rows, vocabulary)`, log-probabilities of the next token, or a `Shortlist`;
- `attention_weights`: `(rows, S)`, with several heads `(rows, heads, S)`, or None where the decoder
  does not attend.

In greedy search `rows` is the batch size, in beam search `batch_size · beam_width`, the beams of a
sentence next to one another. What does not change from step to step, such as the memory, need not
be in the state: a step function that closes over it saves its copies. Passed as `memory`, it is the
third argument of `step`, `(B, ...)`, and sentences that are finished leave the batch, from memory
and state alike, so that a batch takes little longer than its sentences. (Where shapes are fixed, on
JAX and under XLA, they stay.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops, tree

from keras_attention import backend, running
from keras_attention.top_k import top_k

Tensor = Any
Step = Callable[..., tuple[Tensor, Tensor | None, Any]]

NEVER = -1e30


class Shortlist(NamedTuple):
    """What a step may return for `log_probs`: the most probable tokens alone.

    Attributes:
        log_probs: `(rows, K)`, in any order; K is at least the beam width.
        ids: int32 `(rows, K)`, the tokens.
    """

    log_probs: Tensor
    ids: Tensor


class SearchResult(NamedTuple):
    """What a search found. Greedy search has no axis N.

    Attributes:
        ids: int32 `(B, N, T)`, the end token included, padded with `pad_id` after it.
        lengths: int32 `(B, N)`, tokens in each result, the end token included.
        scores: float32 `(B, N)`, best first: the sum of the log-probabilities divided by
            `((5 + length) / 6) ** length_penalty`.
        attention_weights: `(B, N, T, S)`, with several heads `(B, N, T, heads, S)`, zeros after
            the end; None if they were not asked for.
    """

    ids: Tensor
    lengths: Tensor
    scores: Tensor
    attention_weights: Tensor | None


def greedy_search(
    step: Step,
    state: Any,
    *,
    batch_size: int | Tensor,
    start_id: int,
    end_id: int,
    max_length: int | Tensor,
    length_penalty: float = 0.0,
    pad_id: int = 0,
    return_attention_weights: bool = True,
    memory: Any = None,
) -> SearchResult:
    """Take the most probable token at every step.

    Args:
        step: the decoder, see the module.
        state: the decoder's state before the first step.
        batch_size: number of sentences.
        start_id: the token that the decoder reads first.
        end_id: the token that ends a sentence.
        max_length: the greatest number of tokens, end token included; or int32 `(B,)`, one for
            each sentence. A Python integer on JAX.
        length_penalty: see `SearchResult.scores`; 0 gives the plain sum.
        pad_id: what fills `ids` after the end.
        return_attention_weights: whether the attention weights are kept.
        memory: structure of tensors `(B, ...)` for `step`, see the module; or None.

    Returns:
        A `SearchResult` with ids `(B, T)`, lengths and scores `(B,)`, weights `(B, T, S)`.

    Raises:
        ValueError: if `max_length` is below 1 or `length_penalty` below 0.
    """
    _check("greedy_search", max_length, length_penalty)
    limit, longest = _limits(max_length, batch_size)
    decode = running.decoder(step, memory)

    def advance(_, now):
        finished, tokens, total, length, limits = now.carry
        log_probs, weights, state = decode(tokens, now)
        gain, best = (ops.squeeze(x, -1) for x in _most_probable(log_probs, 1))
        total = total + ops.where(finished, 0.0, gain)
        length = length + ops.cast(ops.logical_not(finished), "int32")
        outputs = {"tokens": best}
        if return_attention_weights:
            outputs["weights"] = _kept(weights, ops.shape(best)[0], 1)
        finished = ops.logical_or(finished, ops.equal(best, end_id))
        finished = ops.logical_or(finished, length >= limits)
        # A finished sentence goes on with its end token, which any embedding knows.
        tokens = ops.where(finished, end_id, best)
        carry = (finished, tokens, total, length, limits)
        return running.spread(outputs, now), now._replace(carry=carry, state=state)

    zeros = ops.zeros((batch_size,), "int32")
    carry = (
        ops.cast(zeros, "bool"),
        ops.full_like(zeros, start_id),
        ops.cast(zeros, "float32"),
        zeros,
        limit,
    )
    outputs, carry, _ = running.unfold(
        advance,
        running.start(carry, state, memory),
        longest,
        _output_dtypes("tokens", return_attention_weights),
    )
    _, _, total, length, _ = carry
    outputs = {name: ops.swapaxes(x, 0, 1) for name, x in outputs.items()}  # (B, T, ...)
    if return_attention_weights:
        outputs["weights"] = ops.squeeze(outputs["weights"], 2)
    ids, weights = _cut(outputs, length, pad_id)
    return SearchResult(ids, length, total / _length_norm(length, length_penalty), weights)


def beam_search(
    step: Step,
    state: Any,
    *,
    batch_size: int | Tensor,
    start_id: int,
    end_id: int,
    max_length: int | Tensor,
    beam_width: int = 5,
    length_penalty: float = 1.0,
    num_results: int = 1,
    pad_id: int = 0,
    return_attention_weights: bool = True,
    memory: Any = None,
) -> SearchResult:
    """Keep the `beam_width` best hypotheses at every step.

    A hypothesis that has ended is frozen: it keeps its place, its length and its score until better
    ones push it out. The search stops when no open hypothesis of any sentence can still come among
    its `num_results` best.

    Args:
        step: the decoder, see the module.
        state: the decoder's state before the first step, with `batch_size` rows.
        batch_size: number of sentences.
        start_id: the token that the decoder reads first.
        end_id: the token that ends a sentence.
        max_length: the greatest number of tokens, end token included; or int32 `(B,)`, one for
            each sentence. A Python integer on JAX.
        beam_width: number of hypotheses kept for each sentence.
        length_penalty: see `SearchResult.scores` (Wu et al. 2016, arXiv 1609.08144, eq. 14);
            0 gives the plain sum, more prefers longer results.
        num_results: how many results are returned, at most `beam_width`.
        pad_id: what fills `ids` after the end.
        return_attention_weights: whether the attention weights are kept.
        memory: structure of tensors `(B, ...)` for `step`, see the module; or None.

    Returns:
        A `SearchResult` with ids `(B, N, T)`, N being `num_results`.

    Raises:
        ValueError: if `num_results` is more than `beam_width`, if one of them or `max_length` is
            below 1, or `length_penalty` below 0.
    """
    _check("beam_search", max_length, length_penalty)
    if not 1 <= num_results <= beam_width:
        raise ValueError(
            "beam_search expected 1 <= num_results <= beam_width. "
            f"Received: num_results={num_results}, beam_width={beam_width}"
        )
    limit, longest = _limits(max_length, batch_size)
    limit = ops.expand_dims(limit, -1)  # (B, 1)
    width = beam_width
    decode = running.decoder(step, memory)

    def advance(_, now):
        _, tokens, finished, total, length, limits = now.carry
        log_probs, weights, state = decode(ops.reshape(tokens, (-1,)), now)
        # A frozen beam has one continuation, itself. Only the best W tokens of a beam can be
        # among the best W of a sentence, which spares sorting the joint vocabulary.
        gain, token = _most_probable(log_probs, width)
        choices = token.shape[-1]
        gain, token = (ops.reshape(x, (-1, width, choices)) for x in (gain, token))
        first = ops.reshape(ops.arange(choices), (1, 1, -1)) == 0
        frozen = ops.expand_dims(finished, -1)
        gain = ops.where(frozen, ops.where(first, 0.0, NEVER), gain)
        grown = ops.expand_dims(length, -1) + ops.where(frozen, ops.zeros_like(token), 1)
        sums = ops.expand_dims(total, -1) + gain
        candidates = ops.reshape(sums / _length_norm(grown, length_penalty), (-1, width * choices))
        _, index = ops.top_k(candidates, width)  # (B, W)

        def pick(x):
            return backend.gather_in_rows(ops.reshape(x, (-1, width * choices)), index)

        parents = ops.cast(ops.floor_divide(index, choices), "int32")
        was_finished = backend.gather_in_rows(finished, parents)
        picked = pick(token)
        outputs = {"tokens": picked, "parents": parents}
        if return_attention_weights:
            outputs["weights"] = _kept(weights, ops.shape(picked)[0], width)
        total, length = pick(sums), pick(grown)
        finished = ops.logical_or(was_finished, ops.equal(picked, end_id))
        finished = ops.logical_or(finished, length >= limits)
        # A frozen beam goes on reading its end token, which any embedding knows.
        tokens = ops.where(finished, end_id, picked)
        settled = is_settled(finished, total, length, limits)
        places = ops.expand_dims(ops.arange(ops.shape(picked)[0], dtype="int32"), 1) * width
        places = ops.reshape(places + parents, (-1,))
        state = tree.map_structure(lambda x: backend.gather(x, places), state)
        carry = (settled, tokens, finished, total, length, limits)
        return running.spread(outputs, now), now._replace(carry=carry, state=state)

    def is_settled(finished, total, length, limits):
        """Whether no open hypothesis of a sentence can still come among its results: `(B,)`."""
        ended = ops.where(finished, total / _length_norm(length, length_penalty), NEVER)
        # An open hypothesis scores best if all that follows costs nothing.
        reach = total / _length_norm(ops.maximum(limits, length), length_penalty)
        reach = ops.where(finished, NEVER, reach)
        worst_result = ops.top_k(ended, num_results)[0][:, -1]
        best_open = ops.max(reach, axis=1, initial=NEVER)
        return ops.logical_or(worst_result >= best_open, ops.all(finished, axis=1))

    zeros = ops.zeros((batch_size, width), "int32")
    # All beams start alike, so all but the first start out of the race.
    only_first = ops.where(ops.reshape(ops.arange(width), (1, -1)) == 0, 0.0, NEVER)
    state = tree.map_structure(lambda x: ops.repeat(x, width, axis=0), state)
    carry = (
        ops.zeros((batch_size,), "bool"),
        ops.full_like(zeros, start_id),
        ops.cast(zeros, "bool"),
        ops.cast(zeros, "float32") + only_first,
        zeros,
        limit,
    )
    outputs, carry, steps = running.unfold(
        advance,
        running.start(carry, state, memory),
        longest,
        _output_dtypes("tokens parents", return_attention_weights),
    )
    _, _, _, total, length, _ = carry
    # The beams are in order of their scores already: top_k sorts.
    total, length = total[:, :num_results], length[:, :num_results]
    ids, weights = _cut(_follow_parents(outputs, steps, num_results), length, pad_id)
    return SearchResult(ids, length, total / _length_norm(length, length_penalty), weights)


def _most_probable(log_probs: Tensor | Shortlist, k: int) -> tuple[Tensor, Tensor]:
    """Return the best `k` tokens of each row, or all, `(rows, k)`: log-probabilities and ids."""
    listed = isinstance(log_probs, Shortlist)
    values = log_probs.log_probs if listed else log_probs
    values, index = top_k(ops.cast(values, "float32"), min(k, values.shape[-1]))
    return values, backend.gather_in_rows(log_probs.ids, index) if listed else index


def _check(name: str, max_length: int | Tensor, length_penalty: float) -> None:
    if isinstance(max_length, int) and max_length < 1:
        raise ValueError(f"{name} expected max_length >= 1. Received: max_length={max_length}")
    if isinstance(length_penalty, (int, float)) and length_penalty < 0:
        raise ValueError(
            f"{name} expected length_penalty >= 0. Received: length_penalty={length_penalty}"
        )


def _like(x: Tensor, wider: Tensor) -> Tensor:
    """Give `x` the rank of `wider` by axes of size 1 at its end."""
    return ops.reshape(x, (*ops.shape(x), *[1] * (len(wider.shape) - len(x.shape))))


def _limits(max_length: int | Tensor, batch_size: int | Tensor) -> tuple[Tensor, int | Tensor]:
    """Return the limit of each sentence, `(B,)`, and the longest, for the loop."""
    limit = ops.convert_to_tensor(max_length, "int32")
    if not len(limit.shape):
        return ops.zeros((batch_size,), "int32") + limit, max_length
    return limit, ops.max(limit, initial=1)


def _length_norm(length: Tensor, penalty: float) -> Tensor:
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, penalty)


def _output_dtypes(names: str, weights: bool) -> dict[str, str]:
    """Return the dtypes of what a step puts out, for `backend.unfold`."""
    dtypes = dict.fromkeys(names.split(), "int32")
    return {**dtypes, "weights": "float32"} if weights else dtypes


def _kept(weights: Tensor | None, batch_size: int | Tensor, width: int) -> Tensor:
    """Return a step's weights as `(B, W, S)`; S is 0 for a decoder that does not attend."""
    if weights is None:
        return ops.zeros((batch_size, width, 0), "float32")
    weights = ops.cast(weights, "float32")
    return ops.reshape(weights, (batch_size, width, *ops.shape(weights)[1:]))


def _follow_parents(outputs: dict, steps: Tensor, num_results: int) -> dict:
    """Rebuild the results `(B, N, T, ...)` from what all steps put out, `(T, B, W, ...)`."""
    time, batch = ops.shape(outputs["parents"])[:2]
    beams = ops.zeros((batch, num_results), "int32") + ops.arange(num_results, dtype="int32")
    backwards = {name: ops.flip(x, axis=0) for name, x in outputs.items()}
    # A backend may pad the steps (see `backend.unfold`); the padding is passed over.
    backwards["taken"] = ops.flip(ops.arange(time) < steps, axis=0)

    def back(now, beams):
        parents = backend.gather_in_rows(now["parents"], beams)
        parents = ops.where(now["taken"], parents, beams)
        found = {"tokens": backend.gather_in_rows(now["tokens"], beams)}
        if "weights" in now:  # they belong to the beams before the choice: to the parents
            found["weights"] = backend.gather_in_rows(now["weights"], parents)
        return found, parents

    dtypes = _output_dtypes("tokens", "weights" in outputs)
    found, _ = backend.scan(back, beams, backwards, dtypes)
    return {name: ops.moveaxis(ops.flip(x, axis=0), 0, 2) for name, x in found.items()}


def _cut(found: dict, length: Tensor, pad_id: int) -> tuple[Tensor, Tensor | None]:
    """Blank ids `(..., T)` and weights `(..., T, ..., S)` after each result's length."""
    ids, weights = found["tokens"], found.get("weights")
    inside = ops.arange(ops.shape(ids)[-1]) < ops.expand_dims(length, -1)
    if weights is not None:
        weights = ops.where(_like(inside, weights), weights, ops.zeros_like(weights))
        if weights.shape[-1] == 0:
            weights = None
    return ops.where(inside, ids, ops.full_like(ids, pad_id)), weights
