"""Pronouncers: models from the letters of a word to its phones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from serving.api._arguments import check_count
from serving.portable.read import _voices as voices
from serving.portable.read._model import Result, tokens_of
from serving.portable.read._tokenizers import Vocabulary
from serving.portable.read._translator import LocalTranslator
from training.command.visible import visible
from training.data.letters import letters_of
from training.data.rules import most_tokens, tag_length

BATCH = 256  # constant: the last bits of a probability depend on the batch
_SURER = 1e-3  # by how much greedy search must be better than any other answer can be


class Pronunciation(NamedTuple):
    """The phones of a word, and their `source`: "lexicon" or "model".

    `probability` is the lowest probability of a phone or of the end. `log_prob` is the sum of all
    log-probabilities, the end included.
    """

    phones: Sequence[str]
    probability: float = 1.0
    log_prob: float = 0.0
    source: str = "lexicon"


class Pronouncer(LocalTranslator):
    """A model from letters to phones; `path` is an ONNX export or the model's directory.

    With `tag`, as `cy`, `spelled` puts "[cy] " in front of words, as in the words of training.

    Raises ValueError if there is no such export, if it is a model of another kind, or if `tag` is
    given and training had no words with tags.
    """

    def __init__(self, path: str | Path, tag: str = "") -> None:
        super().__init__(path, batch_size=BATCH)
        letters, kind = self._source, self._target.kind
        spells = letters.kind in ("characters", "letters") and not self._copies
        if not isinstance(letters, Vocabulary) or not spells or kind != "symbols":
            raise ValueError(
                f"{path} is no pronouncer, which has letters as sources and symbols as targets: it "
                f"has {letters.kind} and {kind}"
            )
        self._letters = letters
        known_tag = (self._spelling or {}).get("tag")
        if tag and not known_tag:
            raise ValueError(
                f"{path} expected a model of words with tags, such as [{tag}]. Received: a model "
                "whose training words have none"
            )
        space = " " if known_tag and known_tag["space"] else ""
        self._front = f"[{tag}]{space}" if tag else ""
        known = [
            next((sign for sign in signs if not letters.unknown(sign)), "")
            for signs in voices.ALIKE
        ]
        self._alike = str.maketrans(
            {
                sign: to
                for to, signs in zip(known, voices.ALIKE, strict=True)
                for sign in signs
                if to and letters.unknown(sign)
            }
        )

    def unreadable(self, word: str) -> str:
        """Return why the model cannot read a word, "" if it can."""
        if letters := letters_of(self._letters.unknown(word)):
            return f"training never saw {visible(' '.join(dict.fromkeys(letters)))}"
        (ids,) = self._letters.encode([word])
        return "" if len(ids) <= self._most else f"the model reads {self._most} letters"

    def spelled(self, word: str) -> str:
        """Return a word as the model reads it: with its tag, and the apostrophe that training saw.

        The word is in NFC, without signs at its ends.
        """
        return self._front + voices.spellings(voices.visible(word))[-1].translate(self._alike)

    def lower(self, word: str) -> str:
        """Return a word in small letters, those of the model's language: see `Vocabulary.lower`."""
        return self._letters.lower(word)

    def lowered(self, word: str) -> bool:
        """Return whether capitals are read as small letters, because training saw no capitals."""
        small = self.lower(word)
        return small != word and self._letters.encode([word]) == self._letters.encode([small])

    def is_cut(self, word: str, phones: Sequence[str]) -> bool:
        """Return whether a word has fewer phones per letter than nearly all words of training."""
        (ids,) = self._letters.encode([word])
        if self._spelling is None:
            return False
        letters = len(ids) - tag_length(ids, self._spelling.get("tag"))
        # one is lacking at least, of short ones too
        return len(phones) + 1 <= self._spelling["fewest"] * letters

    def pronounce(
        self, words: Sequence[str], count: int = 1, threads: int = 1
    ) -> Iterator[tuple[str, list[Pronunciation]]]:
        """Yield each word with up to `count` pronunciations, best first; the longest words first.

        The model must be able to read the words, see `unreadable`. Each thread runs its own batch;
        results do not depend on `threads`. Raises ValueError if `count` exceeds the beam's width.
        """
        check_count("--nbest", count, 1, self._width)

        def answer(result: Any) -> list[Pronunciation]:
            rows = zip(result.ids, result.log_probs, result.scores, strict=True)
            return [
                Pronunciation(tokens, math.exp(log_probs.min()), log_probs.sum(), "model")
                for ids, log_probs, score in rows
                if score > -math.inf and (tokens := tokens_of(self._target, ids))
            ]

        def search(batch: Sequence[str], count: int) -> list[list[Pronunciation]]:
            return [each or [] for each in self._search(self._read(batch), count, answer)]

        def work(batch: Sequence[str]) -> list[tuple[str, list[Pronunciation]]]:
            answers = dict(zip(batch, search(batch, count), strict=True))
            for word in (word for word, each in answers.items() if not each):  # the best is silence
                (several,) = search([word], self._width)
                answers[word] = several[:count]
            return list(answers.items())

        lengths = map(len, self._letters.encode(words))
        order = [word for _, word in sorted(zip(lengths, words, strict=True), reverse=True)]
        pool = ThreadPoolExecutor(threads)
        try:
            batches = [order[at : at + BATCH] for at in range(0, len(order), BATCH)]
            for answers in pool.map(work, batches):
                yield from answers
        finally:
            pool.shutdown(cancel_futures=True)

    def _run(
        self, source: dict[str, np.ndarray], results: int, weights: bool, width: int | None = None
    ) -> Iterator[Result]:
        """See the base class. The best answer is that of greedy search if no other can be better.

        A search with one hypothesis takes a third of the time of a beam of five.
        """
        if results > 1 or (width or self._width) == 1:
            return super()._run(source, results, weights, width)
        found = list(super()._run(source, 1, weights, width=1))
        lengths = np.count_nonzero(source["ids"], axis=1)  # (B,)
        pairs = enumerate(zip(found, lengths.tolist(), strict=True))
        unsure = [row for row, (result, length) in pairs if not self._is_best(result, length)]
        if unsure:
            ids = source["ids"][unsure, : lengths[unsure].max()]
            for row, result in zip(
                unsure, super()._run({"ids": ids}, 1, weights, width), strict=True
            ):
                found[row] = result
        return iter(found)

    def _is_best(self, result: Result, letters: int) -> bool:
        """Return whether a beam has the result of greedy search as its best answer, too.

        The probabilities of all other answers sum to 1 - P, and no answer is longer than the bound.
        Above 1/2, P's prefixes are the best of their beams, so that the beam finds this answer.
        """
        probability = math.exp(result.log_probs[0].sum())
        longest = self._norm(most_tokens(letters, self._bound))
        others = math.log(max(1e-9, 1 - probability)) / longest
        return probability > 0.5 + _SURER and result.scores[0] > others + _SURER
