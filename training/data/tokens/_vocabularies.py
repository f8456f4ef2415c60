"""Tokenizers, trained on texts, loaded in a worker process, and checked on texts.

SentencePiece's own library encodes subwords. TensorFlow, which all other tokenizers need, would
take 400 MB in each process.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

from training.command.errors import ConfigError
from training.command.native import start_tensorflow
from training.command.progress import print_note, stages
from training.data.read._pairs import MOST_UNUSABLE
from training.data.read._specs import CorpusError, Spec
from training.data.rules import ALPHABETS
from training.data.tokens.pieces import (
    SENTENCEPIECE,
    Pieces,
    model_of,
    model_state,
    train_sentencepiece,
)

MOST_CHECKED = 100_000  # most targets that are checked
MOST_UNREAD = 0.9  # largest share of sources without a known token
MOST_NAMED = 10  # tokens that a message lists
_UNKNOWN = {"source": "cannot tell apart", "target": "can never output"}


def train_tokenizer(side: str, kind: str, size: int, lines: Sequence[str]) -> Any:
    """Return a new tokenizer, trained on lines as by `train_state`."""
    with stages(f"training the tokenizer of the {side} side"):
        state = train_state(side, kind, size, lines)
    from training.data.tokens.tokenizers import tokenizer_of

    return tokenizer_of(state)


def train_state(side: str, kind: str, size: int, lines: Sequence[str]) -> dict[str, Any]:
    """Return the content of a tokenizer's file, trained on lines.

    Args:
        side: "source" or "target".
        kind: kind of tokenizer.
        size: largest size of the vocabulary.
        lines: the texts to train on.

    Raises ConfigError if the tokenizer cannot be trained with these settings.
    """
    try:
        if kind == SENTENCEPIECE:
            # Variants of a character in a source become one. A target keeps its own characters.
            rule = "nmt_nfkc" if side == "source" else "identity"
            return model_state(train_sentencepiece(lines, size, normalization=rule))
        start_tensorflow()
        from training.data.tokens.tokenizers import train_vocabulary

        return train_vocabulary(kind, lines, size).state()
    except ValueError as error:
        raise ConfigError(f"{side}_vocab_size={size}: {error}") from error


def check_texts(
    name: str | Spec,
    texts: Sequence[str],
    tokenizer: Any,
    most: float = MOST_UNUSABLE,
    side: str = "target",
) -> None:
    """Print how many texts have tokens outside a tokenizer's vocabulary, with examples.

    Of targets, also print how many the tokenizer writes differently. Raises CorpusError if all
    texts, or more than a share of `most`, have no known token; of sources, more than MOST_UNREAD.
    With `most` = 1, nothing is raised.

    Args:
        name: the name of the texts in messages.
        texts: sources or targets; at most MOST_CHECKED are checked.
        tokenizer: the tokenizer of this side.
        most: largest share of texts without a known token.
        side: "source" or "target".
    """
    texts = texts[:MOST_CHECKED]
    rows = [(text, *each) for text, each in zip(texts, tokenizer.roundtrip(texts), strict=True)]
    if side == "source":
        most = max(most, MOST_UNREAD)
        if getattr(tokenizer, "kind", SENTENCEPIECE) in ALPHABETS:  # whole letters, not their parts
            letters = [each.decode() for each in tokenizer.unknown(texts).numpy()]
            found = zip(rows, letters, strict=True)
            rows = [(text, again, list(unknown)) for (text, again, _), unknown in found]
    of = f"of {len(texts):,} {side}s"
    if lacking := [(again, unknown) for _, again, unknown in rows if unknown]:
        tokens = dict.fromkeys(token for _, unknown in lacking for token in unknown)
        shown = " ".join(list(tokens)[:MOST_NAMED]) + (" …" if len(tokens) > MOST_NAMED else "")
        line = f"{name}: {len(lacking):,} {of} contain tokens outside the vocabulary, which the "
        line += f"model {_UNKNOWN[side]}: {shown} ({len(tokens):,} in all)"
        wholly = sum(not again.replace("⁇", "").strip() for again, _ in lacking)
        if most < 1 and wholly > min(max(1, most * len(texts)), len(texts) - 1):
            raise CorpusError(f"{line}. {wholly:,} {side}s have no other tokens")
        print_note(line)
    if side == "source":
        return
    if wrong := [pair for *pair, unknown in rows if not unknown and pair[0] != pair[1]]:
        example = f"for example {wrong[0][0]!r} to {wrong[0][1]!r}"
        print_note(f"{name}: the tokenizer changes {len(wrong):,} {of}, {example}")


@functools.lru_cache(maxsize=2)
def reader_of(state: str) -> Any:
    """Return the tokenizer of a file's content, without TensorFlow if it is SentencePiece's."""
    loaded = json.loads(state)
    if loaded["kind"] == SENTENCEPIECE:
        return Pieces(model_of(loaded))
    start_tensorflow()
    from training.data.tokens.tokenizers import tokenizer_of

    return tokenizer_of(loaded)
