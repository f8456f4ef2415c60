"""The words that speech software looks up in a text, and the phones that its voices have."""

from __future__ import annotations

import codecs
import gzip
import re
import string
import unicodedata
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from serving.api._arguments import shown
from training.data.columns import columns_in, form_of, normal, unquoted_rows
from training.data.rules import encoding_hint

ARPABET_IPA, KOKORO = "arpabet-ipa", "kokoro"
_SMALL = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
# The letters beyond ASCII that sherpa-onnx 2.0 joins to words; any other is a word of its own.
_RUN = r"[0-9A-Za-z'äöüÄÖÜßáéíóúñÁÉÍÓÚÑàèùçâêîôûëïÀÈÙÇÂÊÎÔÛËÏ]+"
_WORD = re.compile(rf"{_RUN}|[^\W_]")
# Kokoro's words end at these signs only; a quote is a part of its word. Kokoro and Matcha look up a
# word with hyphens as a whole, and then Kokoro its parts.
# Chinese, Japanese, Korean and Yi letters, as sherpa-onnx bounds them.
_APART = (
    "\u1100-\u11ff\u2e80-\ua4cf\ua840-\ud7af\uf900-\ufaff\ufe30-\ufe4f\uff65-\uffdc"
    "\U00020000-\U0002ffff"
)
_WHOLE = re.compile(rf"[{_APART}]|[^ \t\r\n!,.:;?…、。，！？；：{_APART}]+")
# Signs that are alike, the first of which lists are searched by.
ALIKE = (
    "'’ʼ‘‛`´′＇ʻ\u05f3",
    "·‧\u2219\u22c5",
    '"\u05f4',
    "-\u2010\u2011\uff0d\ufe63\u05be",  # the last is the Hebrew hyphen, maqaf
)
_JOINERS = "\u200c\u200d"  # of Persian and Indic scripts
# Signs within words of any script (Unicode's UAX 29): `J` joins two letters, as in col·legi; `A` is
# an apostrophe, also at the ends of a word; `L` is a letter: the geresh, and the joiners. All other
# signs end a word.
_SIGNS = {
    **dict.fromkeys("·‧\u0387\u2219\u22c5‘‛`´′＇\u05f4", "J"),
    **dict.fromkeys("'’", "A"),
    **dict.fromkeys(f"\u05f3{_JOINERS}", "L"),
}
_PLAIN = str.maketrans({sign: signs[0] for signs in ALIKE for sign in signs[1:]})
_SPOKEN = re.compile("[LA]+(?:(?<=L)J(?=L)[LA]+)*")
_HEBREW_QUOTE = re.compile('(?<=[\u05d0-\u05ea])"(?=[\u05d0-\u05ea])')  # a gershayim, as typed
# What is no part of a word: places where it may be broken, marks of the direction of writing,
# selectors of variants, and the line that stretches an Arabic word (tatweel).
_INVISIBLE = dict.fromkeys(
    (
        *(0x00AD, 0x034F, 0x061C, 0x0640, 0x180E, 0x200B, 0x200E, 0x200F, 0xFEFF),
        *range(0x202A, 0x202F),
        *range(0x2060, 0x2070),
        *range(0xFE00, 0xFE10),
    )
)
_TONE = 7  # MeloTTS's English: the tone of a phone without stress; stress 0 to 2 has tones 8 to 10


def decoded(content: bytes, name: object) -> str:
    """Return the text of a file of some name. Raises ValueError where it is not UTF-8."""
    text = content.decode("utf-8-sig", errors="replace")
    if "\0" not in text and text.encode() == content.removeprefix(codecs.BOM_UTF8):
        return text.replace("\r\n", "\n")
    wrong = re.search("[\0\ufffd]", text)
    line = text.count("\n", 0, wrong.start() if wrong else 0) + 1
    raise ValueError(f"{name}, line {line} is not UTF-8 text{encoding_hint(content)}")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers. Raises OSError, ValueError."""
    lines = enumerate(decoded(path.read_bytes(), path).split("\n"), 1)
    return ((number, line) for number, line in lines if line.strip())


def read_columns(path: Path) -> dict[str, list[list[str]]]:
    """Return the phones of all pronunciations by word, of `WORD<TAB>PHONES`, in quotes or not.

    The file is read as training reads it: see `training.data.columns`. In dictionaries of CMUdict,
    Kaldi, MFA and pocketsphinx, the number of `word(2)`, probabilities and comments are dropped.
    Raises OSError; or ValueError for a line of another form.
    """
    data = path.read_bytes()
    text = normal(decoded(gzip.decompress(data) if path.suffix == ".gz" else data, path))
    form = form_of([text.encode()], str(path), is_list=True)
    lines = text.split("\n")
    if form.separator:
        line = shown(next(filter(str.strip, lines)).strip())
        hint = f"To write tabs: {form.repair}"
        raise ValueError(f"{path} has {form.separator} instead of tabs, as in {line}. {hint}")
    if form.doubt:
        raise ValueError(f"{path}: {form.doubt}")
    if form.quoted:
        try:
            lines = "".join(unquoted_rows(f"{line}\n" for line in lines)).split("\n")
        except ValueError as error:
            raise ValueError(f"{path}, {error}") from None
    rows: dict[str, list[list[str]]] = {}
    for number, line in enumerate(lines, 1):
        word, phones = columns_in(line, form, 2)
        if bool(word) != bool(phones):
            expected = "two columns with a tab between them, the second of phones"
            raise ValueError(f"{path}, line {number} needs {expected}, but it is {shown(line)}")
        if word:
            rows.setdefault(word, []).append(phones.split())
    return rows


def read_tokens(path: Path) -> frozenset[str]:
    """Return the tokens of a voice, `tokens.txt` of sherpa-onnx: a token and its number a line.

    Raises OSError, or ValueError for a file of another form.
    """
    tokens = set()
    for number, line in _lines(path):
        if not (match := re.fullmatch(r"(\S*)[ \t]+\d+\s*", line)):
            expected = "a token and its number, as in a voice's tokens.txt"
            raise ValueError(f"{path}, line {number} needs {expected}, but it is {shown(line)}")
        tokens.add(match[1] or " ")
    if not tokens:
        raise ValueError(f"{path} has no tokens")
    return frozenset(tokens)


class Phones:
    """Converts phones to the tokens of a voice.

    Args:
        maps: files of `PHONE<TAB>PHONES` that rename phones one after another; `arpabet-ipa` and
            `kokoro` are built in.
        tokens: the voice's `tokens.txt`; None accepts every phone.
        tones: whether each phone has a tone, as MeloTTS's English voices want it.
        single: whether tokens must be single characters, as Kokoro's are.

    Raises OSError, or ValueError for files of another form.
    """

    def __init__(
        self, maps: Sequence[str], tokens: str | None, tones: bool = False, single: bool = False
    ) -> None:
        built_in = {name: Path(__file__).with_name(f"{name}.tsv") for name in (ARPABET_IPA, KOKORO)}
        files = [built_in.get(name, Path(name)) for name in maps]
        self._maps = [{x: rows[-1] for x, rows in read_columns(file).items()} for file in files]
        self._tokens, self._tones = read_tokens(Path(tokens)) if tokens else None, tones
        long = [x for x in sorted(self._tokens or []) if len(unicodedata.normalize("NFC", x)) > 1]
        if long := [token for token in long if single and not token.startswith("<")]:
            raise ValueError(
                f"{tokens} is not of a Kokoro voice, whose tokens are single characters. It has: "
                f"{long[0]!r}. Choose the --voice that these tokens belong to"
            )
        self._longest = max(map(len, self._tokens or [""]))
        self._parts = dict[str, list[str]]()  # of the phones so far

    def write(self, phones: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the tokens of phones, and the phones that the voice has no tokens for.

        A phone in NFC and in NFD is the same phone. A voice without ɝ or ɚ gets ɜɹ or əɹ. Tones
        follow all tokens.
        """
        for names in self._maps:
            phones = [new for old in phones for new in names.get(old, [old])]
        tokens, lacking, tones = [], [], []
        for phone in phones:
            name, tone = _toned(phone) if self._tones else (phone, 0)
            parts = self._parts.get(name)
            if parts is None:
                forms = [name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD"))]
                forms += [name.replace("ɝ", "ɜɹ").replace("ɚ", "əɹ")]
                parts = self._parts[name] = next(filter(None, map(self._split, forms)), [])
            tokens += parts
            tones += [str(tone)] * len(parts)
            lacking += [] if parts else [phone]
        return tokens + tones if self._tones else tokens, lacking

    def _split(self, phone: str) -> list[str]:
        """Return a phone as tokens of the voice, with the longest possible first token; else []."""
        if self._tokens is None or phone in self._tokens:
            return [phone]
        size = len(phone)
        ends = [0] * size + [size]  # of the first token from each place on; 0 if there is no split
        for start in range(size - 1, -1, -1):
            for end in range(min(size, start + self._longest), start, -1):
                if ends[end] and phone[start:end] in self._tokens:
                    ends[start] = end
                    break
        tokens, start = list[str](), 0
        while start < size and ends[start]:
            tokens.append(phone[start : ends[start]])
            start = ends[start]
        return tokens


def _toned(phone: str) -> tuple[str, int]:
    """Return a phone of CMUdict as MeloTTS writes it, and its tone."""
    name = phone.rstrip("012")
    return name.lower(), _TONE + (int(phone[-1]) + 1 if name != phone else 0)


def small(text: str, voice: str) -> str:
    """Return a text in small letters as a voice makes them: VITS changes those of ASCII alone."""
    if voice == "vits":
        return text.translate(_SMALL)
    return "".join(each.lower()[0] for each in text)  # as many letters as before, and no final ς


def words_of(text: str, voice: str = "vits", listed: Container[str] = ()) -> dict[str, str]:
    """Return the words of a text that a voice of sherpa-onnx 2.0 looks up, as they stand in it.

    The keys are the words as the voice looks them up, in small letters: see `small`.

    - Kokoro: spaces, commas and similar signs, and hyphens end a word. Each Chinese or Japanese
      letter is a word. Quotes and brackets are parts of words. A word with hyphens is looked up
      first as a whole; it is returned if `listed` has it.
    - VITS and MeloTTS: every sign but the apostrophe ends a word. A letter that French, German and
      Spanish lack is a word of its own.
    - Matcha: as Kokoro if phones are written with several letters, else as VITS. Both are returned,
      and words with hyphens as a whole, too: the voice does not look up their parts.

    Marks are joined to their letters.
    """
    text = unicodedata.normalize("NFC", text)
    words: list[str] = []
    if voice != KOKORO:
        spans = _WORD.finditer(text if voice == "matcha" else small(text, voice))
        words += [text[match.start() : match.end()] for match in spans]
    for whole in _WHOLE.findall(text) if voice in (KOKORO, "matcha") else ():
        if voice == "matcha" or plain(small(whole, voice)) in listed:
            words.append(whole)
        words += whole.split("-")
    found: dict[str, str] = {}
    for word in words:
        if any(map(str.isalnum, word)):
            found.setdefault(small(word, voice), word)
    return found


def is_apart(word: str, voice: str) -> bool:
    """Return whether a voice never looks up a word, but drops it or reads it letter by letter."""
    others = "" if voice == KOKORO else re.sub(_RUN, "", word)
    return word not in words_of(word, voice, [word]) or any(map(str.isalnum, others))


def visible(text: str) -> str:
    """Return a text in NFC, without white space at its ends and without invisible characters."""
    return unicodedata.normalize("NFC", text.translate(_INVISIBLE)).strip()


def plain(word: str) -> str:
    """Return the form of a word that lists are searched by: visible, with straight apostrophes."""
    return visible(word).translate(_PLAIN)


def joined(word: str) -> str:
    """Return a word without the joiners of Persian and Indic scripts, which many texts lack."""
    return word.translate(dict.fromkeys(map(ord, _JOINERS)))


def spoken_words(
    text: str, listed: Iterable[str] = (), lower: Callable[[str], str] = str.lower
) -> list[str]:
    """Return the words of a text in any script, each once: see `all_words`."""
    return list(dict.fromkeys(all_words(text, listed, lower)))


def all_words(
    text: str, listed: Iterable[str] = (), lower: Callable[[str], str] = str.lower
) -> list[str]:
    """Return the words of a text in any script, in order and in small letters.

    Apostrophes are parts of words, at their ends too, where a list decides whether they are quotes:
    see `spellings`. Middle dots, geresh and gershayim join letters. All other signs end a word,
    except in a word of the list, which is found as it stands: `bo-ki`. Soft hyphens and other
    invisible places to break a word are dropped.

    Args:
        text: the text.
        listed: the words of a list.
        lower: makes letters small.
    """
    text = unicodedata.normalize("NFC", lower(text.translate(_INVISIBLE)))
    known = (plain(lower(word)) for word in listed)
    signed = {word for word in known if _words(word) != [word] and len(word.split()) == 1}
    lengths: dict[str, set[int]] = {}  # of the words that begin with a sign or letter
    for word in signed:
        lengths.setdefault(word[0], set()).add(len(word))
    longest_first = {first: sorted(each, reverse=True) for first, each in lengths.items()}
    words = []
    for part in text.split():
        words += _listed_words(part, signed, longest_first) if signed else _words(part)
    return words


def _words(text: str) -> list[str]:
    """Return the words of a text, without any that has no letter or digit."""
    spans = (match.span() for match in _SPOKEN.finditer(_kinds(text)))
    words = (text[start:end].rstrip("’") for start, end in spans)
    return [word for word in words if any(map(str.isalnum, word))]


def _kinds(text: str) -> str:
    """Return a letter for each character: `L`, `A` or `J` as in `_SIGNS`, or a space."""
    kinds = (
        _SIGNS.get(c) or ("L" if unicodedata.category(c)[0] in "LMN" else " ")
        for c in _HEBREW_QUOTE.sub("\u05f4", text)
    )
    return "".join(kinds)


def _listed_words(
    part: str, signed: Container[str], lengths: Mapping[str, Sequence[int]]
) -> list[str]:
    """Return the words of a part of a text without spaces.

    A listed word is not found within another word. If it begins or ends with a sign, no letter is
    next to the sign: "1937-ben" does not have the word "-ben".

    Args:
        part: the part.
        signed: listed words with signs.
        lengths: by first character, the lengths of these words, the longest first.
    """
    kinds, size = f" {_kinds(part)} ", len(part)
    if {*kinds[1:-1]} <= {"L", "A"}:
        return _words(part)
    inside = {n for match in re.finditer("(?<=L)[AJ]?(?=L)", kinds[1:-1]) for n in match.span()}
    places = [n for n in range(size + 1) if n not in inside]
    starts = [n for n in places if kinds[n] != "L" or kinds[n + 1] == "L"]
    ends = {n for n in places if kinds[n + 1] != "L" or kinds[n] == "L"}
    flat = part.translate(_PLAIN)  # as long as before
    words, done = list[str](), 0
    for start in starts:
        for length in lengths.get(flat[start : start + 1], ()) if start >= done else ():
            end = start + length
            if end in ends and flat[start:end] in signed:
                words += [*_words(part[done:start]), part[start:end]]
                done = end
                break
    return words + _words(part[done:])


def spellings(word: str) -> list[str]:
    """Return a word as it is, without signs at its start, at its end, and at both.

    Signs are quotes of all kinds, brackets, dashes.
    """
    if word.isalpha():
        return [word] * 4
    inside = [n for n, kind in enumerate(_kinds(word)) if kind == "L"] or [len(word)]
    first, end = inside[0], inside[-1] + 1
    return [word, word[first:], word[:end], word[first:end]]
