"""Tokenizers: text to token ids and back, with the same TensorFlow ops in training and SavedModels.

Kinds: `sentencepiece` (subwords), `words`, `characters`, `letters` (of Unicode's NFD) and `symbols`
(separated by spaces, such as phones). Every kind has the special ids PAD_ID, UNK_ID, START_ID and
END_ID. In subwords and words, the mark "▁" represents a space within a token.
"""

from __future__ import annotations

import hashlib
import json
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from training.command.native import without_native_log
from training.config._keys import TOKENIZERS
from training.data.letters import (
    FINAL_SIGMA,
    SIGMA,
    alphabet_of,
    has_final_sigma,
    known_in,
    syllables,
)
from training.data.rules import ALPHABETS, END_ID, MARK, UNK_ID, UNK_TOKEN
from training.data.tokens.pieces import (
    SENTENCEPIECE,
    Pieces,
    model_of,
    model_state,
    print_growth,
    write_state,
)
from training.data.tokens.splitting import (
    clean_text,
    composed,
    first_places,
    split_text,
    whole_letters,
)
from training.data.tokens.store import TOGETHER, Ids, ids_dtype, in_chunks

_SPECIAL_TOKENS = ["<pad>", UNK_TOKEN, "<s>", "</s>"]


class Tokenizer(tf.Module, ABC):
    """Converts texts to token ids and back.

    The methods work eagerly, in tf.data, and in a SavedModel whose root tracks the tokenizer. Texts
    are cleaned as by `training.data.rules.clean`, and invalid UTF-8 becomes U+FFFD. Empty texts and
    empty batches are allowed.
    """

    kind: str  # one of TOKENIZERS
    vocab_size: int  # number of ids, special ids included (a Python int)
    # whether a token outside the vocabulary has an id of its own in its text, so that it can be
    # copied: `vocab_size + i`, if the token's first place is `i`. Otherwise its id is UNK_ID
    copies: bool = False

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Return token ids of texts `(B,)`, without START and END: int32 ragged `(B, None)`."""
        return self._encode(clean_text(text))

    def encode(self, texts: Sequence[str]) -> Ids:
        """Return the token ids of texts, in the smallest dtype, and their lengths.

        If `copies`, ids are int32.
        """
        dtype = np.dtype("int32") if self.copies else ids_dtype(self.vocab_size)

        def ids_of(part: slice) -> Ids:
            ids = self.tokenize(tf.constant(texts[part], tf.string))
            return ids.values.numpy().astype(dtype), ids.row_lengths().numpy()

        return in_chunks(len(texts), TOGETHER, ids_of)

    @abstractmethod
    def roundtrip(self, texts: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Return each text as decoded from its ids, and its tokens that have no id."""

    def split(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Return the tokens of each text, string ragged `(B, None)`; a ValueError for subwords."""
        raise ValueError(f"the tokenizer expected words to copy. Received: {self.kind}")

    def unknown(self, text: tf.Tensor) -> tf.Tensor:
        """Return the letters of each text `(B,)` that training never saw, once each: string `(B,)`.

        The result is "" unless tokens are letters that are not copied.
        """
        return tf.fill(tf.shape(text), "")

    def detokenize(self, ids: tf.Tensor, copied: tf.Tensor | None = None) -> tf.Tensor:
        """Return texts `(B,)` of ids `(B, T)`, without special ids and without ids after END.

        With `copied`, string `(B, S)`, the id `vocab_size + i` is the token at place `i` of
        `copied`.
        """
        ended = tf.cumsum(tf.cast(ids == END_ID, tf.int32), axis=1) > 0  # (B, T)
        return self._decode(ids, (ids > END_ID) & ~ended, copied)

    def tokens(self, ids: tf.Tensor, copied: tf.Tensor | None = None) -> tf.Tensor:
        """Return the string tokens of ids, in the same shape: "" for PAD, START and END.

        With `copied`, string `(B, S)`, ids are `(B, T)`, and ids from `vocab_size` on are tokens of
        `copied`.
        """
        inside = tf.where(ids < self.vocab_size, ids, UNK_ID)
        special = tf.where(inside == UNK_ID, UNK_TOKEN, "")
        strings = tf.where(inside > END_ID, self._strings(inside), special)
        if copied is None:
            return strings
        copied = tf.pad(copied, [[0, 0], [0, 1]])  # at least one place to gather from: (B, S + 1)
        places = tf.maximum(ids - self.vocab_size, 0)  # (B, T)
        return tf.where(ids < self.vocab_size, strings, tf.gather(copied, places, batch_dims=1))

    def save(self, path: str | Path) -> None:
        """Write the tokenizer to one JSON file, which `load_tokenizer` reads."""
        write_state(path, self.state())

    @abstractmethod
    def state(self) -> dict:
        """Return the content of the tokenizer's file."""

    @abstractmethod
    def _encode(self, text: tf.Tensor) -> tf.RaggedTensor: ...

    @abstractmethod
    def _decode(
        self, ids: tf.Tensor, visible: tf.Tensor, copied: tf.Tensor | None
    ) -> tf.Tensor: ...

    @abstractmethod
    def _strings(self, ids: tf.Tensor) -> tf.Tensor: ...


class SentencePieceTokenizer(Tokenizer):
    """Subwords of a SentencePiece model (Kudo and Richardson 2018), serialised with these ids."""

    kind = SENTENCEPIECE

    def __init__(self, model: bytes):
        super().__init__(name="tokenizer")
        self._model = model
        # The name is unique to the model. Where Python loads an export, resources with the same
        # name are shared, and the source's subwords would encode the target.
        name = f"sentencepiece_{hashlib.sha256(model).hexdigest()[:16]}"
        with without_native_log():  # hide the log line of each model that changes no character
            self._pieces = tf_text.SentencepieceTokenizer(model, out_type=tf.int32, name=name)
        self.vocab_size = int(self._pieces.vocab_size())

    def _encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._pieces.tokenize(text)

    def _decode(self, ids: tf.Tensor, visible: tf.Tensor, copied: tf.Tensor | None) -> tf.Tensor:
        return self._pieces.detokenize(tf.ragged.boolean_mask(ids, visible))

    def _strings(self, ids: tf.Tensor) -> tf.Tensor:
        return self._pieces.id_to_string(ids)

    def roundtrip(self, texts: Sequence[str]) -> list[tuple[str, list[str]]]:
        """See `Tokenizer.roundtrip`."""
        return Pieces(self._model).roundtrip(texts)

    def state(self) -> dict:
        """Return the content of the tokenizer's file."""
        return model_state(self._model)


class VocabularyTokenizer(Tokenizer):
    """Splits texts into tokens by a rule, and looks the tokens up in a list.

    - `words`: runs of letters and digits (with inner apostrophes), elisions such as "l'", single
      Chinese or Japanese characters, and single other characters. A token after a space begins with
      "▁", so that joined tokens give the text back.
    - `characters`: each character.
    - `letters`: each character of the text's canonical decomposition (Unicode's NFD), such as the
      letters of a Korean syllable, or a letter and its accents. Decoding composes the text again.
    - `symbols`: the parts between spaces.

    In `characters` and `letters`, a capital that training never saw becomes its small letter. A
    byte order mark is not a character.

    Args:
        kind: `words`, `characters`, `letters` or `symbols`.
        tokens: the tokens, from id END_ID + 1 on.
        copies: see `Tokenizer`.
        cases: small letters of capitals, see `training.data.letters`. None, as in the files of
            earlier versions, stands for Unicode's small letters.
        known: the letters that training saw. None: a letter is known by its parts.
    """

    def __init__(
        self,
        kind: str,
        tokens: Sequence[str],
        copies: bool = False,
        cases: Mapping[str, str] | None = None,
        known: Sequence[str] | None = None,
    ):
        super().__init__(name="tokenizer")
        self.kind, self.copies = kind, copies
        self.vocab_size = len(_SPECIAL_TOKENS) + len(tokens)
        self._tokens = list(tokens)
        self._cases = None if cases is None else dict(cases)
        self._letters = None if known is None else list(known)
        numbers = {token: number for number, token in enumerate(tokens, END_ID + 1)}
        if not copies:
            capitals = {x: numbers[small] for x, small in (cases or {}).items() if small in numbers}
            numbers |= {x: number for x, number in capitals.items() if len(x) == 1}
        self._ids = _table(numbers)
        if known is not None:
            read = [*known, *(syllables({*tokens}) if kind == "letters" else ())]
            self._known = _table(dict.fromkeys(read, END_ID + 1))
        self._table = tf.constant(_SPECIAL_TOKENS + self._tokens)

    def ids(self, strings: tf.Tensor) -> tf.Tensor:
        """Return ids of string tokens, int32 of the same shape; UNK_ID for unknown tokens."""
        return self._ids.lookup(strings)

    def tag(self, longest: int) -> dict[str, int]:
        """Return the ids `open` of "[", `close` of "]" and `space`, 0 without one, and `longest`.

        `training.data.rules.tag_length` takes them.
        """
        ids = self._ids.lookup(tf.constant(["[", "]", " "])).numpy().tolist()
        known = [0 if number == UNK_ID else number for number in ids]
        return dict(zip(("open", "close", "space"), known, strict=True)) | {"longest": longest}

    def split(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Return the tokens of each text as they stand in it, string ragged `(B, None)`."""
        return self._split(clean_text(text))

    def _split(self, text: tf.Tensor) -> tf.RaggedTensor:
        cases = {} if self.copies else self._cases or {}
        long = {capital: small for capital, small in cases.items() if len(capital) > 1}
        if self.kind == "letters" and long:
            text = tf_text.normalize_utf8(text, "NFD")
        for capital, small in long.items():
            text = tf.strings.regex_replace(text, capital, small)
        if has_final_sigma(cases, self._tokens):
            rule = rf"([\p{{L}}\p{{M}}]){SIGMA}([^\p{{L}}\p{{M}}]|$)"
            text = tf.strings.regex_replace(text, rule, rf"\1{FINAL_SIGMA}\2")
        return split_text(self.kind, text)

    def _encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        strings = self._split(text)
        ids = strings.with_flat_values(self.ids(strings.flat_values))
        # Use flat values: on ragged tensors, `tf.where` puts hundreds of checks into the graph.
        if self.copies:
            known = self.vocab_size + first_places(strings, strings)  # (tokens,)
        elif self.kind in ALPHABETS and self._cases is None:  # a file of an earlier version
            known = self.ids(tf.strings.lower(strings.flat_values, "utf-8"))
        else:
            return ids
        return ids.with_flat_values(tf.where(ids.flat_values == UNK_ID, known, ids.flat_values))

    def unknown(self, text: tf.Tensor) -> tf.Tensor:
        """See `Tokenizer.unknown`."""
        if self.kind not in ALPHABETS or self.copies:
            return super().unknown(text)
        if self._letters is None:
            strings, ids = self.split(text), self.tokenize(text).flat_values
            letters, texts, rows = strings.flat_values, strings.value_rowids(), strings.nrows()
        else:
            letters, texts, rows = whole_letters(clean_text(text))
            ids = self._known.lookup(letters)
        unseen = ids == UNK_ID  # (letters,)
        letters = tf.boolean_mask(letters, unseen)  # (unknown,)
        texts = tf.boolean_mask(texts, unseen)  # (unknown,), the text of each
        different, numbers = tf.unique(tf.strings.join([tf.strings.as_string(texts), letters], " "))
        places = tf.range(tf.size(letters))
        first = tf.math.unsorted_segment_min(places, numbers, tf.size(different))
        # the first use of each letter in its text
        letters, texts = (tf.gather(x, first) for x in (letters, texts))
        return tf.strings.unsorted_segment_join(letters, texts, rows)

    def _decode(self, ids: tf.Tensor, visible: tf.Tensor, copied: tf.Tensor | None) -> tf.Tensor:
        strings = tf.ragged.boolean_mask(self.tokens(ids, copied), visible)
        separator = " " if self.kind == "symbols" else ""
        text = tf.strings.reduce_join(strings, axis=1, separator=separator)
        if self.kind == "words":
            text = tf.strings.strip(tf.strings.regex_replace(text, MARK, " "))
        return composed(self.kind, text)

    def _strings(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._table, ids)

    def roundtrip(self, texts: Sequence[str]) -> list[tuple[str, list[str]]]:
        """See `Tokenizer.roundtrip`."""
        text = tf.constant(list(texts), tf.string)
        ids, strings = self.tokenize(text), self.split(text)
        unknown = ids.with_flat_values(ids.flat_values == UNK_ID)
        rows = zip(
            self.detokenize(ids.to_tensor()).numpy(),
            tf.ragged.boolean_mask(strings, unknown).to_list(),
            strict=True,
        )
        return [(x.decode(), [each.decode().strip(MARK) for each in tokens]) for x, tokens in rows]

    def state(self) -> dict:
        """Return the content of the tokenizer's file."""
        return {
            **{"kind": self.kind, "tokens": self._tokens},
            **({"copies": True} if self.copies else {}),
            **({} if self._cases is None else {"cases": dict(self._cases)}),
            **({} if self._letters is None else {"known": list(self._letters)}),
        }


def train_vocabulary(kind: str, lines: Iterable[str], vocab_size: int) -> VocabularyTokenizer:
    """Return a tokenizer of words, characters, letters or symbols, trained on text.

    `vocab_size` is the largest number of ids, special ids included. A text with more characters
    gives a larger vocabulary, which is printed. Words or symbols that do not fit are left out, and
    their number is printed. Raises ValueError if there is no text, or if the vocabulary is too
    small for any token.
    """
    lines = [line for line in lines if line.strip()]
    if not lines:
        raise ValueError("there is no text to train the tokenizer on")
    room = vocab_size - len(_SPECIAL_TOKENS)
    if room < 1:
        raise ValueError(
            f"a vocabulary needs more than {END_ID + 1} tokens, but it has {vocab_size}"
        )
    counts: Counter[bytes] = Counter()
    for start in range(0, len(lines), 4096):
        split = split_text(kind, tf.constant(lines[start : start + 4096]))
        counts.update(split.flat_values.numpy().tolist())
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if room < len(ranked) and kind in ALPHABETS:  # an alphabet is never cut
        print_growth(vocab_size, len(_SPECIAL_TOKENS) + len(ranked))
        room = len(ranked)
    if rare := ranked[room:]:
        share = sum(count for _, count in rare) / counts.total()
        print(
            f"A vocabulary of {vocab_size:,} tokens leaves out {len(rare):,} of {len(ranked):,} "
            f"{kind}, {share:.1%} of the text.",
            file=sys.stderr,
        )
    tokens = [token.decode("utf-8") for token, _ in ranked[:room]]
    if kind not in ALPHABETS:
        return VocabularyTokenizer(kind, tokens)
    tokens, cases, known = alphabet_of(kind, lines, tokens)
    return VocabularyTokenizer(kind, tokens, cases=cases, known=known)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Return the tokenizer in a file that `Tokenizer.save` wrote.

    Raises ValueError if the file is not a tokenizer, and OSError if the file cannot be read.
    """
    try:
        return tokenizer_of(json.loads(Path(path).read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, tf.errors.OpError) as error:
        raise ValueError(f"{path} is not a saved tokenizer: {error}") from None


def tokenizer_of(state: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer in the content of a file.

    Raises ValueError, KeyError, TypeError or OpError if the content is not a tokenizer.
    """
    kind = state["kind"]
    if kind == SentencePieceTokenizer.kind:
        return SentencePieceTokenizer(model_of(state))
    if kind in TOKENIZERS:
        tables = state.get("cases"), known_in(state)
        return VocabularyTokenizer(kind, state["tokens"], state.get("copies", False), *tables)
    raise ValueError(f"tokenizer expected one of {', '.join(TOKENIZERS)}. Received: {kind!r}")


def _table(numbers: Mapping[str, int]) -> tf.lookup.StaticHashTable:
    """Return a table from strings to numbers; UNK_ID for all other strings."""
    keys, values = tf.constant([*numbers], tf.string), tf.constant([*numbers.values()], tf.int32)
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), UNK_ID)
