"""The form of a file's columns, found from all of its lines, with notes on parts left unread.

Quotes are those of spreadsheets. A pronouncing dictionary, of CMUdict, Kaldi, MFA or pocketsphinx,
has notes that are not learned: `word(2)`, probabilities, comments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from training.data.rules import COMMENT, PROBABILITIES, VARIANT

NEARLY_ALL = 0.99
QUOTED = "columns are in quotes, which are not read"
MOST_WRONG = 1000  # texts with quotes of another form, after which no more are counted
LARGEST_ALPHABET = 250  # of phones
# The pattern begins with a plain quote, for speed; callers put a line end before the text.
_QUOTED = re.compile(r'"(?<=[\t\n]")((?:[^"]|"")*)"(?=[\t\r\n]|$)')
_HEAD, _HEAD_BYTES = 20_000, 1 << 20  # lines that show whether a file is a dictionary
_SEPARATORS = {"semicolons": ";", "commas": ",", "bars": r"\|", "spaces": r"\S  +\S|^\S+ \S+$"}
_NAMES = """source target src tgt trg input output text label word words phone phones phonemes ipa
sentence translation pronunciation reference question answer prompt response lemma form english
french german spanish italian chinese japanese russian portuguese dutch latin
en fr de es it zh ja ru pt nl pl sv ko ar tr cs fi la"""
_HEADER = frozenset(_NAMES.split())


class Form(NamedTuple):
    """How a file writes its columns."""

    quoted: bool = False  # in quotes, as spreadsheets write them
    dictionary: bool = False  # as a pronouncing dictionary, whose notes are no part of a column
    separator: str = ""  # what stands where tabs should
    notes: tuple[str, ...] = ()  # for people: the parts that are not read


def form_of(blocks: Iterator[bytes], name: str) -> Form:
    """Return the form of a file, whole lines at a time; `name` is the file's, in notes."""
    quotes, lines, form, notes = Quotes(), list[str](), Form(), list[str]()
    for data in blocks:
        quotes.add(data)
        if len(lines) < _HEAD:
            lines += data[:_HEAD_BYTES].decode(errors="replace").replace('"', "").split("\n")
    lines = [line for line in lines[:_HEAD] if line.strip()]
    if dictionary := _is_dictionary(lines):
        searches: dict[str, Callable[[str], object]] = {
            "numbers as in word(2)": lambda line: VARIANT.search(_split(line)[0]),
            "probabilities": lambda line: PROBABILITIES.match(_split(line)[1]),
            "comments": COMMENT.search,
        }
        if unread := [note for note, search in searches.items() if any(map(search, lines))]:
            notes.append(
                f"{name}: a pronouncing dictionary, whose {', '.join(unread)} are not read"
            )
    elif 2 * sum("\t" in line for line in lines) < len(lines):
        for separator, sign in _SEPARATORS.items():
            if sum(bool(re.search(sign, line.rstrip())) for line in lines) > 0.9 * len(lines):
                form = Form(separator=separator)
                break
    if quoted := quotes.are_form():
        notes.append(f"{name}: {QUOTED}")
    return form._replace(quoted=quoted, dictionary=dictionary, notes=tuple(notes))


class Quotes:
    """Whether columns are in quotes as spreadsheets write them.

    In such a file every text with a quote is itself in quotes, with inner quotes doubled. Beside
    that, nearly all texts are in quotes, or some have doubled quotes, or tabs or line ends inside;
    not both, for whole lines may stand between two quotes.
    """

    def __init__(self) -> None:
        self.inside = self.wrong = self.others = self.special = 0

    def add(self, data: bytes) -> None:
        """Count the columns of some lines."""
        if b'"' not in data or self.wrong > MOST_WRONG + self.inside:
            self.others += data.count(b"\t") + data.count(b"\n")
            return
        text = "\n" + data.decode(errors="replace").replace("\ufeff", "")
        inside, plain = _QUOTED.findall(text), _QUOTED.sub("", text)
        others = [field for field in re.split(r"[\t\n]", plain) if field.strip()]
        self.inside, self.others = self.inside + len(inside), self.others + len(others)
        self.wrong += sum('"' in field for field in others)
        self.special += sum('""' in field or ("\t" in field) != ("\n" in field) for field in inside)

    def are_form(self) -> bool:
        """Return whether quotes are no part of the columns of a file."""
        right = self.inside and self.inside >= NEARLY_ALL * (self.inside + self.wrong)
        nearly_all = self.inside >= NEARLY_ALL * (self.inside + self.others)
        return bool(right and (self.special or nearly_all))


def entry(line: str) -> str:
    """Return a dictionary's line as word TAB phones, without its notes; "" for a comment alone."""
    word, phones = _split(COMMENT.sub("", line))
    return f"{VARIANT.sub('', word)}\t{PROBABILITIES.sub('', phones)}" if phones else word


def _split(line: str) -> Sequence[str]:
    word, _, rest = line.partition("\t" if "\t" in line else " ")
    return word.strip(), rest.strip()


def _is_dictionary(lines: Sequence[str]) -> bool:
    """Whether each line is a word and symbols of a small alphabet, mostly several.

    Without tabs the symbols must be short and repeat often.
    """
    if 2 * sum("#" in line.split() for line in lines) > len(lines):
        return False  # "#" is a phone
    entries = [each.partition("\t") for line in lines if (each := entry(line))]
    words, symbols = (
        [word for word, _, _ in entries],
        [x for *_, phones in entries for x in phones.split()],
    )
    alphabet = set(symbols)
    tabs = any("\t" in line for line in lines)
    used = 1 if tabs else 4
    return (
        len(words) > 0
        and sum(" " not in word for word in words) >= 0.95 * len(words)
        and max(2 * len(words), used * len(alphabet)) <= len(symbols)
        and len(alphabet) <= LARGEST_ALPHABET
        and (tabs or max(map(len, alphabet)) <= 4)
    )


def is_header(columns: Sequence[str]) -> bool:
    """Whether the columns of a first line are names of columns."""
    return len(columns) > 1 and {column.lower() for column in columns[:2]} <= _HEADER
