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
import unicodedata
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from serving.api.arguments import check_count, shown
from serving.api.printing import print_error, print_json, printable
from serving.api.results import unique_letters
from serving.portable.read.model import tokens_of
from serving.portable.read.tokenizers import Vocabulary
from serving.portable.read.translator import LocalTranslator

ARPABET_IPA = "arpabet-ipa"
# CMUdict's 39 phones. Piper's and Kokoro's voices have no ɝ, see `Phones.write`.
_IPA = """AA ɑ AE æ AH ʌ AO ɔ AW aʊ AY aɪ B b CH tʃ D d DH ð EH ɛ ER ɝ EY eɪ F f G ɡ HH h IH ɪ IY i
JH dʒ K k L l M m N n NG ŋ OW oʊ OY ɔɪ P p R ɹ S s SH ʃ T t TH θ UH ʊ UW u V v W w Y j Z z ZH ʒ"""
_UNSTRESSED = {"AH": "ə", "ER": "ɚ"}
SHERPA = "sherpa"
# The letters beyond ASCII that sherpa-onnx 2.0 joins to words; any other is a word of its own.
_RUN = r"[0-9A-Za-z'äöüÄÖÜßáéíóúñÁÉÍÓÚÑàèùçâêîôûëïÀÈÙÇÂÊÎÔÛËÏ]+"
_WORD = re.compile(rf"{_RUN}|[^\W_]")
_INSIDE = "'’\u200c\u200d"  # of words, beside letters; Persian and Indic ones have joiners
_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
_BATCH = 64  # the same always: the last bits of a probability depend on what is in a batch
_MOST_NAMED = 5  # words that have a phone which a voice lacks


def arpabet_ipa() -> dict[str, list[str]]:
    """Return CMUdict's phones in IPA; a mark of stress stands before its vowel: AA1 is ˈɑ."""
    words = _IPA.split()
    names = {}
    for name, ipa in zip(words[::2], words[1::2], strict=True):
        names[name] = [ipa]
        if name[0] in "AEIOU":
            names[f"{name}0"] = [_UNSTRESSED.get(name, ipa)]
            names |= {f"{name}1": [f"ˈ{ipa}"], f"{name}2": [f"ˌ{ipa}"]}
    return names


def decoded(content: bytes, name: object) -> str:
    """Return the text of a file of some name. Raises ValueError where it is not UTF-8."""
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{name}, line {line}: expected a text in UTF-8") from None


def _matches(path: Path, pattern: str, expected: str) -> Iterator[re.Match[str]]:
    """Match all lines that are not blank. Raises OSError, or ValueError for another line."""
    for number, line in enumerate(decoded(path.read_bytes(), path).split("\n"), 1):
        if match := re.fullmatch(pattern, line):
            yield match
        elif line.strip():
            raise ValueError(f"{path}, line {number}: expected {expected}. Received: {shown(line)}")


def read_columns(path: Path) -> dict[str, list[list[str]]]:
    """Return the phones of all pronunciations by word, of `WORD<TAB>PHONES`, in quotes or not.

    Raises OSError, or ValueError for another line.
    """
    rows: dict[str, list[list[str]]] = {}
    expected = "two columns with a tab between them, the second of phones"
    for match in _matches(path, r" *([^\t]*\S) *\t([^\t]*\S[^\t]*)", expected):
        word, phones = (re.sub('^"(.*)"$', r"\1", cell.strip()) for cell in match.groups())
        rows.setdefault(word, []).append(phones.split())
    return rows


def read_tokens(path: Path) -> frozenset[str]:
    """Return the tokens of a voice, `tokens.txt` of sherpa-onnx: a token and its number a line.

    Raises OSError, or ValueError for a file of another form.
    """
    expected = "a token and its number, as in a voice's tokens.txt"
    tokens = {match[1] or " " for match in _matches(path, r"(\S*)[ \t]+\d+\s*", expected)}
    if not tokens:
        raise ValueError(f"{path} has no tokens")
    return frozenset(tokens)


class Phones:
    """Writes phones as a voice does.

    Args:
        names: a file of `PHONE<TAB>PHONES` that renames phones, or `arpabet-ipa`; None for none.
        tokens: the voice's `tokens.txt`; None lets every phone be.

    Raises OSError, or ValueError for files of another form.
    """

    def __init__(self, names: str | None, tokens: str | None) -> None:
        self._names = arpabet_ipa() if names == ARPABET_IPA else {}
        if names and not self._names:
            self._names = {phone: rows[-1] for phone, rows in read_columns(Path(names)).items()}
        self._tokens = read_tokens(Path(tokens)) if tokens else None

    def write(self, phones: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the tokens of phones, and the phones that the voice has no tokens for.

        Letters with marks may be one character or several, and ɝ and ɚ are ɜɹ and əɹ.
        """
        tokens, lacking = [], []
        for phone in (new for old in phones for new in self._names.get(old, [old])):
            forms = [phone, *(unicodedata.normalize(form, phone) for form in ("NFC", "NFD"))]
            forms += [phone.replace("ɝ", "ɜɹ").replace("ɚ", "əɹ")]
            parts = next(filter(None, map(self._split, forms)), [])
            tokens += parts
            lacking += [] if parts else [phone]
        return tokens, lacking

    def _split(self, phone: str) -> list[str]:
        """Return the longest token that a phone begins with, and those of its rest; or nothing."""
        if self._tokens is None or phone in self._tokens:
            return [phone]
        for end in range(len(phone) - 1, 0, -1):
            if phone[:end] in self._tokens and (rest := self._split(phone[end:])):
                return [phone[:end], *rest]
        return []


class Pronunciation(NamedTuple):
    """Phones of a word, their probability, and where they are from: the lexicon or the model."""

    phones: Sequence[str]
    probability: float = 1.0
    source: str = "lexicon"


class Pronouncer(LocalTranslator):
    """A model from letters to phones, of an ONNX export or of the model.

    Raises ValueError if there is no such export, or it does something else.
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

    def is_cut(self, word: str, phones: Sequence[str]) -> bool:
        """Return whether a word has fewer phones for its letters than nearly all of training."""
        (ids,) = self._letters.encode([word])
        return len(phones) < (self._spelling or {"fewest": 0.0})["fewest"] * len(ids)

    def pronounce(
        self, words: Sequence[str], count: int = 1, threads: int = 1
    ) -> Iterator[tuple[str, list[Pronunciation]]]:
        """Yield the words with so many pronunciations, the best first; the longest words first.

        They can be read, see `unreadable`. Threads have a batch of their own; the answers are the
        same for any number. Raises ValueError for more than the search finds.
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
    listed = read_columns(Path(arguments.lexicon)) if arguments.lexicon else {}
    own = {_plain(word): rows for word, rows in listed.items()}
    own |= {word.lower(): rows for word, rows in own.items() if word.lower() not in own}
    voice = Phones(arguments.map, arguments.phones)
    model = Pronouncer(arguments.local)
    answers, spellings = {}, {}
    for word in words:
        bare = word.strip("'") if word[0] == word[-1] == "'" else word
        forms = map(_plain, (word, bare, word.lower(), bare.lower()))
        if key := next(filter(own.__contains__, forms), None):
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

    Marks are joined to their letters, and ASCII alone is made small. Signs but for apostrophes end
    a word, and so do letters beyond those of French, German and Spanish: each is a word of its own.
    """
    words = _WORD.findall(unicodedata.normalize("NFC", text).translate(_SMALL))
    return list(dict.fromkeys(word for word in words if word.strip("'")))


def spoken_words(text: str) -> list[str]:
    """Return the words of a text in any script, each once, in small letters."""
    signs = (
        c if c in _INSIDE or unicodedata.category(c)[0] in "LMN" else " " for c in text.lower()
    )
    words = (word.rstrip("’") for word in "".join(signs).split())
    return list(dict.fromkeys(word for word in words if word.strip(_INSIDE)))


def _plain(word: str) -> str:
    """Return a word as it is looked up in a list: of equal spellings one."""
    return unicodedata.normalize("NFC", word).replace("’", "'")


def _read_words(arguments: argparse.Namespace) -> list[str]:
    """Return the words of a text or a list, each once."""
    text = "\n".join(arguments.texts)
    if not arguments.texts:
        text = decoded(sys.stdin.buffer.read(), "the standard input")
    if arguments.text:
        words = words_of(text) if arguments.format == SHERPA else spoken_words(text)
    else:
        words = list(filter(None, map(str.strip, text.split("\n"))))
    if not words:
        raise ValueError("no word: give words as arguments or on standard input")
    if phrase := next((word for word in words if len(word.split()) > 1), None):
        raise ValueError(
            f"--format expected a word a line; --text reads a text. Received: {shown(phrase)}"
        )
    if arguments.format == SHERPA:
        words = [unicodedata.normalize("NFC", word).translate(_SMALL) for word in words]
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
    silent = [word for word, bare in readable.items() if not spoken[bare]]
    _warn("left out, the model says nothing", silent)
    few = [w for w in asked if spoken[w] and model.is_cut(w, spoken[w][0].phones)]
    _warn("fewer phones for their letters than nearly all words of training have", few)
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
