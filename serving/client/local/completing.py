"""Translations that begin as they are told to, and the words that may come next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from serving.client.local.batches import Batches
from serving.client.local.beam import Hypothesis, beam_search
from serving.client.local.model import Folder
from serving.client.local.prefixes import Covered, NextWord, Prefix, log_sum
from serving.client.local.search import Search, replaced, said_text
from serving.client.local.spelling import Spelled, Spelling, composed
from serving.client.local.tokenizers import END_ID, UNK_ID, Tokenizer
from serving.client.results import Alternative

AFTER_PREFIX = 10  # tokens that a long prefix leaves room for
MORE = 2  # words searched for each one wanted: several cuts of one word are one
SHOWN = 80  # characters of a prefix that is refused
Copied = Sequence[list[str] | None]
_ASCII_SPACES = " \t\n\v\f\r"


class _Asked(NamedTuple):
    """A translation that is asked for: ids of its source, the prefix, and its number of bytes."""

    source: list[int]
    spelled: Spelled
    size: int


class Completing:
    """Completions and alternatives of an export's translations."""

    def __init__(
        self,
        folder: Folder,
        target: Tokenizer,
        spelling: Spelling,
        search: Search,
        batches: Batches,
        replaces: bool = False,
    ) -> None:
        self._folder, self._target = folder, target
        self._spelling, self._settings, self._replaces = spelling, search, replaces
        self._batches = batches

    def complete(
        self, sources: Sequence[list[int]], prefixes: Sequence[str], copied: Copied
    ) -> list[tuple[str, Hypothesis]]:
        """Return the best translation of each source that begins with its prefix, as typed.

        Raises:
            ValueError: for a prefix that no tokens spell.
        """
        asked = self._asked(sources, map(self._spelling.normalize, prefixes))
        answers = []
        for prefix, one, best, tokens in zip(
            prefixes, asked, self._best(asked), copied, strict=True
        ):
            typed, said = self._spelling.decompose(prefix), self._said(best, tokens)
            text = composed(self._spelling.kind, typed + said[one.spelled.size :])
            answers.append((text, best))
        return answers

    def alternatives(
        self, sources: Sequence[list[int]], prefixes: Sequence[str], copied: Copied
    ) -> list[list[Alternative]]:
        """Return the most probable words after each prefix, the best first: see `complete`.

        Raises:
            ValueError: for a prefix that no tokens spell.
        """
        normal = [self._spelling.normalize(prefix) for prefix in prefixes]
        starts = [self._spelling.begun_word(prefix) for prefix in normal]
        words = self._next(self._asked(sources, normal), normal, starts)
        begun = []
        for source, before, start, row in zip(sources, normal, starts, words, strict=True):
            for raw in row:
                begun.append(self._one(source, before[:start] + raw, whole=True))
        found, kind = iter(self._best(begun)), self._spelling.kind
        answers = []
        for prefix, before, start, row, tokens in zip(
            prefixes, normal, starts, words, copied, strict=True
        ):
            typed = self._spelling.decompose(prefix)
            head = typed[: max(len(typed) - len(before) + start, 0)]
            alternatives = []
            for raw, probability in row.items():
                best, word = next(found), composed(kind, raw.strip(_ASCII_SPACES))
                text = composed(kind, head + self._said(best, tokens)[start:])
                alternatives.append(Alternative(word, probability, text, best.score))
            answers.append(alternatives)
        return answers

    def _best(self, asked: Sequence[_Asked]) -> list[Hypothesis]:
        """Return the best translations, which begin as asked."""
        settings = self._settings
        form = (settings.width, 1, settings.penalty, settings.coverage_penalty)
        return [self._replaced(best) for (best,) in self._search(asked, Prefix, *form)]

    def _replaced(self, one: Hypothesis) -> Hypothesis:
        if not self._replaces:
            return one
        return one._replace(ids=replaced(one.ids, one.weights, self._target.size))

    def _next(
        self, asked: Sequence[_Asked], normal: Sequence[str], starts: Sequence[int]
    ) -> list[dict[str, float]]:
        """Return the next words of each, with what is in front of them, and their probabilities."""
        count, width = MORE * self._settings.results, self._settings.width
        covered = self._search(asked, Covered, width, width, 0.0, 0.0)
        inside = [start < len(prefix) for start, prefix in zip(starts, normal, strict=True)]
        found = self._search(asked, NextWord, max(count, width), count, 0.0, 0.0, inside)
        answers = []
        for before, after, start in zip(covered, found, starts, strict=True):
            total = float(log_sum(np.array([one.score for one in before])))
            words: dict[str, float] = {}
            for one in after:
                raw = self._said(one)[start:]
                if raw and END_ID in one.ids:  # not ended, a word was cut
                    words[raw] = words.get(raw, 0.0) + float(np.exp(one.score - total))
            likely = {raw: min(each, 1.0) for raw, each in words.items() if each > 0}
            best = sorted(likely, key=likely.__getitem__, reverse=True)[: self._settings.results]
            answers.append({raw: likely[raw] for raw in best})
        return answers

    def _said(self, one: Hypothesis, copied: list[str] | None = None) -> str:
        """Return a text as prefixes are spelled."""
        return self._spelling.decompose(said_text(self._target, one.ids, copied))

    def _asked(self, sources: Sequence[list[int]], normal: Iterable[str]) -> list[_Asked]:
        return [
            self._one(source, prefix, number)
            for number, (source, prefix) in enumerate(zip(sources, normal, strict=True))
        ]

    def _one(self, source: list[int], prefix: str, number: int = 0, whole: bool = False) -> _Asked:
        spelled = self._spelling.spell(prefix, whole)
        if spelled is None:
            raise ValueError(
                f"prefix[{number}] has characters that the model has no tokens for: "
                f"{prefix[:SHOWN]}"
            )
        return _Asked(source or [UNK_ID], spelled, len(prefix.encode()))

    def _search(
        self,
        asked: Sequence[_Asked],
        rule: type[Prefix],
        width: int,
        results: int,
        penalty: float,
        coverage_penalty: float,
        *of_each: Sequence[bool],
    ) -> list[list[Hypothesis]]:
        """Search in batches of about one length; `of_each` is what the rule knows of each."""
        found: list[list[Hypothesis]] = [[] for _ in asked]

        def work(rows: Sequence[int]) -> None:
            batch = [asked[row] for row in rows]
            searched = beam_search(
                self._folder,
                [one.source for one in batch],
                [max(2 * len(one.source) + 10, one.size + AFTER_PREFIX) for one in batch],
                width=width,
                results=results,
                penalty=penalty,
                coverage_penalty=coverage_penalty,
                rule=rule(
                    self._spelling,
                    [one.spelled for one in batch],
                    *([each[row] for row in rows] for each in of_each),
                ),
            )
            for row, each in zip(rows, searched, strict=True):
                found[row] = each

        self._batches.by_length([len(one.source) for one in asked], work)
        return found
