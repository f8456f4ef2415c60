"""Segmentations in subwords, drawn anew each time that a sentence is trained with."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from training.data.ids import UNK_ID
from training.data.pieces import KIND, model_of
from training.data.store import Sequences

_LOCK = threading.Lock()


class SubwordSampler:
    """Draws a segmentation of each sentence, in place of its most probable one.

    A segmentation is drawn with its probability in a unigram model to the power of `alpha`
    (subword regularisation, Kudo 2018, arXiv 1804.10959, section 3.2): a model learns words from
    parts of several lengths. In a BPE model, which small vocabularies have, `alpha` is the share of
    merges that are left out (BPE-dropout, Provilkov et al. 2020, arXiv 1910.13267). Sentences with
    a piece that is unknown stay as they are: their text is not known from their ids.
    """

    def __init__(self, model: bytes, alpha: float) -> None:
        import sentencepiece

        self._pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._draw_as = sentencepiece.set_random_generator_seed
        self._alpha = alpha

    def draw(self, sentences: Sequences, seed: int) -> Sequences:
        """Return the same sentences in pieces that are drawn."""
        ends = sentences.starts + sentences.lengths
        ids = [
            sentences.values[start:end].tolist()
            for start, end in zip(sentences.starts, ends, strict=True)
        ]
        with _LOCK:  # the generator is one for all threads
            self._draw_as(seed)
            drawn = self._pieces.encode(
                self._pieces.decode(ids),
                enable_sampling=True,
                alpha=self._alpha,
                nbest_size=-1,  # of all segmentations
                num_threads=1,  # so that the seed decides
            )
        rows = [old if UNK_ID in old else new for old, new in zip(ids, drawn, strict=True)]
        values = np.array([piece for pieces in rows for piece in pieces], np.int32)
        return Sequences.of(values, np.array([len(pieces) for pieces in rows]))


Samplers = tuple[SubwordSampler | None, SubwordSampler | None]  # of sources and targets


def make_sampler(alpha: float, tokenizer: Mapping[str, Any]) -> SubwordSampler | None:
    """Draw the subwords of a tokenizer, given by what its file holds; None if it has none."""
    return SubwordSampler(model_of(tokenizer), alpha) if tokenizer["kind"] == KIND else None
