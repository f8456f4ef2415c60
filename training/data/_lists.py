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
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from training.data.separators import rewriting

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
_IPA = re.compile("[\u0250-\u02ff\u1d00-\u1dbf\u0361]")  # signs of IPA that no alphabet has
_SAMPA = re.compile(r'[{}"]|@(?![\w-]+\.\w)')  # signs of X-SAMPA, which is IPA in ASCII; no e-mail
_CLOSING = {"/": "/", "[": "]", "\\": "\\", "<": ">", "{": "}", "(": ")", "|": "|"}
_JOINING = ".-_,;|+/"  # signs that some lists have between phones, in place of spaces
_COUNTED = re.compile(r"(\S+) \d+")  # a word and a number
_PERL_WORD = r"^(.*\t|\S+\s+)"  # what stands before the phones of a line
_MOST_NAMED = 10  # phones of a message


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
