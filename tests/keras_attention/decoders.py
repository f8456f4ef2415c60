"""A random decoder, and searches in plain Python over it."""

import numpy as np
from keras import ops

from keras_attention import beam_search
from tests.keras_attention.helpers import array, assert_close

B, VOCABULARY, LENGTH, S = 3, 5, 7, 2
START, END, PAD = 1, 2, 4


class Decoder:
    """A random decoder: what comes next depends on the sentence, the step and the last token.

    Its state remembers all that was read, so that a search that mixes up the states of its
    hypotheses is found out.
    """

    def __init__(self, rng, length=LENGTH, end_bias=0.0):
        logits = rng.normal(size=(B, length, VOCABULARY, VOCABULARY), scale=2.0)
        logits[..., END] += end_bias
        # float32, so that NumPy and the backend add up the same numbers
        self.log_probs = (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype("float32")
        self.weights = rng.random((B, length, VOCABULARY, S)).astype("float32")

    def state(self):
        zeros = ops.zeros((B,), "int32")
        return {"row": ops.arange(B, dtype="int32"), "t": zeros, "read": zeros}

    def step(self, tokens, state):
        # `read` is the sum of all tokens read: it shifts what comes next.
        read = state["read"] + tokens
        length = self.log_probs.shape[1]
        index = (state["row"] * length + state["t"]) * VOCABULARY + read % VOCABULARY
        log_probs = ops.take(self.log_probs.reshape(-1, VOCABULARY), index, axis=0)
        weights = ops.take(self.weights.reshape(-1, S), index, axis=0)
        t = ops.minimum(state["t"] + 1, length - 1)
        return log_probs, weights, {"row": state["row"], "t": t, "read": read}

    def row(self, b, prefix):
        """Log-probabilities and weights after the prefix, for a search in Python."""
        at = b, len(prefix), (START + sum(prefix)) % VOCABULARY
        return self.log_probs[at].astype("float64"), self.weights[at]

    def score(self, b, ids, penalty=0.0):
        total = sum(self.row(b, ids[:t])[0][ids[t]] for t in range(len(ids)))
        return total / ((5 + len(ids)) / 6) ** penalty

    def attention(self, b, ids):
        return np.stack([self.row(b, ids[:t])[1] for t in range(len(ids))])


def naive_search(decoder, b, width, score, length=LENGTH, ends=(END,)):
    """Beam search as in the books: a finished hypothesis stays in the beam, and among the results.

    The best of all that have ever ended are returned, first those that ended first. As wide as
    there are hypotheses, it finds them all; of width 1, it is a greedy search.
    """
    beam, ended = [()], []
    for t in range(length):
        grown = []
        for ids in beam:
            over = ids and ids[-1] in ends
            grown += [ids] if over else [(*ids, token) for token in range(VOCABULARY)]
        beam = sorted(grown, key=lambda ids: -score(b, ids))[:width]
        ended += [x for x in beam if len(x) == t + 1 and (x[-1] in ends or len(x) == length)]
    return sorted(ended, key=lambda ids: -score(b, ids))


def assert_found(decoder, result, expected, score):
    """`expected`: for each sentence the ids of its results, best first; further ones are empty."""
    for b, hypotheses in enumerate(expected):
        for n in range(result.ids.shape[1]):
            ids = hypotheses[n] if n < len(hypotheses) else ()
            length = len(ids)
            assert result.lengths[b, n] == length
            assert tuple(result.ids[b, n, :length]) == ids
            assert (result.ids[b, n, length:] == PAD).all()
            assert_close(result.scores[b, n], score(b, ids) if ids else -np.inf)
            sums = [decoder.score(b, ids[: t + 1]) for t in range(length)]
            assert_close(np.cumsum(result.log_probs[b, n, :length]), sums)
            assert not result.log_probs[b, n, length:].any()
            weights = result.attention_weights[b, n]
            if ids:
                assert_close(weights[:length], decoder.attention(b, ids))
            assert not weights[length:].any()


def searched(decoder, find=beam_search, step=None, **options):
    """Search with the decoder, or another step of its states."""
    options = {"batch_size": B, "start_id": START, "end_id": END, "pad_id": PAD, **options}
    options = {"max_length": LENGTH, "state": decoder.state(), **options}
    return find(step or decoder.step, **options)


def search(*args, **options):
    """The results of `searched` as arrays."""
    found = searched(*args, **options)
    return type(found)(*(None if x is None else array(x) for x in found))


def changed(decoder, *, log_probs=None, weights=None, state=None):
    """The decoder's step with values that are changed."""
    changes = [x or (lambda x: x) for x in (log_probs, weights, state)]

    def step(*given):
        return tuple(f(x) for f, x in zip(changes, decoder.step(*given[:2]), strict=True))

    return step
