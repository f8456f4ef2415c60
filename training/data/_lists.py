r"""The entries of pronouncing dictionaries: words and phones, without the notes of other programs.

Training and the client read lists of words with this module and `training.data.columns`. The client
has a copy of both. These programs write dictionaries:

    read(2)  R EH1 D         CMUdict, pocketsphinx; "(2)" is a second pronunciation
    read R EH1 D # past      CMUdict from version 0.7b on
    read 0.25\tR EH1 D       Kaldi's lexiconp.txt, also without a tab
    read\t0.25\tR EH1 D      Montreal Forced Aligner (MFA), with one to four numbers
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

COMMENT = re.compile(r"^(?:;;;|##|(?:#|;|//) ).*|\s+(?:#|//)(?=\s*\S).*")
VARIANT = re.compile(r"(?<=\S)\s*(?:\(\d+\)|\[[^\[\]]*\])$")  # word(2), word[en]
APART = re.compile(r"^\(\d+\)\s+")  # in WORD  (2), the part after the space
PROBABILITIES = re.compile(r"^\s*(?:(?:\d*\.\d+|\d+(?=e-))(?:e-?\d+)?[\t ]+|[01]\t)+")
_NUMBER = re.compile(r"(?:\d+[.,]?\d*|[.,]\d+)(?:e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_FRACTION = re.compile("[.,eE]")  # in a number
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_NEARLY_ALL = 0.95  # share of entries with a number, from which on the number is no phone
_FEWEST = 4  # entries, from which on whole numbers before phones can be probabilities
_HALF = 0.5  # share of entries with a fraction before the tab, from which on these are notes


class Notes(NamedTuple):
    """The notes of a pronouncing dictionary."""

    comments: bool = True  # whether "#" and "//" begin comments; otherwise "#" and "//" are phones
    numbers: int = 0  # how many numbers nearly all entries have before the phones
    before_tab: int = 0  # how many numbers nearly all entries have between the word and the tab

    @classmethod
    def of(cls, lines: Sequence[str]) -> Notes:
        """Return the notes of a dictionary with these lines, none of them blank."""
        said = [match[0].split() for line in lines if (match := COMMENT.search(line))]
        most = max((len(token) for _, *tokens in said for token in tokens), default=0)
        notes = cls(comments=2 * len(said) <= len(lines) or most > 3)
        plain = [notes._without_comment(line) for line in lines]
        # Probabilities have decimal points, or are 0 and 1. Words and phones can be numbers, too.
        before = [line.partition("\t")[0].split()[::-1] for line in plain if "\t" in line]
        for share in (_NEARLY_ALL, _HALF):
            count, found, words = _usual_numbers([row for row in before if row], share)
            spelled = 2 * sum(any(map(str.isalpha, word)) for word in words) > len(words)
            whole = share == _NEARLY_ALL and found <= {"0", "1"}
            if count and spelled and (whole or any(map(_FRACTION.search, found))):
                notes = notes._replace(before_tab=count)
                break
        rows = [phones.split() for line in plain if (phones := notes._split(line)[1])]
        count, found, others = _usual_numbers(rows)
        whole = found <= {"0", "1"} and not others & {"0", "1"} and len(rows) >= _FEWEST
        if whole or any(map(_FRACTION.search, found)):
            notes = notes._replace(numbers=count)
        return notes

    def entry(self, line: str) -> tuple[str, str]:
        """Return the word and the phones of a line; both are empty if the line is a comment."""
        word, phones = self._split(self._without_comment(line))
        if self.numbers and _leading_numbers(phones.split()) >= self.numbers:
            phones = phones.split(None, self.numbers)[self.numbers]
        return VARIANT.sub("", word) if phones else word, PROBABILITIES.sub("", phones)

    def _without_comment(self, line: str) -> str:
        return COMMENT.sub("", line) if self.comments else line

    def _split(self, line: str) -> tuple[str, str]:
        """Return the word of a line and what follows it, without numbers before the tab."""
        word, phones = map(_unquoted, split_entry(line))
        if self.before_tab and "\t" in line and len(word.split()) > self.before_tab:
            word, *numbers = word.rsplit(None, self.before_tab)
            word = word if all(map(_NUMBER.fullmatch, numbers)) else " ".join([word, *numbers])
        return word, APART.sub("", phones)


def split_entry(line: str) -> tuple[str, str]:
    """Return the text before the first tab, or else white space, and the text after it."""
    if "\t" in line:
        word, _, rest = line.strip(" ").partition("\t")
    else:
        word, rest = [*line.split(None, 1), "", ""][:2]
    return word.strip(), rest.strip()


def _unquoted(cell: str) -> str:
    """Return a cell without quotes around it, which spreadsheets write."""
    quoted = _QUOTED.fullmatch(cell)
    return quoted[1].replace('""', '"') if quoted else cell


def _leading_numbers(parts: Sequence[str]) -> int:
    """Return how many numbers come first; the last part is none of them."""
    others = (n for n, part in enumerate(parts[:-1]) if not _NUMBER.fullmatch(part))
    return next(others, len(parts) - 1)


def _usual_numbers(
    rows: Sequence[Sequence[str]], share: float = _NEARLY_ALL
) -> tuple[int, set[str], set[str]]:
    """Return how many numbers a share of the rows begins with, these numbers, and other parts."""
    counts = sorted(map(_leading_numbers, rows)) or [0]
    count = counts[int((1 - share) * len(counts))]
    with_numbers = [row for row in rows if _leading_numbers(row) >= count]
    return (
        count,
        {part for row in with_numbers for part in row[:count]},
        {part for row in with_numbers for part in row[count:]},
    )
