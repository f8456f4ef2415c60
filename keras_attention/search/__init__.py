"""Greedy search and beam search over a step function, for any decoder.

The decoder is a function `step(tokens, state) -> (log_probs, attention_weights, state)`:

- `tokens`: int32 `(rows,)`, the last token of each hypothesis;
- `state`: any structure of tensors whose first axis is `rows`;
- `log_probs`: `(rows, vocabulary)`, log-probabilities of the next token, or a `Shortlist`;
- `attention_weights`: `(rows, S)`, with several heads `(rows, heads, S)`, or None where the decoder
  does not attend.

`rows` is the batch size in greedy search, otherwise the batch size times the number of hypotheses.
The hypotheses of a sentence are next to one another.

A tensor that no step changes, such as the memory, need not be in the state: a step function that
closes over it saves its copies. Passed as `memory`, `(B, ...)`, it is the third argument of `step`.
Finished sentences then leave memory and state, so that a batch takes little longer than its
sentences. On JAX and under XLA they stay, for shapes are fixed.

JAX compiles the loop of a search: build the layers that `step` calls before it.
"""

from keras_attention.search.arguments import Shortlist
from keras_attention.search.beam import beam_search, greedy_search
from keras_attention.search.loop import SearchResult

__all__ = ["SearchResult", "Shortlist", "beam_search", "greedy_search"]
