r"""The rules of texts, each written once: cleaning, words, sentences, cells, names of inputs.

Training, the client and the page use these rules. The client has a copy of this file. The page's
`rules.js` is generated from the constants. Python's `re` and JavaScript read the patterns, and RE2
reads the patterns of words. `\p{Han}` is `\p{Script=Han}` in JavaScript. For programs without
Unicode classes, a tokenizer's file lists the characters of IDEOGRAPH, LETTER and SPACES.
"""

from __future__ import annotations

import csv
import itertools
import re
import unicodedata
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

Length = TypeVar("Length")  # a whole number or a tensor of whole numbers

# Tokens
PAD_ID, UNK_ID, START_ID, END_ID = 0, 1, 2, 3
UNK_TOKEN = "<unk>"
SHOWN = ("", UNK_TOKEN, "", "")  # tokens that special ids are shown as
MARK = "▁"  # a space within a token, in SentencePiece and in words
ALPHABETS = ("characters", "letters")  # kinds of tokens that are single letters
# bytes of text for each allowed token; a longer text is cut before it is tokenized
TOKEN_BYTES = 64

# Words. In WORD and GOES_ON, a name in capitals is replaced by the pattern of this name.
IDEOGRAPH = r"[\p{Han}\p{Hiragana}\p{Katakana}]"  # each is a word
LETTER = r"(?:[^\P{L}\p{Han}\p{Hiragana}\p{Katakana}]|[\p{N}\p{M}])"
ELIDED = "[cdjlmnst]|qu|jusqu|lorsqu|puisqu|quoiqu"  # before an apostrophe, small or capital
WORD = "▁?(?:IDEOGRAPH|(?:ELIDED)['’]|LETTER+(?:['’]LETTER+)*|[^▁])"
GOES_ON = "(?:LETTER|['’-])"  # a character that continues the word before it
# How the Unicode names of IDEOGRAPH's characters begin. The prolonged sound mark and the half-width
# voiced sound marks belong to several scripts, and so are not among these characters.
_IDEOGRAPHS = ("CJK", "HIRAGANA", "KATAKANA ", "HALFWIDTH KATAKANA LETTER", "HENTAIGANA")
_ITERATION = ("IDEOGRAPHIC ITERATION", "VERTICAL IDEOGRAPHIC ITERATION", "OLD CHINESE")
# Marks that make another letter of the one before them: of Latin, Greek and Cyrillic, hamza and
# madda of Arabic, nuktas of Indic scripts, voiced sound marks of kana. A range of characters.
MARKS = "\u0300-\u036f\u0653-\u0655\u093c\u09bc\u0a3c\u0abc\u0b3c\u0cbc\u3099\u309a"
WHOLE_LETTER = f"[^{MARKS}][{MARKS}]*|[{MARKS}]+"  # in NFC, with its marks
SPACES = r"[▁\s\p{Z}\p{Cc}]+"
WHITE = r"[\t-\r\x1c-\x1f\x85\p{Z}]+"  # the white space of `str.split`

# Sentences. A full stop ends a sentence before white space; a Chinese or Japanese full stop, at any
# place. A full stop after a number of one or two digits is that of an ordinal or a date ("3. Mai",
# "12.05. bis"), which ends no sentence; nor does one after any number if a small letter follows, as
# in the Hungarian date "1848. március 15.", or after a German article and a number of three or four
# digits ("am 100. Tag"). Patterns read a run of white space only from its beginning, not from each
# place in it.
BLANK = r"[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
_ARTICLES = (  # German, each alternative of equal length, as Python's lookbehinds want it
    "[Aa]m|[Ii]m",
    "[Dd](?:er|ie|as|em|en|es)|[Zz]um|[Vv]om|[Ii]hr",
    "[Bb]eim|[SMDsmd]ein|[Jj]ede",
    "[Jj]ede[rsmn]|[Uu]nser",
)
_ORDINAL = r"(?<!(?<![0-9,])[0-9]\.{0})(?<!(?<![0-9,])[0-9]{{2}}\.{0})" + "".join(
    rf"(?<!(?<![A-Za-zÀ-ÿ])(?<!I )(?:{words}){BLANK}[0-9]{{{{{digits}}}}}\.{{0}})"
    for words in _ARTICLES
    for digits in (3, 4)
)
_SMALL = "a-zß-öø-ÿāăąćčďđēėęěğģīįıķļľłńņňōőœŕřśşšţťūůűųźżž\u03ac-\u03ce\u0430-\u045f"
_LATER = rf"(?:(?<![0-9]\.)|(?!{BLANK}+[{_SMALL}]))"
_QUOTE = """["'”’»)\\]]"""
LINE_END = rf"(?<!{BLANK}){BLANK}*\n{BLANK}*"
SENTENCE_END = (
    rf"(?<=[.!?…]){_ORDINAL.format('')}{_LATER}{BLANK}+"
    rf"|(?<=[.!?…]{_QUOTE}){_ORDINAL.format(_QUOTE)}{BLANK}+"
    rf"|(?<=[。！？])(?![。！？”’」』）]){BLANK}*|(?<=[。！？][”’」』）]){BLANK}*"
    rf"|{LINE_END}"
)
ENDED = rf"(?:[!?…]|\.{_ORDINAL.format('')}){_QUOTE}*$|[。！？][”’」』）]*$"  # of a sentence
FULL_WIDTH_END = r"[。！？][”’」』）]*$"
MOST_SENTENCES = 64  # most sentences of a text on the page

# Cells of tables, in lower case: missing in any column, or missing in a column of numbers.
MISSING = frozenset({"", "na", "nan", "n/a", "#n/a", "<na>", "null"})
PLACEHOLDERS = MISSING | {
    *("-", "--", "–", "—", "?", ".", "..", "*", "n.a.", "n.d.", "nd", "none", "nil"),
    *("-nan", "#na", "missing", "unknown", "not available", "not done", "pending"),
}
SILENT = ("", "NA", "NaN", "nan")  # usual forms of a missing cell, which need no note
MOST_NUMBER = 1e30  # so that differences fit into float32 as well
LOST = 0.01  # largest rounding error of a gap between events, and largest share of such gaps
TIME = "time"
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_WHOLE = re.compile(r"([+-]?\d+)\.0*", re.ASCII)

MOST_PIXELS = 1 << 24  # of an image before it is resized: 16.8 million

# Hints for messages: other encodings than UTF-8, and files without text, by their first bytes.
NUL = ": it contains NUL characters. Remove them: tr -d '\\000' < OLD > NEW"
UTF16 = (
    ": it contains NUL characters, as UTF-16 does. Convert it: iconv -f UTF-16 -t UTF-8 OLD > NEW "
    "(for UTF-32: -f UTF-32)"
)
LATIN1 = (
    ". If it is Latin-1, convert it: iconv -f LATIN1 -t UTF-8 OLD > NEW. Other encodings have "
    "other names, such as CP1252, GBK or SHIFT-JIS"
)
NO_TEXT = {
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), UTF16),
    b"\x1f\x8b": ": it is compressed by gzip. Give it a name that ends in .gz",
    b"(\xb5/\xfd": ": it is compressed by Zstandard. Decompress it with unzstd",
    b"BZh91AY": ": it is compressed by bzip2. Decompress it with bunzip2",
    b"\xfd7zXZ": ": it is compressed by xz. Decompress it with unxz",
    b"PK\x03\x04": ": it is a ZIP archive, such as a spreadsheet. Save it as text in UTF-8",
    b"\xd0\xcf\x11\xe0": ": it is a file of an office program. Save it as text in UTF-8",
}


def tag_length(ids: Sequence[int], tag: Mapping[str, int] | None) -> int:
    """Return how many ids in front of a word are its tag, such as that of a language: "[cy] ".

    A tag is the ids from `[` to the first `]`, and a space right after it. It has at most as many
    ids as those of training, and letters follow it.

    Args:
        ids: the ids of the word with its tag.
        tag: the ids `open`, `close` and `space`, and the length `longest` of the longest tag; None
            for a model whose training words have no tags.
    """
    if tag is None or not ids or ids[0] != tag["open"] or tag["close"] not in ids:
        return 0
    size = ids.index(tag["close"]) + 1
    size += size < len(ids) and ids[size] == tag["space"]
    return size if size <= tag["longest"] and size < len(ids) else 0


def pattern(rule: str, ideograph: str, letter: str) -> str:
    """Return the pattern of a rule, WORD or GOES_ON, with these character classes filled in."""
    rule = rule.replace("(?:ELIDED)", f"(?i:{ELIDED})")
    return rule.replace("IDEOGRAPH", ideograph).replace("LETTER", letter)


def goes_on(text: str) -> bool:
    """Return whether a text continues the word before it: GOES_ON without character classes."""
    first = text[:1] or " "
    category = unicodedata.category(first)[0]
    if category == "L" and unicodedata.name(first, "").startswith(_IDEOGRAPHS + _ITERATION):
        return False
    return first in "'’-" or category in "LMN"


def encoding_hint(data: bytes) -> str:
    """Return the hint for a file's bytes that are not UTF-8, to append to a message."""
    if hints := [hint for mark, hint in NO_TEXT.items() if data.startswith(mark)]:
        return hints[0]
    nuls, start = data.count(b"\0", 0, 4096), data[:4096]
    if nuls > len(start) / 100:
        return UTF16
    return NUL if nuls else LATIN1


def most_tokens(length: Length, bound: Sequence[float]) -> Length:
    """Return the most tokens of an answer to a source of `length` tokens, the end token included.

    `length` is a whole number or a tensor of whole numbers. `bound` is a factor, with at most two
    decimals, and a constant. Whole numbers alone are multiplied, so that all programs agree.
    """
    whole, hundredths = divmod(round(100 * bound[0]), 100)
    number: Any = length
    most: Length = whole * number + hundredths * number // 100 + int(bound[1])
    return most


def clean(text: str) -> str:
    """Return a text as training reads it: NFC, single spaces, no byte order marks inside."""
    return unicodedata.normalize("NFC", single_spaces(text))


def single_spaces(text: str) -> str:
    """Return a text with single spaces and without byte order marks, before it is cut to a size."""
    return " ".join(text.replace("\ufeff", "").split())


def parse_number(cell: str) -> float | None:
    """Return the number in a cell, from -1e30 to 1e30; None if the cell is not a number.

    1_000 and digits of other scripts are not numbers here: only Python reads them as numbers.
    """
    number = float(cell) if _NUMBER.fullmatch(cell) else float("inf")
    return number if abs(number) <= MOST_NUMBER else None


def category_of(cell: str) -> str:
    """Return a category in normal form: NFC, and 1 for 1.0, which pandas writes next to gaps."""
    whole = _WHOLE.fullmatch(cell)
    return unicodedata.normalize("NFC", whole[1] if whole else cell)


def alike(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of texts that differ only in form, as F and f, 1.5 and 1.50, or 7 and 007."""
    forms: dict[str | float, str] = {}
    pairs = []
    for text in texts:
        number = parse_number(category_of(text))
        folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
        first = forms.setdefault(folded if number is None else number, text)
        if first != text:
            pairs.append((first, text))
    return pairs


def number_hint(cell: str) -> str:
    """Return how to write a cell, which is not a number, as a number; "" if unknown."""
    hints = {
        r"[-+]?\d+,\d+": " with a decimal point",
        r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}.*": ", such as days since the first date",
        r"[<>≤≥~].*": ", or missing",
    }
    return next((hint for form, hint in hints.items() if re.fullmatch(form, cell)), "")


def table_rows(lines: Iterable[str], table: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and cells of a CSV table's header, and of each row that is not blank.

    Raises ValueError for a row with a NUL, for a row with more or fewer cells than the header, and
    if the table is not CSV. `table` is the table's name in messages.
    """
    rows, header = csv.reader(lines), None
    try:
        for row in rows:
            cells = [cell.strip() for cell in row]
            header = cells if header is None else header
            if not any(cells) and cells is not header:
                continue
            line = f"{table}, line {rows.line_num}"
            if len(cells) != len(header):
                raise ValueError(f"{line} has {len(cells)} columns, but the header {len(header)}")
            if any("\0" in cell for cell in cells):
                raise ValueError(f"{line} has a NUL: it is no text")
            yield rows.line_num, cells
    except csv.Error as error:
        raise ValueError(f"{table} cannot be read: {error}") from None


def table_notes(
    table: str,
    ids: Iterable[str],
    missing: Mapping[str, Sequence[tuple[int, str]]],
    times: Sequence[float],
) -> Iterator[str]:
    """Yield notes on ids that look alike, cells taken as missing, and rounded times.

    Args:
        table: the table's name.
        ids: each id once.
        missing: for each column, line and text of the cells taken as missing, except SILENT cells.
        times: times of all events, one history after another.
    """
    if pairs := alike(ids):
        (first, other), *_ = pairs
        differ = "1 pair of ids differs" if len(pairs) == 1 else f"{len(pairs)} pairs of ids differ"
        yield f"{table}: {differ} only in form: {first!r} and {other!r} are two ids"
    for column, cells in missing.items():
        (line, text), count = min(cells), len(cells)
        counted = "1 cell is" if count == 1 else f"{count} cells are"
        yield f"{table}: {counted} taken as missing in {column}: line {line}, {text!r}"
    gaps = itertools.pairwise(zip(times, array("f", times), strict=True))
    lost = sum(abs(y - x - (b - a)) > LOST * (b - a) > 0 for (a, x), (b, y) in gaps)
    if lost > LOST * len(times):
        large = f"{lost} of {len(times)} times are so large that 32 bits round their distances"
        yield f"{table}: {large}. Let the times begin near 0"


def input_name(column: str, category: str | None = None) -> str:
    """Return the name of a served model's input: `column`, or `column__category`.

    In a column's name, an underscore replaces spaces, points, hyphens and slashes. In a category,
    an underscore replaces a space only. All other characters except ASCII letters and digits are
    written as `u` and the hexadecimal code, so that no two categories have the same name.
    """
    name = re.sub(r"[ ._/-]+", "_", column).strip("_")
    name = "".join(c if c.isascii() and (c.isalnum() or c == "_") else f"u{ord(c):x}" for c in name)
    if not name or name[0].isdigit() or name == TIME:
        name = f"x{name}"
    if category is None:
        return name
    plain = (
        c if c.isascii() and c.isalnum() else "_" if c == " " else f"_u{ord(c):x}_"
        for c in category
    )
    return f"{name}__{''.join(plain)}"


def category_in(name: str) -> str:
    """Return the category in an input's name that `input_name` returned."""
    category = name.partition("__")[2]
    codes = re.compile("_u([0-9a-f]+)_|_")
    return codes.sub(lambda code: chr(int(code[1], 16)) if code[1] else " ", category)
