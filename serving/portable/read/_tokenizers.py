"""The tokenizers of an export, and the words of a text, without TensorFlow."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from serving.portable.read._manifest import read_vocabulary
from training.data.letters import DOTLESS, is_syllable, letters_of, with_small
from training.data.rules import (
    ALPHABETS,
    END_ID,
    MARK,
    SHOWN,
    UNK_ID,
    WORD,
    clean,
    goes_on,
    pattern,
)


class Tokenizer(Protocol):
    """Converts texts to token ids and back; `kind` is how texts are split, `size` the id count."""

    kind: str
    size: int

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without START and END."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""

    def token(self, number: int) -> str:
        """Return the token of an id: "" for PAD, START and END."""


def load_tokenizer(folder: Path, entry: dict[str, Any]) -> Tokenizer:
    """Return the tokenizer of a manifest's entry. Raises ValueError if its file does not fit."""
    if entry["kind"] != "sentencepiece":
        return Vocabulary(read_vocabulary(folder, entry))
    path = folder / entry["file"]
    try:
        tokenizer = SentencePiece(path)
        tokenizer.encode(["."])
    except (OSError, RuntimeError, TypeError, ValueError) as error:  # sentencepiece's
        raise ValueError(f"{path} cannot be read: {error}".splitlines()[0]) from None
    if tokenizer.size != entry["size"]:
        raise ValueError(f"{path} expected {entry['size']} tokens. Received: {tokenizer.size}")
    return tokenizer


def without_special(ids: Iterable[int]) -> list[int]:
    """Return the ids of a decoder's tokens up to the end, without special ones."""
    return [number for number in itertools.takewhile(END_ID.__ne__, ids) if number > END_ID]


class SentencePiece:
    """Subwords."""

    kind = "sentencepiece"

    def __init__(self, path: Path) -> None:
        import sentencepiece  # the other kinds do without

        self._pieces = sentencepiece.SentencePieceProcessor(model_file=str(path))
        self.size = self._pieces.get_piece_size()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self._pieces.encode(list(map(clean, texts)), num_threads=1)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._pieces.decode(list(ids))
        return text

    def token(self, number: int) -> str:
        token: str = self._pieces.id_to_piece(number) if number > END_ID else SHOWN[number]
        return token


class Vocabulary:
    """Words, characters, letters or symbols, looked up in a list."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.kind, tokens = state["kind"], state["tokens"]
        self._copies = state.get("copies", False)
        self._has_letters = self.kind in ALPHABETS and not self._copies
        self._tokens = [*SHOWN, *tokens]
        self.size = len(self._tokens)
        self._ids = {token: number for number, token in enumerate(tokens, END_ID + 1)}
        # Tables of `training.data.letters`; None in the files of earlier versions.
        self._cases: dict[str, str] | None = state.get("cases")
        self._known = frozenset(state["known"]) if "known" in state else None
        if self.kind == "words":
            classes = {name: _ranges(runs) for name, runs in state["characters"].items()}
            ideograph, letter = (f"[{classes[name]}]" for name in ("ideographs", "letters"))
            self._spaces = re.compile(f"[{classes['spaces']}]+")
            self._words = re.compile(pattern(WORD, ideograph, letter))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """See `Tokenizer`; if the model copies, an unknown token is `size` + its first place."""
        return [self._encode(self.split(text)) for text in texts]

    def _encode(self, tokens: list[str]) -> list[int]:
        if self._has_letters:  # a capital that training never saw is a small letter
            return [self._ids.get(x, self._ids.get(self._small(x), UNK_ID)) for x in tokens]
        if not self._copies:
            return [self._ids.get(token, UNK_ID) for token in tokens]
        first: dict[str, int] = {}
        for place, token in enumerate(tokens):
            first.setdefault(token, place)
        return [self._ids.get(token, self.size + first[token]) for token in tokens]

    def lower(self, text: str) -> str:
        """Return a text in small letters: those of Turkish if the tokens have ı but no I."""
        if self._cases and self._cases.get("I") == DOTLESS:
            text = unicodedata.normalize("NFC", text).replace("İ", "i").replace("I", DOTLESS)
        return text.lower()

    def _small(self, letter: str) -> str:
        return letter.lower() if self._cases is None else self._cases.get(letter, letter)

    def unknown(self, text: str) -> str:
        """Return the letters of a text that training never saw, each once."""
        if not self._has_letters:
            return ""
        if self._known is not None:
            letters = dict.fromkeys(letters_of(clean(text)))
            return "".join(letter for letter in letters if not self._is_known(letter))
        tokens = self.split(text)
        numbers = zip(tokens, self._encode(tokens), strict=True)
        return "".join(dict.fromkeys(token for token, number in numbers if number == UNK_ID))

    def _is_known(self, letter: str) -> bool:
        """Return whether training saw a letter in NFC, or the parts of a Korean syllable."""
        if self.kind == "letters" and is_syllable(letter):
            return all(part in self._ids for part in unicodedata.normalize("NFD", letter))
        return self._known is not None and letter in self._known

    def split(self, text: str) -> list[str]:
        """Return the tokens of a text as they stand in it."""
        text = clean(text)
        if self.kind in ALPHABETS:
            text = unicodedata.normalize("NFD", text) if self.kind == "letters" else text
            return list(
                with_small(text, self._cases or {}, self._ids) if self._has_letters else text
            )
        if self.kind == "symbols":
            return text.split(" ") if text else []
        text = self._spaces.sub(" ", text).strip(" ")
        return self._words.findall(f" {text}".replace(" ", MARK)) if text else []

    def decode(self, ids: Sequence[int]) -> str:
        return self.join([self._tokens[number] for number in ids])

    def join(self, tokens: Sequence[str]) -> str:
        """Return the text of tokens."""
        if self.kind == "symbols":
            return " ".join(tokens)
        text = "".join(tokens)
        if self.kind == "letters":
            return unicodedata.normalize("NFC", text)
        return text.replace(MARK, " ").strip(" ") if self.kind == "words" else text

    def token(self, number: int) -> str:
        return self._tokens[number]


def _ranges(runs: Iterable[Sequence[int]]) -> str:
    """Return runs of code points as the inside of a character class."""
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in runs)


class Words:
    """Joins tokens to words; a token that begins with a character of `inside` continues a word."""

    def __init__(self, tokenizer: Tokenizer, inside: str) -> None:
        self._kind = tokenizer.kind
        special = END_ID + 1
        tokens = [tokenizer.token(number) for number in range(special, tokenizer.size)]
        self._texts = [""] * special + [_surface(self._kind, token) for token in tokens]
        self._continues = [text[:1] in {*inside} for text in self._texts]

    def __call__(
        self, ids: Iterable[int], log_probs: Iterable[float], copied: Sequence[str] | None = None
    ) -> tuple[tuple[str, ...], tuple[float, ...]]:
        """Return the words of a text, and the probability of the least probable token of each.

        A word is a run of letters and digits; every other character is a word of its own. Each has
        the space in front of it: joined, they are the text.

        Args:
            ids: of the text's tokens.
            log_probs: of each token.
            copied: the tokens that ids beyond the vocabulary stand for.
        """
        size = len(self._texts)
        words: list[str] = []
        least: list[float] = []
        text = ""
        for number, log_prob in zip(ids, log_probs, strict=True):
            if number <= END_ID:
                continue
            after_space = text == " "  # a lone space belongs to the next word
            if copied is None or number < size:
                text, continues = self._texts[number], self._continues[number]
            else:
                text = _surface(self._kind, copied[number - size])
                continues = goes_on(text)
            if not words or not (continues or after_space):
                words.append("")
                least.append(0.0)
            words[-1] += text
            least[-1] = min(least[-1], float(log_prob))
        if self._kind == "letters":
            words = [unicodedata.normalize("NFC", word) for word in words]
        elif words and self._kind != "characters":  # a text's first space is not shown
            words[0] = words[0].removeprefix(" ")
        return tuple(words), tuple(np.exp(np.array(least, "float32")).tolist())


def _surface(kind: str, token: str) -> str:
    """Return the characters that a token adds to a text; the text's first space is not shown."""
    if kind == "symbols":
        return f" {token}"
    return token.replace(MARK, " ") if kind in ("sentencepiece", "words") else token
