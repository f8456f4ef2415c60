"""SentencePiece models without TensorFlow: trained, and kept in the files of tokenizers."""

from __future__ import annotations

import base64
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from training.data.ids import END_ID, PAD_ID, START_ID, UNK_ID

KIND = "sentencepiece"
FEW_WORDS = 1000  # with more, words share parts, and a unigram model has these


def write_state(path: str | Path, state: dict[str, Any]) -> None:
    """Write a tokenizer's file, which `tokenizers.load_tokenizer` reads."""
    content = json.dumps(state, ensure_ascii=False, indent=0)
    Path(path).write_text(content + "\n", encoding="utf-8")


def model_state(model: bytes) -> dict[str, Any]:
    """Return what a tokenizer's file says of a serialised model."""
    return {"model": base64.b64encode(model).decode("ascii")}


def model_of(state: Mapping[str, Any]) -> bytes:
    """Return the serialised model of a tokenizer's file."""
    return base64.b64decode(state["model"])


def normalization(side: str) -> str:
    """Return the rule by which a model of `source` or `target` unifies characters.

    Whatever way a source is typed, it is read alike; a target keeps its own characters.
    """
    return "nmt_nfkc" if side == "source" else "identity"


def train_sentencepiece(
    lines: Iterable[str],
    vocab_size: int,
    *,
    model_type: str | None = None,
    normalization: str = "nmt_nfkc",
) -> bytes:
    """Return a serialised SentencePiece model.

    Args:
        lines: the texts to learn from.
        vocab_size: most pieces.
        model_type: "unigram" or "bpe". None takes BPE for texts of few words, which have room:
            a unigram model counts in how many different words a piece stands, so that it cuts
            "plus", in half of all lines, into letters. BPE counts how often.
        normalization: the rule by which characters are unified.

    Raises:
        ValueError: none can be trained from this text.
    """
    import sentencepiece

    lines = iter(lines)
    if model_type is None:
        seen, few = _few_words(lines, min(FEW_WORDS, vocab_size))
        lines, model_type = itertools.chain(seen, lines), "bpe" if few else "unigram"
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=lines,
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
            max_sentence_length=100_000,
            minloglevel=2,
        )
    except (RuntimeError, OSError) as error:
        reason = str(error).splitlines()[-1]
        raise ValueError(f"sentencepiece with vocab_size={vocab_size}: {reason}") from None
    return model.getvalue()


def _few_words(lines: Iterator[str], most: int) -> tuple[list[str], bool]:
    """Take lines until they have more different words and characters; whether all had fewer."""
    seen: list[str] = []
    found: set[str] = set()
    for line in lines:
        seen.append(line)
        found.update(line.split(), line)
        if len(found) > most:
            return seen, False
    return seen, True
