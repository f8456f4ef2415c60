"""First lines that look like the names of columns, and columns that look like running numbers."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from training.command.visible import visible

MOST_LINES = 20_000  # lines that are measured
_FEW = 20  # lines; with fewer, a different first line is not taken for a header
_ODD = 1 / 200  # a letter is rare if at most this share of a column's other texts has it
_SEVERAL = 0.99  # share of a column's texts with several words, from which on one word is odd
_NEARLY_ALL = 0.95  # share of texts
_LARGE = 250  # letters of an alphabet; in a larger one, most letters are rare
_NAME = re.compile(r"#?\w[\w .-]{0,30}(?<![.])(?: ?[(\[][^()\[\]]{1,30}[)\]])?")  # of a column
_MARKS = ("Mn", "Mc", "Cf")  # vowels and signs of Thai, Indic and other scripts, which \w lacks
_RUNNING = re.compile(r"(\D{0,9})(\d+)")
_PARTS = re.compile(r"[^\W_]+")
_NAMES = """orthography spelling date iso
source target src tgt trg input output text label word words phone phones phonemes ipa
sentence sentences translation pronunciation reference question answer prompt response lemma form
grapheme graphemes phoneme transcription original translated
english french german spanish italian chinese japanese korean russian portuguese dutch latin
en fr de es it zh ja ru pt nl pl sv ko ar tr cs fi la 0 1
quelle ziel eingabe ausgabe satz wort übersetzung aussprache deutsch englisch französisch
entrée sortie phrase mot traduction prononciation anglais français allemand espagnol
entrada salida palabra frase traducción pronunciación español inglés
слово фраза перевод произношение транскрипция русский английский
단어 발음 문장 번역 원문 한국어 영어 표기 품사
源 源文 原文 译文 譯文 翻译 翻譯 单词 單詞 词语 词 拼音 发音 發音 句子 中文 英文 汉字 漢字
単語 発音 読み 訳 訳文 翻訳 日本語 英語 かな"""
_HEADER = frozenset(_NAMES.split())


def has_header(lines: Sequence[Sequence[str]], phones: bool = False) -> bool:
    """Return whether the first line looks like the names of columns, unlike all other lines.

    The first line must have the form of names: no full stop at its end, and at most 30 letters,
    perhaps with more in brackets. It is a header if it is odd, and no other line of this form is as
    odd. A line of usual names of columns is oddest. The oddness of any other line is

    - for phones, how many other lines have the most usual of its phones,
    - or else the figure of its more usual text. The figure of a text is how many other texts of its
      column have its rarest letter; or how many are a single word, if the text is one and nearly
      all are several. If the most usual letter of one text has a lower figure, that counts.

    Lower numbers are odder. In a large alphabet, scripts count instead of letters.

    Args:
        lines: the columns of each line; only the first two count.
        phones: whether the second column has phones.
    """
    if not lines or len(lines[0]) < 2 or not all(map(_may_be_name, lines[0][:2])):
        return False
    rows = [row[:2] for row in lines[:MOST_LINES] if len(row) > 1 and all(row[:2])]
    measure = (_of_phones if phones else _of_letters)(rows)

    def oddness(row: Sequence[str]) -> float:
        return -1 if all(map(_is_name, row)) else measure(row)

    odd = oddness(rows[0])
    if odd > (_ODD * len(rows) if len(rows) > _FEW else -1):
        return False
    others = (row for row in rows[1:] if row != rows[0] and all(map(_may_be_name, row)))
    return all(oddness(row) > odd for row in others)


def number_notes(pairs: Sequence[tuple[str, str]], spec: object) -> Iterator[str]:
    """Yield a message for each side of pairs, in the file's order, that has running numbers."""
    for number, side in enumerate(("sources", "targets")):
        texts = [pair[number] for pair in pairs]
        found = [match for text in texts if (match := _RUNNING.fullmatch(text))]
        if len(found) <= max(_FEW, _NEARLY_ALL * len(texts)):
            continue
        name = Counter(match[1] for match in found).most_common(1)[0][0]
        numbers = [int(match[2]) for match in found if match[1] == name]
        rises = sum(a < b for a, b in itertools.pairwise(numbers))
        if rises >= _NEARLY_ALL * (len(texts) - 1):
            shown = ", ".join(visible(match[0]) for match in found[:3])
            yield (
                f"{spec}: {side} are running numbers ({shown}, …): is that an id? Choose other "
                "columns of the first file: cut -f 2,3 OLD > NEW"
            )


def _of_phones(rows: Sequence[Sequence[str]]) -> Callable[[Sequence[str]], float]:
    """Return a function from a line to the number of other lines with one of its phones."""
    counts = Counter(phone for _, phones in rows for phone in {*phones.split()})
    return lambda row: max(counts[phone] for phone in row[1].split()) - 1


def _of_letters(rows: Sequence[Sequence[str]]) -> Callable[[Sequence[str]], float]:
    """Return a function from a line to its oddness by letters; see `has_header`."""
    sides = [_figures(column) for column in zip(*rows, strict=True)]

    def odd(row: Sequence[str]) -> float:
        found = [figures(text) for figures, text in zip(sides, row, strict=True)]
        return min(max(least for least, _ in found), *(most for _, most in found))

    return odd


def _figures(column: Sequence[str]) -> Callable[[str], tuple[float, float]]:
    """Return a function from a text of a column to the figures of its rarest and usual letter."""
    counts = Counter(letter for text in column for letter in {*text} - {" "})
    large, names = len(counts) > _LARGE, dict[str, str]()
    if large:
        names = {c: _script(c) for c in counts}
        counts = Counter(name for text in column for name in {names[c] for c in {*text} - {" "}})
    single = sum(" " not in text for text in column)
    several = single <= (1 - _SEVERAL) * len(column)

    def odd(text: str) -> tuple[float, float]:
        if _is_name(text):
            return 0, len(column)
        found = [counts[names.get(c, c)] - 1 for c in {*text} - {" "}]
        least = min(found)
        if several and " " not in text:
            least = min(least, single - 1)
        return least, max(found)

    return odd


def _script(letter: str) -> str:
    """Return the script of a letter without case, or the letter itself."""
    name = unicodedata.name(letter, "").partition(" ")[0]
    return name if unicodedata.category(letter) == "Lo" else letter


def _may_be_name(text: str) -> bool:
    """Return whether a text has the form of a column's name."""
    letters = (c for c in text if c.isascii() or unicodedata.category(c) not in _MARKS)
    return _NAME.fullmatch("".join(letters)) is not None


def _is_name(text: str) -> bool:
    """Return whether a text is made of usual names of columns."""
    return {*_PARTS.findall(text.lower())} <= _HEADER and bool(_PARTS.search(text))
