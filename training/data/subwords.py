"""Segmentations in subwords, drawn anew each time that a sentence is trained with."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import random
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from training.data.ids import END_ID, UNK_ID
from training.data.pieces import KIND, model_of
from training.data.store import Sequences

_WORD = re.compile("▁?[^▁]+|▁")
_BPE = 2  # in the model's trainer_spec
_WORDS = 1 << 16  # whose pieces are remembered


class SubwordSampler:
    """Draws a segmentation of each sentence, in place of its most probable one.

    A segmentation is drawn with its probability in a unigram model to the power of `alpha`
    (subword regularisation, Kudo 2018, arXiv 1804.10959, section 3.2): a model learns words from
    parts of several lengths. In a BPE model, which small vocabularies have, `alpha` is the share of
    merges that are left out (BPE-dropout, Provilkov et al. 2020, arXiv 1910.13267). Sentences with
    an unknown piece stay as they are: their text does not follow from their ids.

    SentencePiece draws too, but in each process otherwise: a resumed run would see other subwords.
    """

    def __init__(self, model: bytes, alpha: float) -> None:
        from sentencepiece import sentencepiece_model_pb2

        proto = sentencepiece_model_pb2.ModelProto.FromString(model)
        self._alpha, self._is_bpe = alpha, proto.trainer_spec.model_type == _BPE
        self._strings = [each.piece for each in proto.pieces]
        self._ids = {self._strings[i]: i for i in range(END_ID + 1, len(self._strings))}
        self._ranks = {each.piece: each.score for each in proto.pieces[END_ID + 1 :]}
        self._longest = max(map(len, self._ids))
        self._lattice = functools.lru_cache(_WORDS)(self._make_lattice)

    def draw(self, sentences: Sequences, seed: int) -> Sequences:
        """Return the same sentences in pieces that the seed draws."""
        rng, draw = random.Random(seed), self._merge if self._is_bpe else self._walk
        ends, rows = sentences.starts + sentences.lengths, list[list[int]]()
        for start, end in zip(sentences.starts, ends, strict=True):
            ids = sentences.values[start:end].tolist()
            if UNK_ID not in ids:  # pieces do not go beyond a word
                words = _WORD.findall("".join(self._strings[i] for i in ids))
                ids = [piece for word in words for piece in draw(word, rng)]
            rows.append(ids)
        values = np.fromiter(itertools.chain.from_iterable(rows), np.int32)
        return Sequences.of(values, np.fromiter(map(len, rows), np.int32))

    def _walk(self, word: str, rng: random.Random) -> list[int]:
        """Draw the pieces of a word from its end on, by a unigram model."""
        lattice, ids, end = self._lattice(word), list[int](), len(word)
        while end:
            sums, pieces = lattice[end]
            piece = pieces[bisect.bisect(sums, rng.random() * sums[-1], hi=len(sums) - 1)]
            ids.append(piece)
            end -= len(self._strings[piece])
        return ids[::-1]

    def _make_lattice(self, word: str) -> list[tuple[list[float], list[int]]]:
        """Return the pieces that end at each place, and the sums of their probabilities.

        The probability of a piece is that of all ways to it: forward filtering, backward sampling.
        """
        logs, lattice = [0.0], [(list[float](), list[int]())]
        for end in range(1, len(word) + 1):
            starts = range(max(0, end - self._longest), end)
            parts = [(start, word[start:end]) for start in starts if word[start:end] in self._ids]
            ways = [logs[start] + self._alpha * self._ranks[piece] for start, piece in parts]
            top = max(ways, default=-math.inf)
            sums = list(
                itertools.accumulate(math.exp(way - top) for way in ways if top > -math.inf)
            )
            logs.append(top + math.log(sums[-1]) if sums else -math.inf)
            lattice.append((sums, [self._ids[piece] for _, piece in parts]))
        return lattice

    def _merge(self, word: str, rng: random.Random) -> list[int]:
        """Merge the letters of a word by a BPE model, but for merges that are left out."""
        cuts, left_out = list(range(len(word) + 1)), set[tuple[int, ...]]()
        while True:
            best, place = -math.inf, 0
            for i in range(1, len(cuts) - 1):
                score = self._ranks.get(word[cuts[i - 1] : cuts[i + 1]], -math.inf)
                if score > best and (*cuts[i - 1 : i + 2],) not in left_out:
                    best, place = score, i
            if not place:
                return [self._ids[word[a:b]] for a, b in itertools.pairwise(cuts)]
            if rng.random() < self._alpha:
                left_out.add((*cuts[place - 1 : place + 2],))
            else:
                del cuts[place]


Samplers = tuple[SubwordSampler | None, SubwordSampler | None]  # of sources and targets


def make_sampler(alpha: float, tokenizer: Mapping[str, Any]) -> SubwordSampler | None:
    """Draw the subwords of a tokenizer, given by its file's content; None if it has none."""
    return SubwordSampler(model_of(tokenizer), alpha) if tokenizer["kind"] == KIND else None
