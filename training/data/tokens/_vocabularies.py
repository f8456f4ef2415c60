"""Tokenizers: trained on texts, checked on texts, and loaded in a worker process, to encode.

SentencePiece's own library encodes subwords. TensorFlow, which all other tokenizers need, would
take 400 MB in each process.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from training.command.errors import ConfigError
from training.command.native import start_tensorflow
from training.command.progress import print_note, stages
from training.data.read._files import Block
from training.data.read._pairs import MOST_UNUSABLE, LineCounts
from training.data.read._specs import CorpusError, Spec
from training.data.read._splits import SplitRule, too_few
from training.data.rules import ALPHABETS
from training.data.tokens._pool import workers
from training.data.tokens.pieces import (
    SENTENCEPIECE,
    Pieces,
    model_of,
    model_state,
    train_sentencepiece,
    write_state,
)
from training.data.tokens.store import SIDES, Ids

MOST_CHECKED = 100_000  # most targets that are checked
MOST_UNREAD = 0.9  # largest share of sources without a known token
MOST_NAMED = 10  # tokens that a message lists
_UNKNOWN = {"source": "cannot tell apart", "target": "can never output"}
# lines of each training source, and their splits
Samples = Sequence[tuple[Block, SplitRule]]
Pairs = list[tuple[str, str]]  # a source and its target each


class Copying(NamedTuple):
    """How words are copied from a source."""

    hidden: float  # share of pairs whose names are hidden
    longest: int  # most tokens of a source
    seed: int  # seed of the draw of hidden names


class Encoding(NamedTuple):
    """The trained tokenizers, and how words are copied."""

    tokenizers: tuple[Path, Path]  # files of the source's and the target's tokenizer
    copying: Copying | None

    def check(self, name: str | Spec, pairs: Pairs, most: float, *, sources: bool = True) -> None:
        """Check both sides of pairs as `check_texts` does; only targets without `sources`.

        If words are copied, any word is fine.
        """
        if self.copying is None:
            readers = [_reader(file.read_text("utf-8")) for file in self.tokenizers]
            if sources:
                check_texts(name, [source for source, _ in pairs], readers[0], most, "source")
            check_texts(name, [target for _, target in pairs], readers[1], most)


def train_tokenizers(
    samples: Samples,
    encoding: Encoding,
    kinds: tuple[str, str],
    sizes: tuple[int, int],
    processes: int,
) -> None:
    """Train both tokenizers on samples, and write their files; `kinds` as in `Tokenizing`."""
    for side, file, kind, size in zip(SIDES, encoding.tokenizers, kinds, sizes, strict=True):
        # A separate process, whose memory is freed when the process ends.
        alone = workers(min(1, processes))
        with stages(f"training the tokenizer of the {side} side"), alone as run:
            (state,) = run(_train_side, [(samples, side, kind, size)])
        if encoding.copying and side == "source":
            state["copies"] = True
        write_state(file, state)


def _train_side(samples: Samples, side: str, kind: str, size: int) -> dict[str, Any]:
    """Return the content of a tokenizer's file, trained on one side of blocks' training pairs."""
    texts = [
        pair[SIDES.index(side)]
        for block, rule in samples
        for split, *pair in rule.pairs(block, LineCounts(block.spec))
        if split == "train"
    ]
    if not texts:
        raise too_few(samples[0][0].spec, "train")
    return train_state(side, kind, size, texts)


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


def encode_pairs(pairs: Pairs, encoding: Encoding) -> tuple[Ids, Ids]:
    """Return the token ids of all sources, and of all targets."""
    source, target = (_reader(file.read_text(encoding="utf-8")) for file in encoding.tokenizers)
    if encoding.copying is None:
        return source.encode([a for a, _ in pairs]), target.encode([b for _, b in pairs])
    from training.data.tokens._token_ids import encode_to_copy

    return encode_to_copy((source, target), encoding.copying, pairs)


@functools.lru_cache(maxsize=2)
def _reader(state: str) -> Any:
    """Return the tokenizer of a file's content, without TensorFlow if it is SentencePiece's."""
    loaded = json.loads(state)
    if loaded["kind"] == SENTENCEPIECE:
        return Pieces(model_of(loaded))
    start_tensorflow()
    from training.data.tokens.tokenizers import tokenizer_of

    return tokenizer_of(loaded)
