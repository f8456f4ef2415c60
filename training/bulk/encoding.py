"""Text to token ids in worker processes, by the tokenizers' own libraries."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from training.bulk.cleaning import SKIPPED, part
from training.command.errors import UserError
from training.command.native_log import without_native_log
from training.data.pieces import KIND, model_of, model_state, normalization, train_sentencepiece
from training.data.token_files import SIDES, ids_dtype

_TOGETHER = 8192  # texts
Ids = tuple[np.ndarray, np.ndarray]  # of some texts, one after another, and the tokens of each
Encoder = Callable[[list[str]], Ids]
PairEncoder = Callable[[list[str], list[str], int], tuple[Ids, Ids]]


@dataclass(frozen=True)
class Copying:
    """How words are copied: the configuration's keys."""

    hidden: float
    longest: int
    seed: int


@dataclass(frozen=True)
class Encoded:
    """Token ids of the pairs of a block.

    Attributes:
        ids: for source and target the ids of all texts, one after another.
        lengths: for source and target the tokens of each text.
    """

    ids: tuple[np.ndarray, np.ndarray]
    lengths: tuple[np.ndarray, np.ndarray]


def pairs_of(
    folder: Path, number: int, skip: np.ndarray | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the training pairs of a block, but for those to skip."""
    with part(folder, number, "train").open(encoding="utf-8", newline="\n") as file:
        at = 0
        for line in file:
            source, *targets = line.removesuffix("\n").split("\t")
            for target in targets:
                if skip is None or not skip[at]:
                    yield source, target
                at += 1


def marked(folder: Path, counts: list[int], number: int) -> np.ndarray | None:
    """Return which pairs of a block are to be skipped, None where all stay."""
    marks = folder / SKIPPED
    if not marks.is_file() or not counts[number]:
        return None
    return np.memmap(marks, bool, "r", sum(counts[:number]), (counts[number],))


def train_side(
    folder: Path, counts: list[int], side: int, share: float, seed: int, kind: str, size: int
) -> dict[str, Any]:
    """Train the tokenizer of a side, 0 or 1, on a random share of the pairs.

    Raises:
        ValueError: if none can be trained from this text.
    """

    def lines() -> Iterator[str]:
        for number, count in enumerate(counts):
            pairs = pairs_of(folder, number, marked(folder, counts, number))
            drawn = np.random.default_rng([seed, number]).random(count) < share
            yield from (pair[side] for pair, taken in zip(pairs, drawn, strict=False) if taken)

    if kind == KIND:
        model = train_sentencepiece(lines, size, normalization=normalization(SIDES[side]))
        return {"kind": KIND, **model_state(model)}
    with without_native_log():
        from training.data.tokenizers import train_tokenizer
    return train_tokenizer(kind, lines(), size).state()


def encode_block(
    folder: Path,
    counts: list[int],
    number: int,
    tokenizers: tuple[Path, Path],
    copying: Copying | None = None,
) -> Encoded:
    """Return the token ids of the pairs of a block; its text is removed."""
    encode = _copying_encoder(tokenizers, copying) if copying else _pair_encoder(tokenizers)
    first = sum(_kept(folder, counts, before) for before in range(number)) if copying else 0
    pairs = pairs_of(folder, number, marked(folder, counts, number))
    found: tuple[list, list] = ([], [])
    while chunk := list(itertools.islice(pairs, _TOGETHER)):
        sources, targets = map(list, zip(*chunk, strict=True))
        for encoded, side in zip(encode(sources, targets, first), found, strict=True):
            side.append(encoded)
        first += len(chunk)
    part(folder, number, "train").unlink()
    joined = [
        [np.concatenate(each) for each in zip(*side, strict=True)] or [np.zeros(0, np.int64)] * 2
        for side in found
    ]
    (ids, lengths), (target_ids, target_lengths) = joined
    return Encoded((ids, target_ids), (lengths, target_lengths))


def _kept(folder: Path, counts: list[int], number: int) -> int:
    """Return how many pairs of a block are not skipped."""
    skip = marked(folder, counts, number)
    return counts[number] - (0 if skip is None else int(np.count_nonzero(skip)))


def _pair_encoder(tokenizers: tuple[Path, Path]) -> PairEncoder:
    source, target = map(_encoder, tokenizers)
    return lambda sources, targets, first: (source(sources), target(targets))


def _copying_encoder(paths: tuple[Path, Path], copying: Copying) -> PairEncoder:
    """Return the encoder of two tokenizers between which words are copied."""
    with without_native_log():
        from training.data.tokenizing import tokenize
        from training.sources.text.copying import hide_names, tokenize_to_copy
    source, target = (_loaded(path, path.read_text(encoding="utf-8")) for path in paths)

    def encode(sources: list[str], targets: list[str], first: int) -> tuple[Ids, Ids]:
        sources, targets = hide_names(sources, targets, copying.hidden, copying.seed, first)
        labels = tokenize_to_copy(sources, targets, (source, target), copying.longest)
        sides = tokenize(sources, source), labels
        # Words that the vocabularies lack have ids above them.
        found = [(side.values.astype("<u4"), side.lengths) for side in sides]
        return found[0], found[1]

    return encode


@functools.lru_cache(maxsize=len(SIDES))
def _loaded(path: Path, text: str) -> Any:
    """Load the tokenizer of a file that holds this text, once for all blocks: see `_encoder_of`."""
    from training.data.tokenizers import load_tokenizer

    return load_tokenizer(path)


def _encoder(path: Path) -> Encoder:
    """Load a tokenizer: it returns the ids of some texts, and the tokens of each."""
    return _encoder_of(path, path.read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=len(SIDES))
def _encoder_of(path: Path, text: str) -> Encoder:
    """Load a file that holds this text: a later run may write another one in its place.

    SentencePiece's own library takes no TensorFlow, which is 400 MB in each process.
    """
    state = json.loads(text)
    if state["kind"] != KIND:
        return _graph_encoder(path)
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_proto=model_of(state))
    dtype = ids_dtype(pieces.vocab_size())

    def encode(texts: list[str]) -> Ids:
        rows = pieces.encode(texts, num_threads=1)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.fromiter(itertools.chain.from_iterable(rows), dtype, int(lengths.sum()))
        return ids, lengths

    return encode


def _graph_encoder(path: Path) -> Encoder:
    with without_native_log():
        import tensorflow as tf

        from training.data.tokenizers import load_tokenizer
    tokenizer = load_tokenizer(path)
    if tokenizer.copies:
        raise UserError(
            f"a prepared corpus expected tokenizers that copy no words. Received: {path}"
        )
    dtype = ids_dtype(tokenizer.vocab_size)

    def encode(texts: list[str]) -> Ids:
        rows = tokenizer.tokenize(tf.constant(texts, tf.string))
        return rows.values.numpy().astype(dtype), rows.row_lengths().numpy()

    return encode
