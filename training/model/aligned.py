"""A decoder that generates each token from one source position, and never moves back."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention import HoistedRNN, backend
from keras_attention.recurrent import keras_cells
from training.sources.text._source import EMBEDDING_STDDEV

Tensor = Any

FARTHEST = 8  # all steps to the right of this width or more share one weight
# The initial weights of steps of width 0 to FARTHEST, by kind of source. Letters of a text are read
# one after the other, and training is fastest when it starts there. A letter of an image spans
# several columns. If a step to each of the many columns were equally likely, most alignments would
# reach the right edge after two tokens.
FIRST_WAYS = {
    "text": (0.0, 2.0, *(0.0,) * (FARTHEST - 1)),
    "image": (-2.0, 1.0, 2.0, 2.0, 1.0, 0.0, -1.0, -2.0, -6.0),
}
NEVER = -1e9  # a score whose probability is 0
TINY = 1e-37  # probabilities up to this get the log-probability NEVER
LEAST_TOTAL = 1e-34  # with smaller totals, gradients could be infinite


class AlignedDecoder(keras.layers.Layer):
    """Hard monotonic attention, trained by its exact marginal likelihood.

    The first-order model of Wu and Cotterell 2019, arXiv 1905.06319. Each token `y_t` is generated
    from one position `a_t` of a memory `h`, at or after the previous position. The cell's state
    `s_t` depends on the tokens before `y_t` and not on positions. So the sum over all alignments
    takes `T` steps:

    - `p(a_t = j | a_{t-1} = i)` is the softmax over `j ≥ i` of `vᵀ tanh(W s_t + U h_j) + d_{j-i}`;
    - `p(y_t | a_t = j) = softmax(O tanh(C h_j + S s_t))`;
    - `p(y_t | y_{<t}) = Σ_j p(a_t = j | y_{<t}) p(y_t | a_t = j)`.

    The weights `d` of the step width `j - i` are this library's addition. The first step starts at
    position 0.

    Args:
        cell: a Keras recurrent cell.
        vocab_size: V, token ids.
        embedding_size: width of the tokens' embeddings.
        units: width of the hidden layer before the output layer.
        attention_units: width of the scores' hidden layer.
        dropout: rate on embeddings, states and the hidden layer before the output layer.
        source: kind of source, a key of `FIRST_WAYS`, which has the initial step weights.

    Call arguments:
        tokens: int32 `(B, T)`, the token before each token to predict.
        memory: `(B, S, dim)`.
        memory_mask: boolean `(B, S)`; positions where it is False generate no token.
        initial_state: list of the cell's states, each `(B, ·)`.
        training: whether dropout is applied.

    Output:
        float32 log-probabilities of the tokens that follow, `(B, T, V)`.
    """

    def __init__(
        self,
        cell: keras.layers.Layer,
        vocab_size: int,
        embedding_size: int,
        units: int,
        attention_units: int,
        dropout: float = 0.0,
        source: str = "text",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.cell, self.vocab_size = cell, vocab_size
        initializer = keras.initializers.RandomNormal(stddev=EMBEDDING_STDDEV)
        options = {"dtype": self.dtype_policy}
        self.embedding = keras.layers.Embedding(
            vocab_size, embedding_size, embeddings_initializer=initializer, **options
        )
        self.rnn = HoistedRNN(cell, return_sequences=True, **options)
        self.query = keras.layers.Dense(attention_units, use_bias=False, **options)
        self.key = keras.layers.Dense(attention_units, **options)
        self.score = keras.layers.Dense(1, use_bias=False, **options)
        self.of_state = keras.layers.Dense(units, use_bias=False, **options)
        self.of_memory = keras.layers.Dense(units, **options)
        self.output_layer = keras.layers.Dense(vocab_size, **options)
        self.dropout = keras.layers.Dropout(dropout, **options)
        first = keras.initializers.Constant(np.array(FIRST_WAYS[source]))
        self.ways = self.add_weight((FARTHEST + 1,), first, name="ways")

    def call(
        self,
        tokens: Tensor,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        initial_state: Any = None,
        training: bool | None = None,
    ) -> Tensor:
        """Return log-probabilities `(B, T, V)`, summed over all alignments: see the class."""
        prepared = self.prepare(memory, memory_mask)
        x = self.dropout(self.embedding(tokens), training=training)  # (B, T, embedding_size)
        states = self.rnn(x, initial_state=initial_state, training=training)
        states = self.dropout(states, training=training)
        log_probs = self._said(states, prepared, training)  # (B, T, S, V)
        # Sliced after the choice: the gradient of a slice is as large as the tensor before it.
        next_tokens = ops.concatenate([tokens[:, 1:], tokens[:, :1]], axis=1)
        before = self._token_of(log_probs, next_tokens)[:, :-1]  # (B, T - 1, S)
        start = self._start(prepared)
        ways = self._ways(prepared)
        inputs = *self._moves(states, prepared, ways), before
        chances, totals, before = (ops.swapaxes(x, 0, 1) for x in inputs)  # time first
        before = ops.concatenate([start[None], before])  # (T, B, S)
        steps = {"chances": chances, "totals": totals, "before": before}

        def step(inputs: dict[str, Tensor], places: Tensor) -> tuple[Tensor, Tensor]:
            places = ops.softmax(_log(places) + inputs["before"])
            places = _moved(places, inputs["chances"], inputs["totals"], ways)
            return places, places

        places, _ = backend.scan(step, ops.ones_like(start), steps, "float32")  # (T, B, S)
        return ops.logsumexp(_log(ops.swapaxes(places, 0, 1))[..., None] + log_probs, axis=2)

    # One step at a time.

    def prepare(self, memory: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Return the parts that do not depend on the tokens.

        Args:
            memory: `(B, S, dim)`.
            mask: boolean `(B, S)`, or None if there is no padding.

        Returns:
            "key" `(B, S, attention_units)`, "value" `(B, S, units)`, and "closed" `(B, S)`: 0, or
            NEVER at padding.
        """
        memory = ops.cast(memory, self.compute_dtype)
        there = ops.ones_like(memory[..., 0]) if mask is None else mask
        closed = ops.where(ops.cast(there, "bool"), 0.0, NEVER)
        return {"key": self.key(memory), "value": self.of_memory(memory), "closed": closed}

    def initial_state(self, prepared: dict[str, Tensor], cell_state: Any) -> dict[str, Any]:
        """Return the state before the first step.

        Args:
            prepared: from `prepare`.
            cell_state: list of the cell's states, each `(B, ·)`.

        Returns:
            "cell", the cell's states, and "said" `(B, S, V)`: the joint log-probability of a
            position and of the token generated from it.
        """
        cell_state = [ops.cast(x, self.cell.compute_dtype) for x in cell_state]
        log_probs = ops.repeat(self._start(prepared)[..., None], self.vocab_size, axis=-1)
        return {"cell": cell_state, "said": log_probs}

    def step(
        self, tokens: Tensor, prepared: dict[str, Tensor], state: dict[str, Any]
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Take one step.

        Args:
            tokens: int32 `(B·n,)`; `n` rows share a memory row, as the beams of a search do.
            prepared: from `prepare`, with batch size B.
            state: the state before the step.

        Returns:
            Log-probabilities of the next token `(B·n, V)`, probabilities of the position that
            generates the next token `(B·n, S)`, and the next state.
        """
        output, cell_state = keras_cells.advance(
            self.cell, self.embedding(tokens), state["cell"], training=False
        )
        batch, length = ops.shape(prepared["closed"])
        rows = backend.group_size(ops.shape(tokens)[0], batch)
        states = ops.reshape(output, (batch, rows, output.shape[-1]))
        was = ops.softmax(self._token_of(state["said"], tokens))  # (B·n, S)
        ways = self._ways(prepared)
        moves = self._moves(states, prepared, ways)
        places = _moved(ops.reshape(was, (batch, rows, length)), *moves, ways)  # (B, n, S)
        log_probs = _log(places)[..., None] + self._said(states, prepared)
        log_probs = ops.reshape(log_probs, (batch * rows, length, self.vocab_size))
        places = ops.cast(ops.reshape(places, (batch * rows, length)), self.compute_dtype)
        return ops.logsumexp(log_probs, axis=1), places, {"cell": cell_state, "said": log_probs}

    # The parts of a step, for states `(B, n, ·)`.

    def _moves(
        self, states: Tensor, prepared: dict[str, Tensor], ways: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the chances of positions, and the softmax's totals, float32 `(B, n, S)` each.

        A chance is the exponential of a position's score. `totals[i]` is the sum of
        `chances[j] * ways[i, j]` over `j`: the normaliser of a step from position `i`. Dividing by
        it replaces a softmax over `(B, n, S, S)`, so no tensor has two position axes per token.
        """
        # (B, n, S, attention_units)
        hidden = ops.tanh(self.query(states)[:, :, None] + prepared["key"][:, None])
        scores = ops.cast(self.score(hidden)[..., 0], "float32") + prepared["closed"][:, None]
        chances = ops.exp(scores - ops.max(scores, axis=-1, keepdims=True))
        return chances, ops.tensordot(chances, ops.transpose(ways), 1)

    def _ways(self, prepared: dict[str, Tensor]) -> Tensor:
        """Return exp of the step weight from position i to position j, 0 if j < i: `(S, S)`."""
        place = ops.arange(ops.shape(prepared["closed"])[1], dtype="int32")
        way = place[None] - place[:, None]
        weights = ops.exp(ops.cast(self.ways, "float32"))
        return ops.where(way < 0, 0.0, ops.take(weights, ops.clip(way, 0, FARTHEST)))

    def _said(
        self, states: Tensor, prepared: dict[str, Tensor], training: bool | None = None
    ) -> Tensor:
        """Return the log-probabilities of tokens at each position, float32 `(B, n, S, V)`.

        Dropout leaves out the same units at all positions: a mask for each position took a fifth
        of a training step.
        """
        of_state = self.of_state(states)
        # (B, n, S, units)
        vector = ops.tanh(of_state[:, :, None] + prepared["value"][:, None])
        if training:
            kept = self.dropout(ops.ones_like(of_state), training=training)
            vector = vector * kept[:, :, None]
        return ops.log_softmax(ops.cast(self.output_layer(vector), "float32"))

    def _token_of(self, log_probs: Tensor, tokens: Tensor) -> Tensor:
        """Return the log-probabilities `(…, S)` of tokens `(…)`, selected from `(…, S, V)`."""
        chosen = ops.one_hot(tokens, self.vocab_size, dtype=log_probs.dtype)
        return ops.sum(log_probs * chosen[..., None, :], axis=-1)

    def _start(self, prepared: dict[str, Tensor]) -> Tensor:
        """Return log-probabilities `(B, S)` before the first step: 0 at position 0, else NEVER."""
        first = ops.arange(ops.shape(prepared["closed"])[1]) == 0
        return ops.where(first, 0.0, NEVER) + ops.zeros_like(prepared["closed"])


def _moved(places: Tensor, chances: Tensor, totals: Tensor, ways: Tensor) -> Tensor:
    """Return the probabilities of positions after a step, `(…, S)`.

    Args:
        places: probabilities before the step, `(…, S)`.
        chances: from `_moves`, `(…, S)`.
        totals: from `_moves`, `(…, S)`.
        ways: from `_ways`, `(S, S)`.
    """
    # Not `places / totals`, whose gradient divides twice: it is infinite for totals below 1e-19.
    inverse = ops.exp(-ops.log(ops.maximum(totals, LEAST_TOTAL)))
    return chances * ops.tensordot(places * inverse, ways, 1)


def _log(probabilities: Tensor) -> Tensor:
    return ops.where(probabilities > TINY, ops.log(ops.maximum(probabilities, TINY)), NEVER)
