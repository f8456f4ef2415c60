"""The metric that fits texts: BLEU compares runs of words, and some scripts have no spaces."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping

from training.metrics import METRICS, References, Texts, bleu_statistics, deciding, is_best, score

_MOST_MEASURED = 1000  # most references that are measured
_BLEUS = ("bleu", "bleu-zh")
_RUN = 4  # words in the longest runs that BLEU compares
# How the Unicode names of characters begin, in scripts that put no space between words.
_UNSPACED = (
    *("THAI ", "LAO ", "KHMER ", "MYANMAR ", "TIBETAN ", "JAVANESE ", "BALINESE ", "CHAM "),
    *("TAI ", "NEW TAI LUE ", "YI ", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "BOPOMOFO"),
    *("HENTAIGANA", "CJK", "IDEOGRAPHIC", "TANGUT", "NUSHU"),
)
_HAN = ("CJK", "IDEOGRAPHIC")
_CHARACTER_WORDS = ("CJK", "HIRAGANA", "KATAKANA")  # each character counts as a word
_LETTERS_OF_A_WORD = 5  # letters that count as a word, in the other scripts without spaces
_LONGEST_WORD = 30  # letters; more without a space are several words, in whatever script
_WORD = re.compile(r"[^\s\u1361]+")  # U+1361 is the Ethiopic wordspace
_UNSPACED_SHARE = 0.1  # with more letters of such scripts, spaces are not the ends of words
_CHINESE = 0.9  # least share of Han among these letters in Chinese; Japanese has less


def fitting_metric(references: References) -> str:
    """Return the value of the key `metric` that fits these references.

    - `exact` if most references have at most three words, because BLEU compares runs of four. In
      scripts without spaces, a Chinese or Japanese character counts as a word, and so do five
      letters of the other scripts, and of what has more than 30 letters without a space.
    - `bleu-zh`, which compares characters, for Chinese.
    - `chrf`, which needs no words, for the other scripts without spaces, and for references in
      which BLEU finds no run of four words.
    - `bleu` for all others.
    """
    texts = [each[0] for each in references[:_MOST_MEASURED]]
    counts = Counter("".join(texts))
    names = {letter: unicodedata.name(letter, "") for letter in counts}
    unspaced = {letter: name for letter, name in names.items() if name.startswith(_UNSPACED)}
    if 2 * sum(_words(text, unspaced) < _RUN for text in texts) > len(texts):
        return "exact"
    metric, total = "bleu", sum(counts[letter] for letter in unspaced)
    if total > _UNSPACED_SHARE * sum(counts[letter] for letter in counts if letter.isalnum()):
        han = sum(counts[letter] for letter, name in unspaced.items() if name.startswith(_HAN))
        metric = "bleu-zh" if han >= _CHINESE * total else "chrf"
    return "chrf" if _without_runs(metric, texts) else metric


def misfit(metric: str, references: References) -> str | None:
    """Return why a metric does not fit references, as the end of a sentence; None if it does.

    It fits if the references, scored against themselves, have its best figure, and if BLEU finds
    words, and a run of four words in most of them. At most 1,000 references are scored.
    """
    references = references[:_MOST_MEASURED]
    texts = [each[0] for each in references]
    figures = score(metric, texts, references)
    if name := None if is_best(figures) else deciding(figures):
        label, best = METRICS[name].label, METRICS[name].best
        return f"scored against themselves, they have {label} {figures[name]:.3g}, not {best:g}"
    if _without_runs(metric, texts):
        return f"most have fewer than {_RUN} words between spaces, and BLEU compares runs of {_RUN}"
    if metric in _BLEUS and fitting_metric(references) not in (metric, "bleu", "exact"):
        return "their script puts no spaces between words, and BLEU compares words"
    return None


def _words(text: str, unspaced: Mapping[str, str]) -> float:
    """Return about how many words a text has; `unspaced` has names of letters without spaces."""
    count = 0.0
    for letter in text:
        if name := unspaced.get(letter):
            count += 1 if name.startswith(_CHARACTER_WORDS) else 1 / _LETTERS_OF_A_WORD
    spaced = "".join(" " if letter in unspaced else letter for letter in text)
    return count + sum(map(_words_in, _WORD.findall(spaced)))


def _words_in(text: str) -> float:
    """Return about how many words there are between two spaces."""
    letters = sum(unicodedata.category(letter)[0] in "LM" for letter in text)
    return letters / _LETTERS_OF_A_WORD if letters > _LONGEST_WORD else 1


def _without_runs(metric: str, texts: Texts) -> bool:
    """Return whether a metric is BLEU, and most texts have no run of four of its words."""
    if metric not in _BLEUS:
        return False
    rows = bleu_statistics(metric, texts, [[text] for text in texts])
    return 2 * sum(not row[2 * _RUN - 1] for row in rows) > len(texts)
