"""A translator in this process."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from serving.api._arguments import checked_pairs, checked_texts
from serving.api._errors import SignatureNotFoundError
from serving.api._results import (
    TRANSLATE_LINES,
    Alignment,
    Hypothesis,
    Score,
    Translation,
    join_sentences,
    split_sentences,
    unique_letters,
    unseen,
)
from serving.portable.read._manifest import has_sentences
from serving.portable.read._model import (
    RUN_OPTIONS,
    Folder,
    LocalSearch,
    Result,
    Signatures,
    check_running,
    hypotheses,
    padded,
    shown_places,
    text_of,
    token_of,
    tokens_of,
)
from serving.portable.read._tokenizers import Tokenizer, Vocabulary, Words, load_tokenizer
from serving.portable.read._windows import cut, join
from training.data.rules import END_ID, PAD_ID, START_ID, TOKEN_BYTES, most_tokens, single_spaces

T = TypeVar("T")


class _Read(NamedTuple):
    """The ids of texts, cut to the length that the model reads, and whether they were cut.

    `tokens` are the tokens of each text if the model may copy them, else None. `unknown` are each
    text's letters that training never saw.
    """

    ids: list[list[int]]
    truncated: list[bool]
    tokens: list[list[str] | None]
    unknown: list[str]

    def with_notes(self, answer: Any, row: int) -> Any:
        """Return a result with `truncated` and `unknown` set for the text in `row`."""
        return dataclasses.replace(answer, truncated=self.truncated[row], unknown=self.unknown[row])


class LocalTranslator(LocalSearch):
    """A translator in this process, with the methods and results of `serving.client.Translator`.

    Arguments as of `LocalSearch`; `batch_size` texts of about the same length are translated
    together.
    """

    task, main = "translate", "translator"

    def _load(self) -> None:
        super()._load()
        about = self.manifest
        self._source = load_tokenizer(self._folder.path, about["tokenizers"]["source"])
        self._most = about["settings"]["max_source_length"]
        self._bound = about["settings"].get("target_bound", [2, 10])
        self._spelling = about.get("spelling")

    def signatures(self) -> Signatures:
        """See the base class."""
        there = {"align": self.manifest["attends"], "score": not self._copies}
        names = ["translate", "nbest", *(name for name in there if there[name])]
        declared = self._declared(names, N=self._results)
        lines = {} if has_sentences(self.manifest) else {TRANSLATE_LINES: declared["translate"]}
        return declared | lines

    def translate(self, texts: Sequence[str], split: bool = False) -> list[Translation]:
        """Return the best translation of each text; with `split`, sentence by sentence."""
        texts = checked_texts(texts)
        if split:
            signatures = self.signatures()
            pieces = [split_sentences(text, signatures) for text in texts]
            translations = iter(self.translate([part for text in pieces for part, _ in text]))
            return [
                join_sentences([(next(translations), gap) for _, gap in text]) for text in pieces
            ]
        read = self._read(texts)
        answers = self._search(read, 1, self._best)
        return [
            read.with_notes(best or Translation("", 0.0), row) for row, best in enumerate(answers)
        ]

    def nbest(self, texts: Sequence[str]) -> list[list[Hypothesis]]:
        """Return each text's translations, best first."""
        read, count = self._read(checked_texts(texts)), self._results
        answers = self._search(read, count, partial(hypotheses, self._target))
        return [
            [read.with_notes(one, row) for one in several or [Hypothesis("", 0.0)] * count]
            for row, several in enumerate(answers)
        ]

    def align(self, texts: Sequence[str]) -> list[Alignment]:
        """Return each text's translation with its attention weights.

        Raises SignatureNotFoundError for a model without attention.
        """
        if not self.manifest["attends"]:
            raise SignatureNotFoundError(
                "this model cannot align: it was trained without attention"
            )
        read = self._read(checked_texts(texts))
        answers = self._search(read, 1, self._aligned, with_weights=True)
        return [
            read.with_notes(each(read.ids[row]) if each else Alignment("", (), (), ()), row)
            for row, each in enumerate(answers)
        ]

    def score(self, texts: Sequence[str], translations: Sequence[str]) -> list[Score]:
        """Return the probability of a given translation of each text, token by token.

        A pronouncer reads a long word by windows. If its search finds the given translation, the
        score is that of the search. Else the word is read whole, which often gives a lower score.

        Raises SignatureNotFoundError for a model that copies.
        """
        if self._copies:
            raise SignatureNotFoundError(
                "this model has no score: what it copies is no token of any other text"
            )
        texts, translations = checked_pairs(texts, translations)
        most = most_tokens(self._most, self._bound) - 1  # longest result of a search, without END
        read, (targets, too_long) = self._read(texts), _encode(self._target, translations, most)
        scores: list[Any] = [None] * len(targets)

        def work(rows: Sequence[int]) -> None:
            wanted = padded([[*targets[row][:most], END_ID] for row in rows])
            source = padded([read.ids[row] for row in rows])
            for row, log_probs in zip(
                rows, _score_targets(self._folder, source, wanted), strict=True
            ):
                ids = [*targets[row][:most], END_ID]
                if not read.ids[row] and len(ids) == 1:
                    log_probs = np.zeros_like(log_probs)  # nothing is translated as nothing
                each = [float(x) for x in log_probs[: len(ids)]]
                tokens = tuple("</s>" if x == END_ID else self._target.token(x) for x in ids)
                cut, unknown = read.truncated[row] or too_long[row], read.unknown[row]
                scores[row] = Score(
                    sum(each) / self._norm(len(ids)), tokens, tuple(each), cut, unknown
                )

        self._each(_by_length(targets), work)
        for row, found in self._found_by_windows(read).items():
            ids = (*targets[row][:most], END_ID)
            if ids in found:
                score, each = found[ids]
                scores[row] = dataclasses.replace(scores[row], score=score, log_probs=each)
        return scores

    def _found_by_windows(
        self, read: _Read
    ) -> dict[int, dict[tuple[int, ...], tuple[float, tuple[float, ...]]]]:
        """Return score and log-probabilities of all results of the words that are read by windows.

        The keys are the row of a word, and the ids of a result.
        """
        rows = [row for row, ids in enumerate(read.ids) if len(cut(ids, self._spelling)) > 1]
        long = _Read(
            [read.ids[row] for row in rows],
            [read.truncated[row] for row in rows],
            [read.tokens[row] for row in rows],
            [read.unknown[row] for row in rows],
        )

        def results(found: Result) -> dict[tuple[int, ...], tuple[float, tuple[float, ...]]]:
            each = zip(found.ids, found.log_probs, found.scores, strict=True)
            return {
                tuple(ids[ids != PAD_ID].tolist()): (
                    float(score),
                    tuple(gains[ids != PAD_ID].tolist()),
                )
                for ids, gains, score in each
                if score > -math.inf
            }

        found = self._search(long, self._width, results)
        return {row: each or {} for row, each in zip(rows, found, strict=True)}

    @cached_property
    def _words_of(self) -> Words:
        return Words(self._target, self.manifest["tokenizers"]["target"]["inside"])

    def _read(self, texts: Sequence[str]) -> _Read:
        ids, cut = _encode(self._source, texts, self._most)
        texts = [_written(text, self._most) for text in texts]
        tokens: list[list[str] | None] = [None] * len(texts)
        if self._copies or self._replaces:
            assert isinstance(self._source, Vocabulary)  # as the export makes sure
            tokens = [self._source.split(text) for text in texts]
        unknown = [""] * len(texts)
        if isinstance(self._source, Vocabulary):
            unknown = list(map(self._source.unknown, texts))
        letters = unique_letters("".join(unknown))
        if letters and RUN_OPTIONS.get() is None:  # a server's callers have it in the answer
            warnings.warn(unseen(letters), UserWarning, stacklevel=3)
        return _Read([x[: self._most] for x in ids], cut, tokens, unknown)

    def _search(
        self, read: _Read, results: int, answer: Callable[[Result], T], with_weights: bool = False
    ) -> list[T | None]:
        """Return `answer(result)` for each text, None for a text without a token."""
        answers: list[T | None] = [None] * len(read.ids)
        windows = [cut(ids, self._spelling) if ids else [] for ids in read.ids]
        parts = [(row, part) for row, each in enumerate(windows) for part in each]
        found = {row: dict[int, Result]() for row, each in enumerate(windows) if len(each) > 1}

        def work(numbers: Sequence[int]) -> None:
            weights = with_weights or self._replaces
            weights |= any(parts[number][0] in found for number in numbers)
            source = {"ids": padded([parts[number][1].ids for number in numbers])}
            for number, result in zip(numbers, self._run(source, results, weights), strict=True):
                row = parts[number][0]
                if row in found:
                    found[row][number] = result
                else:
                    answers[row] = answer(result._replace(copied=read.tokens[row]))

        self._each(_by_length([part.ids for _, part in parts]), work)
        for row, results_of in found.items():
            in_order = [results_of[number] for number in sorted(results_of)]
            answers[row] = answer(join(windows[row], in_order))
        return answers

    def _best(self, result: Result) -> Translation:
        """Return the best translation; `_Read.with_notes` sets whether its text was cut."""
        (best,) = hypotheses(self._target, result)
        return Translation(best.text, best.score, False, *self._words(result))

    def _words(self, result: Result) -> tuple[tuple[str, ...], tuple[float, ...]]:
        """Return the words of the best translation, and their probabilities."""
        return self._words_of(result.ids[0].tolist(), result.log_probs[0].tolist(), result.copied)

    def _aligned(self, result: Result) -> Callable[[list[int]], Alignment]:
        """Return a function that takes a source's ids and returns its alignment."""
        ids, copied = result.ids[0], result.copied
        tokens = tokens_of(self._target, ids, copied)

        def align(source: list[int]) -> Alignment:
            weights = result.weights[0, shown_places(ids), : len(source)].tolist()
            return Alignment(
                text_of(self._target, ids, copied),
                tuple(token_of(self._source, number, copied) for number in source),
                tokens,
                tuple(map(tuple, weights)),
                *self._words(result),
            )

        return align


def _by_length(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return the places of rows sorted by length, the longest first."""
    return sorted(range(len(rows)), key=lambda row: len(rows[row]), reverse=True)


def _written(text: str, tokens: int) -> str:
    """Return the start of a text: as many bytes of UTF-8 as `tokens` tokens can cover at most.

    White space becomes single spaces first, and a lone surrogate becomes "?".
    """
    return _bytes(text)[: tokens * TOKEN_BYTES].decode("utf-8", "ignore")


def _bytes(text: str) -> bytes:
    return single_spaces(text).encode("utf-8", "replace")


def _encode(
    tokenizer: Tokenizer, texts: Sequence[str], most: int
) -> tuple[list[list[int]], list[bool]]:
    """Return the ids of each text, and whether it has more tokens than the `most` that are read."""
    ids, cut = [], []
    for text in texts:
        check_running()
        (read,) = tokenizer.encode([_written(text, most)])
        ids.append(read)
        cut.append(len(read) > most or len(_bytes(text)) > most * TOKEN_BYTES)
    return ids, cut


def _score_targets(folder: Folder, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the log-probability of each target token given the tokens before it, float32 `(B, T)`.

    `source` is int64 `(B, S)`, padded with 0; `target` is int64 `(B, T)` and includes END.
    """
    graphs = folder.manifest["graphs"]
    encoded = folder.run("encoder", {"ids": source})
    memory = {name: encoded[name] for name in graphs["memory"]}
    state = {name: encoded[name] for name in graphs["state"]}
    last = np.full(len(target), START_ID, "int64")
    log_probs = np.zeros(target.shape, "float32")
    for time, tokens in enumerate(target.T):
        step = folder.run("step", {"tokens": last, **memory, **state})
        log_probs[:, time] = step["log_probs"][np.arange(len(tokens)), tokens]
        state = {name: step[f"next_{name}"] for name in state}
        last = tokens
    return log_probs
