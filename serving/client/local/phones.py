"""The phones of a voice: renamed by a map, and split into the tokens that the voice has."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

from serving.client.arguments import shown

ARPABET_IPA = "arpabet-ipa"
# CMUdict's 39 phones. Piper's and Kokoro's voices have no ɝ, see `Phones.write`.
_IPA = """AA ɑ AE æ AH ʌ AO ɔ AW aʊ AY aɪ B b CH tʃ D d DH ð EH ɛ ER ɝ EY eɪ F f G ɡ HH h IH ɪ IY i
JH dʒ K k L l M m N n NG ŋ OW oʊ OY ɔɪ P p R ɹ S s SH ʃ T t TH θ UH ʊ UW u V v W w Y j Z z ZH ʒ"""
_UNSTRESSED = {"AH": "ə", "ER": "ɚ"}


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
    """Return the phones of all pronunciations by word, from a file of `WORD<TAB>PHONES`.

    Raises OSError, or ValueError for another line.
    """
    rows: dict[str, list[list[str]]] = {}
    expected = "two columns with a tab between them, the second of phones"
    for match in _matches(path, r" *([^\t]*\S) *\t([^\t]*\S[^\t]*)", expected):
        rows.setdefault(match[1], []).append(match[2].split())
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
