"""A decoder that makes each token of one place of the source, and never goes back."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention import HoistedRNN, backend
from keras_attention.recurrent import keras_cells
from training.sources.text.source import EMBEDDING_STDDEV

Tensor = Any

FARTHEST = 8  # steps to the right from which on all have one weight
# The weights of steps at first, by source. Letters of a text are read one after the other, which is
# learned sooner than any other way. A letter of an image has some columns: were ways to all of the
# many columns as likely, most alignments would end at the right edge after two tokens.
FIRST_WAYS = {
    "text": (0.0, 2.0, *(0.0,) * (FARTHEST - 1)),
    "image": (-2.0, 1.0, 2.0, 2.0, 1.0, 0.0, -1.0, -2.0, -6.0),
}
NEVER = -1e9  # a score whose probability is 0
TINY = 1e-37  # the least probability that a logarithm is taken of


class AlignedDecoder(keras.layers.Layer):
    """Hard monotonic attention, trained by its exact marginal likelihood.

    The first-order model of Wu and Cotterell 2019, arXiv 1905.06319. Each token `y_t` is said of
    one place `a_t` of a memory `h`, at or after the place before. The cell's state `s_t` knows the
    tokens before `y_t` and no place, so that the sum over all alignments takes `T` steps:

    - `p(a_t = j | a_{t-1} = i)` is the softmax over `j ≥ i` of `vᵀ tanh(W s_t + U h_j) + d_{j-i}`;
    - `p(y_t | a_t = j) = softmax(O tanh(C h_j + S s_t))`;
    - `p(y_t | y_{<t}) = Σ_j p(a_t = j | y_{<t}) p(y_t | a_t = j)`.

    The weights `d` of the way taken are this library's. The first place is that before the start.

    Args:
        cell: a Keras recurrent cell.
        vocab_size: V, token ids.
        embedding_size: width of the tokens' embeddings.
        units: width of the vector that a token is read out of.
        attention_units: width of the scores' hidden layer.
        dropout: rate on embeddings, states and the vectors that tokens are read out of.
        source: whose weights of steps, in `FIRST_WAYS`, are those to begin with.

    Call arguments:
        tokens: int32 `(B, T)`, those before the tokens to be said.
        memory: `(B, S, dim)`.
        memory_mask: boolean `(B, S)`; nothing is said of places where it is False.
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
        """Sum over all alignments; arguments and result as the class says."""
        prepared = self.prepare(memory, memory_mask)
        x = self.dropout(self.embedding(tokens), training=training)
        states = self.rnn(x, initial_state=initial_state, training=training)
        states = self.dropout(states, training=training)
        log_probs = self._said(states, prepared, training)
        before = self._token_of(log_probs[:, :-1], tokens[:, 1:])
        start = self._start(prepared)
        ways = self._ways(prepared)
        inputs = *self._moves(states, prepared, ways), before
        chances, totals, before = (ops.swapaxes(x, 0, 1) for x in inputs)
        before = ops.concatenate([start[None], before])
        steps = {"chances": chances, "totals": totals, "before": before}

        def step(inputs: dict[str, Tensor], places: Tensor) -> tuple[Tensor, Tensor]:
            places = ops.softmax(_log(places) + inputs["before"])
            places = _moved(places, inputs["chances"], inputs["totals"], ways)
            return places, places

        places, _ = backend.scan(step, ops.ones_like(start), steps, "float32")
        return ops.logsumexp(_log(ops.swapaxes(places, 0, 1))[..., None] + log_probs, axis=2)

    # One step at a time.

    def prepare(self, memory: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Return the parts that do not depend on the tokens, each `(B, S, ·)`."""
        memory = ops.cast(memory, self.compute_dtype)
        there = ops.ones_like(memory[..., 0]) if mask is None else mask
        closed = ops.where(ops.cast(there, "bool"), 0.0, NEVER)
        return {"key": self.key(memory), "value": self.of_memory(memory), "closed": closed}

    def initial_state(self, prepared: dict[str, Tensor], cell_state: Any) -> dict[str, Any]:
        """Return the state before the first step, of a list of the cell's states, each `(B, ·)`.

        It has the log-probability of each place and each token said of it, too, `(B, S, V)`.
        """
        cell_state = [ops.cast(x, self.cell.compute_dtype) for x in cell_state]
        log_probs = ops.repeat(self._start(prepared)[..., None], self.vocab_size, axis=-1)
        return {"cell": cell_state, "said": log_probs}

    def step(
        self, tokens: Tensor, prepared: dict[str, Tensor], state: dict[str, Any]
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Take one step.

        Args:
            tokens: int32 `(B·n,)`; `n` rows may share a memory row, as the beams of a search do.
            prepared: from `prepare`, with batch size B.
            state: before the step.

        Returns:
            Log-probabilities of the next token `(B·n, V)`, probabilities of the place that it will
            be said of `(B·n, S)`, and the next state.
        """
        output, cell_state = keras_cells.advance(
            self.cell, self.embedding(tokens), state["cell"], training=False
        )
        batch, length = ops.shape(prepared["closed"])
        rows = backend.group_size(ops.shape(tokens)[0], batch)
        states = ops.reshape(output, (batch, rows, output.shape[-1]))
        was = ops.softmax(self._token_of(state["said"], tokens))
        ways = self._ways(prepared)
        moves = self._moves(states, prepared, ways)
        places = _moved(ops.reshape(was, (batch, rows, length)), *moves, ways)
        log_probs = _log(places)[..., None] + self._said(states, prepared)
        log_probs = ops.reshape(log_probs, (batch * rows, length, self.vocab_size))
        places = ops.cast(ops.reshape(places, (batch * rows, length)), self.compute_dtype)
        return ops.logsumexp(log_probs, axis=1), places, {"cell": cell_state, "said": log_probs}

    # The parts of a step, for states `(B, n, ·)`.

    def _moves(
        self, states: Tensor, prepared: dict[str, Tensor], ways: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the chances of places, and their total after each place, float32 `(B, n, S)`.

        The softmax of a score and the weight of a way is the product of their exponentials by its
        total, so that no tensor has two axes of places for each token.
        """
        hidden = ops.tanh(self.query(states)[:, :, None] + prepared["key"][:, None])
        scores = ops.cast(self.score(hidden)[..., 0], "float32") + prepared["closed"][:, None]
        chances = ops.exp(scores - ops.max(scores, axis=-1, keepdims=True))
        return chances, ops.tensordot(chances, ops.transpose(ways), 1)

    def _ways(self, prepared: dict[str, Tensor]) -> Tensor:
        """Return the exponentials of the weights of ways from place to place, 0 back, `(S, S)`."""
        place = ops.arange(ops.shape(prepared["closed"])[1], dtype="int32")
        way = place[None] - place[:, None]
        weights = ops.exp(ops.cast(self.ways, "float32"))
        return ops.where(way < 0, 0.0, ops.take(weights, ops.clip(way, 0, FARTHEST)))

    def _said(
        self, states: Tensor, prepared: dict[str, Tensor], training: bool | None = None
    ) -> Tensor:
        """Return the log-probabilities of tokens at each place, float32 `(B, n, S, V)`."""
        vector = ops.tanh(self.of_state(states)[:, :, None] + prepared["value"][:, None])
        logits = self.output_layer(self.dropout(vector, training=training))
        return ops.log_softmax(ops.cast(logits, "float32"))

    def _token_of(self, log_probs: Tensor, tokens: Tensor) -> Tensor:
        """Return from `(..., S, V)` the log-probabilities of tokens `(...)`, `(..., S)`."""
        chosen = ops.one_hot(tokens, self.vocab_size, dtype=log_probs.dtype)
        return ops.sum(log_probs * chosen[..., None, :], axis=-1)

    def _start(self, prepared: dict[str, Tensor]) -> Tensor:
        """Return log-probabilities that let the first place be the one before, `(B, S)`."""
        first = ops.arange(ops.shape(prepared["closed"])[1]) == 0
        return ops.where(first, 0.0, NEVER) + ops.zeros_like(prepared["closed"])


def _moved(places: Tensor, chances: Tensor, totals: Tensor, ways: Tensor) -> Tensor:
    """Return the probabilities of places `(…, S)` after a step, by `_moves` and `_ways`."""
    return chances * ops.tensordot(places / ops.maximum(totals, TINY), ways, 1)


def _log(probabilities: Tensor) -> Tensor:
    return ops.where(probabilities > TINY, ops.log(ops.maximum(probabilities, TINY)), NEVER)
