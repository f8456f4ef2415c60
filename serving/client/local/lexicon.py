"""Lexicons for speech software: the phones of words, from a list of one's own or from a model."""

from __future__ import annotations

import argparse
import io
import math
import os
import re
import string
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from serving.client.arguments import check_count, shown
from serving.client.local.phones import Phones, decoded, read_columns
from serving.client.local.search import tokens_of
from serving.client.local.tokenizers import Vocabulary
from serving.client.local.translator import LocalTranslator
from serving.client.printing import print_error, print_json, printable
from serving.client.results import unique_letters

SHERPA = "sherpa"
# The letters beyond ASCII that sherpa-onnx 2.0 joins to words; any other is a word of its own.
_RUN = r"[0-9A-Za-z'äöüÄÖÜßáéíóúñÁÉÍÓÚÑàèùçâêîôûëïÀÈÙÇÂÊÎÔÛËÏ]+"
_WORD = re.compile(rf"{_RUN}|[^\W_]")
_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_BATCH = 64  # the same always: the last bits of a probability depend on what is in a batch
_MOST_NAMED = 5  # words that have a phone which a voice lacks


class Pronunciation(NamedTuple):
    """Phones of a word, their probability, and where they are from: the lexicon or the model."""

    phones: Sequence[str]
    probability: float = 1.0
    source: str = "lexicon"


class Pronouncer(LocalTranslator):
    """A model from letters to phones.

    Args:
        path: of a version that was exported with `--format onnx`, or of the model.

    Raises:
        ValueError: if there is no such export, or it does something else.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path, batch_size=_BATCH)
        letters, kind = self._source, self._target.kind
        spells = letters.kind in ("characters", "letters") and not self._copies
        if not isinstance(letters, Vocabulary) or not spells or kind != "symbols":
            raise ValueError(
                f"{path} expected a pronouncer, from letters to phones between spaces. Received: "
                f"a model from {letters.kind} to {kind}"
            )
        self._letters = letters

    def unreadable(self, word: str) -> str:
        """Return the reason why a word cannot be read, "" where it can."""
        if letters := unique_letters(self._letters.unknown(word)):
            return f"training never saw {' '.join(map(printable, letters))}"
        (ids,) = self._letters.encode([word])
        return "" if len(ids) <= self._most else f"the model reads {self._most} letters"

    def lowered(self, word: str) -> bool:
        """Return whether a capital is read as its small letter, the only one that training saw."""
        small = word.lower()
        return small != word and self._letters.encode([word]) == self._letters.encode([small])

    def pronounce(
        self, words: Sequence[str], count: int = 1, threads: int = 1
    ) -> Iterator[tuple[str, list[Pronunciation]]]:
        """Yield the words with their pronunciations, the best first; the longest words first.

        Args:
            words: that can be read, see `unreadable`.
            count: pronunciations of each.
            threads: each with a batch of its own; the answers are the same for any number.

        Raises:
            ValueError: for more than the search finds.
        """
        check_count("--nbest", count, 1, self._settings.width)

        def answer(result: Any) -> list[Pronunciation]:
            rows = zip(result.ids, result.log_probs, result.scores, strict=True)
            return [
                Pronunciation(tokens, math.exp(log_probs.sum()), "model")
                for ids, log_probs, score in rows
                if score > -math.inf and (tokens := tokens_of(self._target, ids))
            ]

        def search(batch: Sequence[str], count: int) -> list[list[Pronunciation]]:
            return [each or [] for each in self._search(self._read(batch), count, answer)]

        def work(batch: Sequence[str]) -> list[tuple[str, list[Pronunciation]]]:
            answers = dict(zip(batch, search(batch, count), strict=True))
            for word in (word for word, each in answers.items() if not each):  # the best is silence
                (several,) = search([word], self._settings.width)
                answers[word] = several[:count]
            return list(answers.items())

        order = sorted(words, key=len, reverse=True)
        pool = ThreadPoolExecutor(threads)
        try:
            batches = [order[at : at + _BATCH] for at in range(0, len(order), _BATCH)]
            for answers in pool.map(work, batches):
                yield from answers
        finally:
            pool.shutdown(cancel_futures=True)


def write_lexicon(arguments: argparse.Namespace) -> int:
    """Write the lexicon that a command asks for; return 1 where a voice lacks phones, else 0.

    Raises OSError, or ValueError for files that are none and for a model that is no pronouncer.
    """
    words = _read_words(arguments)
    own = read_columns(Path(arguments.lexicon)) if arguments.lexicon else {}
    own |= {word.lower(): rows for word, rows in own.items() if word.lower() not in own}
    voice = Phones(arguments.map, arguments.phones)
    model = Pronouncer(arguments.local)
    answers, spellings = {}, {}
    for word in words:
        bare = _without_quotes(word)
        keys = (key for key in (word, bare, word.lower(), bare.lower()) if key in own)
        if key := next(keys, None):
            answers[word] = [Pronunciation(row) for row in own[key]]
        else:
            spellings[word] = bare
    spoken = _ask(model, spellings, arguments)
    answers |= {word: spoken[bare] for word, bare in spellings.items() if bare in spoken}
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    lacking: dict[str, list[str]] = {}
    for word in filter(answers.__contains__, words):
        lines: dict[str, Pronunciation] = {}
        for pronunciation in answers[word]:
            tokens, missing = voice.write(pronunciation.phones)
            for phone in dict.fromkeys(missing):
                lacking.setdefault(phone, []).append(word)
            if not missing:
                lines.setdefault(" ".join(tokens), pronunciation)
        _print_lines(arguments, word, lines)
    for phone, those in lacking.items():
        more = f" and {len(those) - _MOST_NAMED:,} more" if len(those) > _MOST_NAMED else ""
        print_error(f"the voice has no token for {phone}: {', '.join(those[:_MOST_NAMED])}{more}")
    return int(bool(lacking))


def words_of(text: str) -> list[str]:
    """Return the words of a text, each once, as sherpa-onnx 2.0 looks them up in a lexicon.

    ASCII alone is made small. Signs but for apostrophes end a word, and so do letters beyond those
    of French, German and Spanish: each is a word of its own.
    """
    words = _WORD.findall(text.translate(_SMALL))
    return list(dict.fromkeys(word for word in words if word.strip("'")))


def _without_quotes(word: str) -> str:
    return word.strip("'") if word[0] == word[-1] == "'" else word


def _read_words(arguments: argparse.Namespace) -> list[str]:
    """Return the words of a text or a list, each once."""
    text = "\n".join(arguments.texts)
    if not arguments.texts:
        text = decoded(sys.stdin.buffer.read(), "the standard input")
    words = (
        words_of(text) if arguments.text else list(filter(None, map(str.strip, text.split("\n"))))
    )
    if not words:
        raise ValueError("no word: give words as arguments or on standard input")
    if phrase := next((word for word in words if len(word.split()) > 1), None):
        raise ValueError(
            f"--format expected a word a line; --text reads a text. Received: {shown(phrase)}"
        )
    if arguments.format == SHERPA:
        words = [word.translate(_SMALL) for word in words]
        apart = [word for word in words if not re.fullmatch(_RUN, word)]
        _warn("sherpa-onnx looks up no such words, or each letter as a word", apart)
    return list(dict.fromkeys(words))


def _ask(
    model: Pronouncer, spellings: dict[str, str], arguments: argparse.Namespace
) -> dict[str, list[Pronunciation]]:
    """Return the model's pronunciations by spelling; name the words that it cannot read."""
    reasons = {word: model.unreadable(bare) for word, bare in spellings.items()}
    for reason in dict.fromkeys(filter(None, reasons.values())):
        _warn(f"left out, {reason}", [word for word in reasons if reasons[word] == reason])
    readable = {word: spellings[word] for word, reason in reasons.items() if not reason}
    lowered = [word for word, bare in readable.items() if model.lowered(bare)]
    _warn("read in small letters, the only ones that training saw", lowered)
    asked, spoken = list(dict.fromkeys(readable.values())), {}
    threads = arguments.threads or os.cpu_count() or 1
    started, step = time.monotonic(), max(1, len(asked) // 100)
    for word, pronunciations in model.pronounce(asked, arguments.nbest or 1, threads):
        spoken[word] = pronunciations
        if sys.stderr.isatty() and (len(spoken) % step == 0 or len(spoken) == len(asked)):
            _draw_progress(len(spoken), len(asked), time.monotonic() - started)
    _warn(
        "left out, the model says nothing", [w for w, bare in readable.items() if not spoken[bare]]
    )
    return spoken


def _draw_progress(done: int, total: int, seconds: float) -> None:
    bar, left = f"{'█' * (40 * done // total):░<40}", seconds * (total - done) / done
    end = "\n" if done == total else ""
    print(f"\r{bar} {done:,} of {total:,} words, {left:.0f} s left ", end=end, file=sys.stderr)
    sys.stderr.flush()


def _warn(reason: str, words: Sequence[str]) -> None:
    if words:
        print(f"warning: {reason}: {', '.join(map(printable, words))}", file=sys.stderr)


def _print_lines(arguments: argparse.Namespace, word: str, lines: dict[str, Pronunciation]) -> None:
    """Print the lines of a word, of which sherpa-onnx reads the first alone."""
    best = max((line.probability for line in lines.values()), default=1.0)
    for phones, (_, probability, source) in lines.items():
        match arguments.format:
            case "json":
                rounded = round(probability, 4)
                print_json(word=word, phones=phones, probability=rounded, source=source)
            case "mfa" if arguments.nbest:  # relative to the most probable, as MFA's own are
                print(f"{word}\t{max(0.01, probability / best):.2f}\t{phones}")
            case "mfa" | "tsv":
                print(f"{word}\t{phones}")
            case _:
                print(f"{word} {phones}")
        if arguments.format == SHERPA:
            break
