"""The form of a file's columns, found from all of its lines, and the columns of its lines.

Training and the client read with this module; the client has a copy. Quotes are the quotes of
spreadsheets. A pronouncing dictionary has notes that are not read: see `training.data._lists`.
"""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from training.command.visible import visible
from training.data._lists import Notes, split_entry
from training.data.separators import separator_of, separator_of_list, tabs_command

NEARLY_ALL = 0.99
WHOLE = "two files, as parallel:SOURCE,TARGET, are read as they are"
QUOTED = "columns are in quotes, which are not read"
UNREAD = "whose numbers as in word(2), probabilities and comments are not read"
MOST_DOUBTED = 0.25  # texts with wrong quotes for each quoted text, up to which quotes are in doubt
MOST_WRONG = 1000  # texts with wrong quotes, after which quotes are no longer counted
LARGEST_ALPHABET = 250  # different phones
# The pattern begins with a literal quote, for speed. `Quotes.add` puts a line end before the text.
_QUOTED = re.compile(r'"(?<=[\t\n]")((?:[^"]|"")*)"(?=[\t\r\n]|$)')
_HEAD, _HEAD_BYTES = 20_000, 1 << 20  # lines, and bytes of a block, in which the form is searched
MAX_LINES_WITHOUT_TAB = 0.1  # share; with more, another separator is searched


class Form(NamedTuple):
    """How a file writes its columns."""

    quoted: bool = False  # whether columns are in quotes, as spreadsheets write them
    # notes of a pronouncing dictionary, which are no part of a column
    dictionary: Notes | None = None
    separator: str = ""  # name of the signs that the file has instead of tabs
    repair: str = ""  # the command that writes the file with tabs, if it has a separator
    doubt: str = ""  # why quotes may be read wrongly
    notes: tuple[str, ...] = ()  # messages for people: the parts that are not read


def form_of(blocks: Iterable[bytes], name: str, is_list: bool = False) -> Form:
    """Return the form of a file.

    Args:
        blocks: the file's bytes, in blocks of whole lines.
        name: of the file, for notes.
        is_list: whether the file is known to be a list of words with their phones.
    """
    quotes, lines, form, notes = Quotes(), list[str](), Form(), list[str]()
    returns = 0
    for data in blocks:
        quotes.add(data)
        returns += data.count(b"\r") - data.count(b"\r\n")
        if len(lines) < _HEAD:
            text = normal(data[:_HEAD_BYTES].decode(errors="replace"))
            lines += text.replace('"', "").split("\n")
    lines = [line for line in lines[:_HEAD] if line.strip()]
    tabless = [line for line in lines if "\t" not in line.strip()]
    dictionary, separator = Notes.of(lines) if is_list else _dictionary(lines), ""
    if len(tabless) > MAX_LINES_WITHOUT_TAB * len(lines):
        separator = (separator_of_list if dictionary else separator_of)(tabless)
    if separator:
        first_only = dictionary is not None and not quotes.inside
        form = Form(separator=separator, repair=tabs_command(separator, name, first_only))
    elif dictionary:
        form = Form(dictionary=dictionary)
        if any(dictionary.entry(line) != split_entry(line) for line in lines):
            notes.append(f"{name}: a pronouncing dictionary, {UNREAD}; {WHOLE}")
    if quoted := quotes.are_form():
        notes.append(f"{name}: {QUOTED}; {WHOLE}")
    elif returns > 0:
        notes.append(f"{name}: {returns:,} CR within lines end none, and are read as spaces")
    doubt = quotes.doubt()
    if doubt:
        notes.append(f"{name}: {doubt}")
    return form._replace(quoted=quoted, doubt=doubt, notes=tuple(notes))


def normal(text: str) -> str:
    """Return a text of several lines in NFC, without the byte order marks of joined files."""
    return unicodedata.normalize("NFC", text.replace("\ufeff", ""))


def unquoted_rows(lines: Iterable[str], delimiter: str = "\t") -> Iterator[str]:
    """Yield the unquoted rows of a spreadsheet, with tabs between columns and single spaces.

    Each row ends with as many line feeds as it has in the file, so that line numbers stay correct.
    Raises ValueError, with the line's number, for a row that is too long.
    """
    reader, before = csv.reader(lines, delimiter=delimiter), 0
    try:
        for columns in reader:
            row = "\t".join(" ".join(text.split()) for text in columns)
            yield row + "\n" * (reader.line_num - before)
            before = reader.line_num
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}") from None


def columns_in(line: str, form: Form, width: int | None = None) -> list[str]:
    """Return at most `width` columns of a line in NFC, with single spaces."""
    line = "\t".join(form.dictionary.entry(line)) if form.dictionary else line
    return [" ".join(column.split()) for column in line.split("\t")[:width]]


class Quotes:
    """Whether a file's columns are in quotes, as spreadsheets write them.

    They are if rule 1 holds, and rule 2 or rule 3:

    1. Nearly every text with a quote is itself in quotes, with inner quotes doubled:
       `"a ""b"" c"`, not `a "b" c`.
    2. Nearly all texts are in quotes: `"yes" TAB "oui"`.
    3. Some text in quotes contains doubled quotes, a tab or a line end: `"yes TAB no"`. A text with
       both a tab and a line end does not count, because its quotes may belong to two texts:
       `"yes TAB oui LF no"`.
    """

    def __init__(self) -> None:
        self.inside = self.wrong = self.others = self.special = 0
        self._example = ""  # the first text with a wrong quote

    def add(self, data: bytes) -> None:
        """Count the columns of some lines, in quotes and not."""
        if b'"' not in data or self.wrong > MOST_WRONG + self.inside:
            self.others += data.count(b"\t") + data.count(b"\n")
            return
        text = "\n" + data.decode(errors="replace").replace("\ufeff", "")
        inside, plain = _QUOTED.findall(text), _QUOTED.sub("", text)
        others = [field for field in re.split(r"[\t\n]", plain) if field.strip()]
        self.inside, self.others = self.inside + len(inside), self.others + len(others)
        wrong = [field for field in others if '"' in field]
        self.wrong, self._example = self.wrong + len(wrong), self._example or "".join(wrong[:1])
        self.special += sum('""' in field or ("\t" in field) != ("\n" in field) for field in inside)

    def are_form(self) -> bool:
        """Return whether quotes enclose the file's columns, and so are no part of the texts."""
        right = self.inside and self.inside >= NEARLY_ALL * (self.inside + self.wrong)
        nearly_all = self.inside >= NEARLY_ALL * (self.inside + self.others)
        return bool(right and (self.special or nearly_all))

    def doubt(self) -> str:
        """Return a message if a few texts with wrong quotes keep all quotes in the texts; else "".

        Quotes are in doubt if rule 2 or 3 would nearly hold without the pairs of these texts.
        """
        few = 0 < self.wrong <= MOST_DOUBTED * self.inside
        most = self.others - 2 * self.wrong <= MOST_DOUBTED * self.inside
        if self.are_form() or not few or not (self.special or most):
            return ""
        texts = "1 text has a quote" if self.wrong == 1 else f"{self.wrong:,} texts have quotes"
        return (
            f"quotes around {self.inside:,} texts are read as parts of them, because {texts} of "
            "another form: "
            f"{visible(self._example.strip(), 40)}. If a spreadsheet wrote them, correct this text"
        )


def _dictionary(lines: Sequence[str]) -> Notes | None:
    """Return the notes of a pronouncing dictionary; None for lines of any other file.

    Each line of a dictionary is a word and symbols of a small alphabet, two or more on average.
    Without tabs, symbols must be short and each symbol must occur four times on average.
    """
    notes = Notes.of(lines)
    entries = [each for line in lines if any(each := notes.entry(line))]
    words = [word for word, _ in entries]
    symbols = [symbol for _, phones in entries for symbol in phones.split()]
    alphabet = set(symbols)
    tabs = any("\t" in line for line in lines)
    used = 1 if tabs else 4
    found = (
        len(words) > 0
        and sum(" " not in word for word in words) >= 0.95 * len(words)
        and max(2 * len(words), used * len(alphabet)) <= len(symbols)
        and len(alphabet) <= LARGEST_ALPHABET
        and (tabs or max(map(len, alphabet)) <= 4)
    )
    return notes if found else None
