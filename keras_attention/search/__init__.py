"""Greedy search and beam search for any decoder, given as a step function.

The decoder is a function `step(tokens, state) -> (log_probs, attention_weights, state)`:

- `tokens`: int32 `(rows,)`, the last token of each hypothesis;
- `state`: any structure of tensors `(rows, ...)`;
- `log_probs`: `(rows, vocabulary)`, log-probabilities of the next token, or a `Shortlist`;
- `attention_weights`: `(rows, S)`, with several heads `(rows, heads, S)`, or None if the decoder
  does not attend.

In greedy search, `rows` is the batch size. In beam search, `rows` is the batch size times the
number of hypotheses. The hypotheses of a sentence are adjacent rows.

Tensors that no step changes, such as the memory, need not be in the state, which is copied for each
hypothesis. There are two ways to use such tensors:

- `step` closes over them.
- Pass them as `memory`, a structure of tensors `(B, ...)`: `step` gets `memory` as its third
  argument. Finished sentences are then removed from memory and state, so that a batch takes little
  longer than its sentences. On JAX and under XLA they are not removed, because shapes are fixed.

JAX compiles the loop of a search: build the layers that `step` calls before the search.
"""

from keras_attention.search._beam import beam_search, greedy_search, length_norm
from keras_attention.search._loop import SearchResult
from keras_attention.search.arguments import Shortlist

__all__ = ["SearchResult", "Shortlist", "beam_search", "greedy_search", "length_norm"]
