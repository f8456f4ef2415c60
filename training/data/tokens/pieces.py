"""SentencePiece models, without TensorFlow, and the files of tokenizers."""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.data.tokens.store import END_ID, PAD_ID, START_ID, UNK_ID, Ids, ids_dtype

SENTENCEPIECE = "sentencepiece"
# SentencePiece cuts the names of special pieces out of texts. No text contains a name with a space.
_NAMES = {"pad": "<pad >", "unk": "<unk >", "bos": "<s >", "eos": "</s >"}
_UNREAD = "▅"  # SentencePiece's mark of an unknown piece; its trainer skips lines with the mark
# words and characters; with more, words share parts, which a unigram model learns
MOST_WORDS_OF_BPE = 1000


def write_state(path: str | Path, state: dict[str, Any]) -> None:
    """Write the content of a tokenizer's file, which `tokenizers.load_tokenizer` reads."""
    content = json.dumps(state, ensure_ascii=False, indent=0)
    Path(path).write_text(content + "\n", encoding="utf-8")


def model_state(model: bytes) -> dict[str, Any]:
    """Return the content of a tokenizer's file with a serialised model."""
    return {"kind": SENTENCEPIECE, "model": base64.b64encode(model).decode("ascii")}


def model_of(state: Mapping[str, Any]) -> bytes:
    """Return the serialised model in the content of a tokenizer's file."""
    return base64.b64decode(state["model"])


def train_sentencepiece(
    lines: Iterable[str],
    vocab_size: int,
    *,
    model_type: str | None = None,
    normalization: str = "nmt_nfkc",
) -> bytes:
    """Return a serialised SentencePiece model, trained on lines.

    Args:
        lines: the texts to train on, which can be iterated several times.
        vocab_size: largest number of pieces. A text with more characters gets as many pieces as it
            has characters, and the number is printed.
        model_type: "unigram" or "bpe". None selects BPE if the different words and characters are
            at most 1,000 and fit into the vocabulary. A unigram model counts in how many different
            words a piece occurs, and so splits "plus" into letters even if half of all lines
            contain "plus". BPE counts how often a piece occurs.
        normalization: name of SentencePiece's rule that unifies characters.

    Raises ValueError if no model can be trained on this text.
    """
    if vocab_size <= END_ID + 1:
        raise ValueError(
            f"a vocabulary needs more than {END_ID + 1} tokens, but it has {vocab_size}"
        )
    if model_type is None:
        model_type, units = "bpe", set[str]()
        for line in lines:
            units.update(line.split(), line)
            if len(units) > min(MOST_WORDS_OF_BPE, vocab_size):
                model_type = "unigram"
                break
    try:
        return _trained(lines, vocab_size, model_type, normalization)
    except (RuntimeError, OSError) as error:
        characters = re.search(r"smaller than required_chars. \d+ vs (\d+)", str(error))
        if characters is None:
            reason = str(error).splitlines()[-1]
            raise ValueError(f"sentencepiece with vocab_size={vocab_size}: {reason}") from None
    print_growth(vocab_size, grown := int(characters[1]))
    return train_sentencepiece(lines, grown, model_type=model_type, normalization=normalization)


def _trained(lines: Iterable[str], vocab_size: int, model_type: str, normalization: str) -> bytes:
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line.replace(_UNREAD, "") for line in lines),
        model_writer=model,
        vocab_size=vocab_size,
        hard_vocab_limit=False,
        model_type=model_type,
        normalization_rule_name=normalization,
        character_coverage=1.0,
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=START_ID,
        eos_id=END_ID,
        **{f"{name}_piece": piece for name, piece in _NAMES.items()},
        max_sentence_length=100_000,
        minloglevel=2,
    )
    return model.getvalue()


def print_growth(vocab_size: int, size: int) -> None:
    """Print that a vocabulary has `size` tokens, more than `vocab_size`."""
    print(
        f"A vocabulary has {size:,} tokens, not {vocab_size:,}, because the text has so many "
        "different characters.",
        file=sys.stderr,
    )


class Pieces:
    """A serialised model, read by SentencePiece's own library.

    TensorFlow, which `training.data.tokens.tokenizers` needs, would take 400 MB in each process.
    """

    def __init__(self, model: bytes) -> None:
        import sentencepiece

        self._pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
        self._dtype = ids_dtype(self._pieces.vocab_size())

    def encode(self, texts: Sequence[str]) -> Ids:
        """Return the token ids `(tokens,)` of texts, in the smallest dtype, and lengths `(n,)`."""
        encoded = self._pieces.encode(list(texts), num_threads=1)
        lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
        ids = itertools.chain.from_iterable(encoded)
        return np.fromiter(ids, self._dtype, lengths.sum()), lengths

    def roundtrip(self, texts: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Return each text as decoded from its ids, and its letters that have no id."""
        encoded = self._pieces.encode(list(texts))
        rows = zip(texts, encoded, self._pieces.decode(encoded), strict=True)
        return [(again, self._unknown(text) if UNK_ID in ids else []) for text, ids, again in rows]

    def _unknown(self, text: str) -> list[str]:
        letters = "".join(self._pieces.encode(text, out_type=str)).replace("▁", "")
        return [letter for letter in letters if self._pieces.piece_to_id(letter) == UNK_ID]
