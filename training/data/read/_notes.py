"""Notes for people on files that look wrong: headers, running numbers, phones in other forms."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from training.command.visible import visible
from training.data.separators import rewriting

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
_IPA = re.compile("[\u0250-\u02ff\u1d00-\u1dbf\u0361]")  # signs of IPA that no alphabet has
_SAMPA = re.compile(r'[{}"]|@(?![\w-]+\.\w)')  # signs of X-SAMPA, which is IPA in ASCII; no e-mail
_CLOSING = {"/": "/", "[": "]", "\\": "\\", "<": ">", "{": "}", "(": ")", "|": "|"}
_JOINING = ".-_,;|+/"  # signs that some lists have between phones, in place of spaces
_COUNTED = re.compile(r"(\S+) \d+")  # a word and a number
_PERL_WORD = r"^(.*\t|\S+\s+)"  # what stands before the phones of a line
_MOST_NAMED = 10  # phones of a message


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


def phone_notes(
    pairs: Sequence[tuple[str, str]], path: object, alone: bool = False
) -> Iterator[str]:
    """Yield messages on phones that look wrong in a list, with the command that repairs it.

    Nothing is said of pairs whose sources are not words, or whose targets have no sign of phones.

    Args:
        pairs: the words with their phones, of one file.
        path: the file, for messages.
        alone: whether the file has the phones alone, and another file has the words.
    """
    nearly_all, where = _NEARLY_ALL * len(pairs), str(path)
    before = "^()" if alone else _PERL_WORD
    if not alone and sum(bool(_COUNTED.fullmatch(word)) for word, _ in pairs) >= max(1, nearly_all):
        cleaned = [(word.rpartition(" ")[0], phones) for word, phones in pairs]
        if not _are_phones(cleaned):
            return
        command = rewriting(r"perl -pe 's/[ ]+\d+(?=\t)//'", where)
        yield f"{path}: words end in numbers, as in {pairs[0][0]!r}. If these are counts: {command}"
        pairs = cleaned
    if not pairs or sum(" " not in word for word, _ in pairs) < nearly_all:
        return
    inside, example = [phones for _, phones in pairs], pairs[len(pairs) // 2][1]
    if sum(map(_is_enclosed, inside)) >= nearly_all:
        signs = r"[/\[\\<{(|]", r"[]/\\>})|]"
        program = rf"perl -pe 's,{before}{signs[0]}\s*(.*?)\s*{signs[1]}\s*$,$1$2\n,'"
        command = rewriting(program, where)
        yield f"{path}: phones are in slashes or brackets, as in {example!r}. Repair: {command}"
        inside = [phones[1:-1].strip() if _is_enclosed(phones) else phones for phones in inside]
    single = [phones for phones in inside if " " not in phones and len(phones) > 1]
    joined = len(single) >= len(pairs) / 2
    for sign in _JOINING:
        if joined:
            found = sum(sign in phones[1:-1] for phones in single) > 0.5 * len(single)
        else:
            found = sum(_have_between(phones.split(), sign) for phones in inside) >= nearly_all
        if found:
            edit = rf"""perl -pe 's/{before}(.*)/$1.$2 =~ tr{{{sign}}}{{ }}r/e'"""
            yield (
                f"{path}: phones have {sign!r} between them, as in {example!r}. A pronouncer needs "
                f"spaces: {rewriting(edit, where)}"
            )
            return
    if not joined:
        yield from _rare_notes([*zip([word for word, _ in pairs], inside, strict=True)], path)
    elif any(
        sum(bool(signs.search(phones)) for phones in single) > 0.2 * len(single)
        for signs in (_IPA, _SAMPA)
    ):
        yield (
            f"{path}: phones have no spaces between them, as in {example!r}. A pronouncer needs "
            "spaces: docs/guides/pronouncer.md has a command"
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


def _is_enclosed(phones: str) -> bool:
    """Return whether slashes or brackets stand around all phones of a word."""
    closing = _CLOSING.get(phones[:1], "")
    first, *others = phones.split() or [""]
    alone = others and len(first) > 1 and first.endswith(closing)  # <s> a b </s>
    return bool(closing) and len(phones) > 2 and phones.endswith(closing) and not alone


def _have_between(phones: Sequence[str], sign: str) -> bool:
    """Return whether a sign ends all phones but the last, or stands between any two phones."""
    if len(phones) < 2:
        return True
    ends = all(len(phone) > 1 and phone.endswith(sign) for phone in phones[:-1])
    apart = len(phones) > 2 and {*phones[1::2]} == {sign} and sign not in phones[::2]
    return ends or apart


def _are_phones(pairs: Sequence[tuple[str, str]]) -> bool:
    """Return whether targets have many symbols of a small alphabet."""
    symbols = [symbol for _, phones in pairs for symbol in phones.split()]
    return len(symbols) >= max(2 * len(pairs), 4 * len({*symbols}))


def _rare_notes(pairs: Sequence[tuple[str, str]], path: object) -> Iterator[str]:
    """Yield a message on the phones that occur in one word only, if targets are phones."""
    words: dict[str, set[str]] = {}
    for word, phones in pairs:
        for phone in {*phones.split()}:
            words.setdefault(phone, set()).add(word)
    rare = {phone: min(found) for phone, found in words.items() if len(found) == 1}
    if rare and _are_phones(pairs):
        shown = ", ".join(f"{phone} ({word})" for phone, word in [*rare.items()][:_MOST_NAMED])
        more = ", …" if len(rare) > _MOST_NAMED else ""
        occur = "1 phone occurs" if len(rare) == 1 else f"{len(rare)} phones occur"
        yield f"{path}: {occur} in one word only: {shown}{more}. Are these typing errors?"
