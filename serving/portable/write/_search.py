"""Beam search as a loop in the graph; a sentence leaves the batch when its search ends.

The results equal those of `keras_attention.search.beam_search`, or of `greedy_search` for a beam of
one. The first step continues one empty hypothesis for each sentence; its best continuations are the
beam of the next step. In shapes, B counts sentences, W hypotheses of a beam, N results, T steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from serving.portable.write._graph import Graph, Value, Values, without_prefix
from training.data.tokens.store import END_ID, PAD_ID, START_ID

# From tokens `(rows,)`, memory and state to log-probabilities `(rows, V)`, weights
# `(sentences, n, S)` and the next state.
Decode = Callable[[Value, Values, Values], tuple[Value, Value, Values]]
_NEVER = -np.inf


class GraphSettings(NamedTuple):
    """The settings of a search, which are inputs of the graph.

    Attributes:
        width: of the beam, int64 `(1,)`.
        results: the number of results for each sentence, int64 `(1,)`.
        length_penalty: float32 `()`.
        with_weights: whether to return attention weights, boolean `(1,)`.
    """

    width: Value
    results: Value
    length_penalty: Value
    with_weights: Value


class Result(NamedTuple):
    """The results of a search, the best first.

    Attributes:
        found: ids, int64 `(B, N, T)`, END included, padded after it.
        lengths: tokens of each result, int64 `(B, N)`; 0 if there is no result.
        scores: float32 `(B, N)`.
        weights: float32 `(B, N, T, S)`, 0 after the end; S is 0 unless weights are requested.
        log_probs: of each token, float32 `(B, N, T)`, 0 after the end.
    """

    found: Value
    lengths: Value
    scores: Value
    weights: Value
    log_probs: Value


def part_of(vocabulary: int) -> int:
    """Return the number of tokens in each part that `_best_tokens` cuts a vocabulary into."""
    return max(1, round(vocabulary**0.5))


def search(
    g: Graph,
    decode: Decode,
    memory: Values,
    state: Values,
    limits: Value,
    vocabulary: int | Value,
    settings: GraphSettings,
) -> Result:
    """Add a search by a decoder to the graph.

    `memory` and `state`, before the first step, are `(B, …)` by name, and `mask` is boolean `(B, 1,
    S)`. `limits`, float32 `(B, 1)`, are the most tokens of each sentence. `vocabulary` is the
    number of tokens, filled up to a multiple of `part_of`; or, int64 `()`, of one that is extended
    for the source.
    """
    turn = _BeamStep(g, decode, memory, limits, vocabulary, settings)
    start = turn.start(memory, state, limits)
    most = g.reduce("ReduceMax", g.concat([g.squeeze(limits, 1), g.constant([0.0])], 0), 0)
    _, (*emitted, ends) = g.loop(g.cast(most, "int64"), start, turn, outputs=4)
    # The best of all hypotheses that have ended; at equal scores, the hypothesis that ended first.
    ends = g("Flatten", g("Transpose", ends, perm=[1, 0, 2]), axis=1)  # (B, T · W)
    fewer = g.expand(_NEVER, g.size(limits, 0), settings.results)
    scores, index = g.top(g.concat([ends, fewer], 1), settings.results)  # (B, N)
    lengths = g("Where", scores > _NEVER, index // settings.width + 1, 0)
    return _follow(g, emitted, lengths, index % settings.width, scores, vocabulary)


class _Beam(NamedTuple):
    """The best continuations of each remaining sentence; every field is `(B, W)`.

    `parents` are the parents' indices in the sentence's previous beam, `rows` their indices among
    the rows of all beams. `said` is the token to output, PAD after the end. `ends` are the scores
    of hypotheses that end in this turn, -inf for other hypotheses.
    """

    scores: Value
    parents: Value
    rows: Value
    total: Value
    gained: Value
    length: Value
    said: Value
    token: Value
    finished: Value
    ends: Value


class _BeamStep:
    """The body of the loop: continues the beams of the sentences that remain in the batch."""

    def __init__(
        self,
        g: Graph,
        decode: Decode,
        memory: Values,
        limits: Value,
        vocabulary: int | Value,
        settings: GraphSettings,
    ) -> None:
        self._g, self._decode, self._vocabulary, self._settings = g, decode, vocabulary, settings
        self._norm = _norm(settings.length_penalty)
        self._batch = batch = g.size(limits, 0)
        self._column = g.shape(batch, 1)
        width = settings.width
        places = g.range(width)  # of a beam
        first = g("Equal", places, 0)
        # A finished hypothesis has one continuation: itself, at no cost.
        self._own = g("Where", first, 0.0, _NEVER)
        self._kept = g.size(memory["mask"], 2) * g.cast(settings.with_weights, "int64")
        self._everyone = g.range(batch)
        # Outputs for sentences that have left: each hypothesis is its own parent, its token is PAD.
        self._identity_parents = g.expand(places * vocabulary, batch, width)
        self._looks_nowhere = g.expand(0.0, batch, width, self._kept)
        self._gains_nothing = g.expand(0.0, batch, width)
        self._ends_nothing = g.expand(_NEVER, batch, width)

    def start(self, memory: Values, state: Values, limits: Value) -> Values:
        """Return the state before the first turn: one empty hypothesis for each sentence."""
        g = self._g
        return {
            "last": g.expand(g.constant(START_ID, "int64"), self._batch),
            "total": g.expand(0.0, self._column),
            "length": g.expand(0.0, self._column),
            "finished": g.expand(g.constant(False), self._column),
            "who": self._everyone,
            "limits": limits,
            **{f"memory_{name}": x for name, x in memory.items()},
            **{f"decoder_{name}": x for name, x in state.items()},
        }

    def __call__(self, now: Values) -> tuple[Value, Values, list[Value]]:
        """Return whether a sentence is unfinished, the next loop state, and this turn's outputs."""
        memory, state = without_prefix(now, "memory_"), without_prefix(now, "decoder_")
        log_probs, weights, new_state = self._decode(now["last"], memory, state)
        beam = self._choose(now, log_probs)
        emitted = self._emitted(now, beam, weights)
        return *self._leave(now, beam, new_state), emitted

    def _choose(self, now: Values, log_probs: Value) -> _Beam:
        """Continue each hypothesis with its W best tokens; keep the W best of each sentence."""
        g, width = self._g, self._settings.width
        values, tokens = _best_tokens(g, log_probs, width, self._vocabulary)
        shape = g.shape(g("Shape", now["total"]), width)
        values, tokens = g("Reshape", values, shape), g("Reshape", tokens, shape)  # (B, W, W)
        gain = g("Where", g.axis(now["finished"], 2), self._own, values)
        lengths = now["length"] + g.cast(~now["finished"], "float32")  # (B, W)
        sums = g.axis(now["total"], 2) + gain
        by_length = sums / g.axis(self._norm(lengths), 2)
        scores, index = g.top(g("Flatten", by_length, axis=1), width)  # of (B, W · W): (B, W)
        parents = index // width

        def chosen(x: Value) -> Value:
            return g("GatherElements", g("Flatten", x, axis=1), index, axis=1)

        def of_parents(x: Value) -> Value:
            return g("GatherElements", x, parents, axis=1)

        total, token, gained = chosen(sums), chosen(tokens), chosen(gain)
        length, was = of_parents(lengths), of_parents(now["finished"])
        ends = g("Equal", token, END_ID) | (length >= now["limits"])
        finished = was | ends
        word = g("Where", was, PAD_ID, token)
        beams = g.size(now["total"], 1)
        sentences = g.range(g.size(total, 0))
        rows = parents + g.axis(sentences, 1) * beams  # (B, W)
        now_ended = g("Where", finished & ~was, scores, _NEVER)
        return _Beam(scores, parents, rows, total, gained, length, word, token, finished, now_ended)

    def _emitted(self, now: Values, beam: _Beam, weights: Value) -> list[Value]:
        """Return this turn's codes, weights, log-probabilities and ends, `(B, W, …)`.

        B is the whole batch: a sentence that has left gets the outputs that `__init__` sets.
        """
        g = self._g
        who = g.axis(now["who"], 1)
        code = g(
            "ScatterND", self._identity_parents, who, beam.parents * self._vocabulary + beam.said
        )
        # (B, W, S) to (B·W, S), then the rows of the parents: (B, W, S)
        looked = g.slice(g("Reshape", weights, g.shape(-1, g.size(weights, 2))), 0, self._kept, 1)
        looked = g("ScatterND", self._looks_nowhere, who, g.gather(looked, beam.rows))
        gained = g("ScatterND", self._gains_nothing, who, beam.gained)
        ends = g("ScatterND", self._ends_nothing, who, beam.ends)
        return [code, looked, gained, ends]

    def _leave(self, now: Values, beam: _Beam, state: Values) -> tuple[Value, Values]:
        """Return whether any sentence is unfinished, and the state of the unfinished sentences."""
        g = self._g
        open_ = self._are_open(now, beam)
        stay = g.squeeze(g("NonZero", open_), 0)
        going = g.reshape(g.gather(beam.rows, stay), -1)  # (staying · W,)
        last = g.reshape(g.gather(g("Where", beam.finished, END_ID, beam.token), stay), -1)
        per_sentence = {
            "total": beam.total,
            "length": beam.length,
            "finished": beam.finished,
            "who": now["who"],
            "limits": now["limits"],
            **{name: x for name, x in now.items() if name.startswith("memory_")},
        }
        new = {
            "last": last,
            **{name: g.gather(x, stay) for name, x in per_sentence.items()},
            **{f"decoder_{name}": g.gather(x, going) for name, x in state.items()},
        }
        return g.cast(g("Squeeze", g.size(stay, 0)), "bool"), new

    def _are_open(self, now: Values, beam: _Beam) -> Value:
        """Return whether an open hypothesis of each sentence can still be a result, `(B,)`.

        An open hypothesis's score is bounded as if all further tokens had probability 1.
        """
        g = self._g
        ended = g("Where", beam.finished, beam.scores, _NEVER)
        worst, _ = g.top(ended, self._settings.results)
        worst = g("Squeeze", g.gather(worst, g.constant([-1]), axis=1), g.constant([1]))
        reach = g("Where", beam.finished, _NEVER, beam.total / self._norm(now["limits"]))
        reach = g.reduce("ReduceMax", reach, 1)
        return (reach >= worst) & (reach > _NEVER)  # at a tie, the open hypothesis may rank first


def _norm(penalty: Value) -> Callable[[Value], Value]:
    """Return the function from lengths to the divisors of summed log-probabilities."""
    g = penalty.graph
    return lambda length: g("Pow", (length + 5.0) / 6.0, penalty)


def _best_tokens(
    g: Graph, log_probs: Value, k: Value, vocabulary: int | Value
) -> tuple[Value, Value]:
    """Return the `k` greatest log-probabilities of each row `(rows, V)` and their ids, `(rows, k)`.

    A row is cut into parts. The `k` greatest are in the `k` parts with the greatest maxima; two
    small TopK are faster than one over V. An extended vocabulary is not cut into parts.
    """
    if isinstance(vocabulary, Value):
        return g.top(log_probs, k)
    part = part_of(vocabulary)
    count = vocabulary // part
    parts = g.reshape(log_probs, -1, count, part)  # (rows, count, part)
    some = g("Min", k, g.constant([count], "int64"))
    _, chosen = g.top(g.reduce("ReduceMax", parts, 2), some)
    best = g("GatherND", parts, g.axis(chosen, -1), batch_dims=1)  # (rows, some, part)
    values, places = g.top(g("Flatten", best, axis=1), k)
    which = g("GatherElements", chosen, places // part, axis=1)  # (rows, k), the part of each
    return values, which * part + places % part


def _follow(
    g: Graph,
    said: list[Value],
    lengths: Value,
    places: Value,
    scores: Value,
    vocabulary: int | Value,
) -> Result:
    """Return the results, by following parents from each hypothesis's end back to its start.

    Args:
        g: the graph.
        said: three outputs of all T steps: codes, parent · vocabulary + token, int64 `(T, B, W)`;
            weights `(T, B, W, S)`; and log-probabilities of the tokens `(T, B, W)`.
        lengths: tokens of each result, int64 `(B, N)`.
        places: indices in the beam of the turn in which each result ended, int64 `(B, N)`.
        scores: `(B, N)`.
        vocabulary: the number of tokens in a code.
    """
    codes, weights, gains = said
    turns = g.range(g.size(codes, 0))

    def back(before: Values, now: Values) -> tuple[Values, list[Value]]:
        code = g("GatherElements", now["code"], before["beams"], axis=1)
        # (B, W, S) at (B, N, 1): (B, N, S)
        looked = g("GatherND", now["weights"], g.axis(before["beams"], 2), batch_dims=1)
        gained = g("GatherElements", now["gains"], before["beams"], axis=1)
        # In turns after its end, a hypothesis keeps its place in the beam.
        beams = g("Where", g("Less", now["turn"], lengths), code // vocabulary, before["beams"])
        return {"beams": beams}, [code % vocabulary, looked, gained]

    _, (ids, looked, gained) = g.scan(
        {"beams": places},
        {"code": codes, "weights": weights, "gains": gains, "turn": turns},
        back,
        ranks=[2, 2, 3, 2],
        directions=[1, 1, 1, 1],
        output_directions=[1, 1, 1],
    )
    inside = g("Less", turns, g.axis(lengths, 2))  # (B, N, T)
    ids, gained = (g("Transpose", x, perm=[1, 2, 0]) for x in (ids, gained))
    looked = g("Transpose", looked, perm=[1, 2, 0, 3])  # (B, N, T, S)
    return Result(
        g("Where", inside, ids, PAD_ID),
        lengths,
        scores,
        g("Where", g.axis(inside, 3), looked, 0.0),
        g("Where", inside, gained, 0.0),
    )
