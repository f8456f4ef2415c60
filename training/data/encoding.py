"""Text to token ids, a block at a time, in worker processes: by SentencePiece's own library.

TensorFlow, which other tokenizers take, would be 400 MB in each process.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from training.command.native_log import without_native_log
from training.data import corpus
from training.data.lines import Block, Skipped, parse
from training.data.pair_files import Split
from training.data.pieces import KIND, model_of, model_state, normalization, train_sentencepiece
from training.data.splits import split_of
from training.data.store import SIDES, ids_dtype

_TOGETHER = 8192  # texts
Ids = tuple[np.ndarray, np.ndarray]  # of some texts, one after another, and the tokens of each
PairEncoder = Callable[[list[str], list[str]], tuple[Ids, Ids]]


class Copying(NamedTuple):
    """How words are copied: the configuration's keys."""

    hidden: float
    longest: int
    seed: int


class Job(NamedTuple):
    """How blocks are encoded.

    Attributes:
        tokenizers: files of both sides.
        shares: of the sources that are held out for dev and test.
        excluded: sources to leave out: those of dev and test.
        written_like: data in whose script targets are written.
        copying: how words are copied, None where none are.
        unique: whether pairs are hashed.
    """

    tokenizers: tuple[Path, Path]
    shares: tuple[float, float]
    excluded: frozenset[str]
    written_like: str
    copying: Copying | None
    unique: bool


class Encoded(NamedTuple):
    """A block in token ids.

    Attributes:
        sides: of sources and targets the ids of all, and the lengths.
        held_out: pairs of dev and test, as text.
        hashes: of the pairs, uint64, where they are wanted.
        skipped: the lines that are no pair.
        digest: SHA-256 of the block.
    """

    sides: tuple[Ids, Ids]
    held_out: dict[str, list[tuple[str, str]]]
    hashes: np.ndarray
    skipped: Skipped
    digest: bytes


def pairs_of(block: Block, job: Job, skipped: Skipped) -> Iterator[tuple[str, str, str]]:
    """Yield the split, source and target of each pair."""
    split = Split(*parse(block, skipped))
    for source, target in corpus.written_like(job.written_like, split).pairs():
        if source not in job.excluded:
            yield split_of(source, job.shares), source, target


def train_side(
    sample: Sequence[tuple[Block, Job]], side: int, kind: str, size: int
) -> dict[str, Any]:
    """Train the tokenizer of a side, 0 or 1, on the training pairs of blocks; return its state.

    Raises:
        ValueError: if none can be trained from this text.
    """

    def lines() -> Iterator[str]:
        for block, job in sample:
            for split, *pair in pairs_of(block, job, Skipped()):
                if split == "train":
                    yield pair[side]

    if kind == KIND:
        model = train_sentencepiece(lines, size, normalization=normalization(SIDES[side]))
        return {"kind": KIND, **model_state(model)}
    with without_native_log():
        from training.data.tokenizers import train_tokenizer
    return train_tokenizer(kind, lines(), size).state()


def encode_block(block: Block, job: Job) -> Encoded:
    """Return the token ids of a block, and what is held out of it."""
    skipped, train = Skipped(), list[tuple[str, str]]()
    held_out: dict[str, list[tuple[str, str]]] = {"dev": [], "test": []}
    for split, source, target in pairs_of(block, job, skipped):
        (train if split == "train" else held_out[split]).append((source, target))
    sides = encode_pairs(train, job.tokenizers, job.copying)
    hashes = np.fromiter((_hash(*pair) for pair in train), np.uint64) if job.unique else _NONE
    digest = hashlib.sha256(b"\0".join(block.columns)).digest()
    return Encoded(sides, held_out, hashes, skipped, digest)


_NONE = np.zeros(0, np.uint64)


def encode_pairs(
    pairs: Sequence[tuple[str, str]], tokenizers: tuple[Path, Path], copying: Copying | None
) -> tuple[Ids, Ids]:
    """Return the token ids of the sources and targets of pairs."""
    states = tuple(path.read_text(encoding="utf-8") for path in tokenizers)
    encode = _encoder(states, copying)
    parts = []
    for start in range(0, len(pairs) or 1, _TOGETHER if copying is None else 512):
        chunk = pairs[start : start + (_TOGETHER if copying is None else 512)]
        parts.append(encode([source for source, _ in chunk], [target for _, target in chunk]))
    sources, targets = (
        tuple(np.concatenate(each) for each in zip(*side, strict=True))
        for side in zip(*parts, strict=True)
    )
    return (sources[0], sources[1]), (targets[0], targets[1])


@functools.lru_cache(maxsize=2)
def _encoder(states: tuple[str, str], copying: Copying | None) -> PairEncoder:
    """Return the encoder of two tokenizers, given by what their files hold."""
    if copying is not None:
        with without_native_log():
            from training.data.copying import copying_encoder
            from training.data.tokenizers import tokenizer_of
        source, target = (tokenizer_of(json.loads(state)) for state in states)
        return copying_encoder(source, target, *copying)
    encode_source, encode_target = (_side_encoder(json.loads(state)) for state in states)
    return lambda sources, targets: (encode_source(sources), encode_target(targets))


def _side_encoder(state: dict[str, Any]) -> Callable[[list[str]], Ids]:
    if state["kind"] != KIND:
        with without_native_log():
            from training.data.tokenizers import tokenizer_of
            from training.data.tokenizing import tokenize
        tokenizer = tokenizer_of(state)
        kind = ids_dtype(tokenizer.vocab_size)

        def encode_in_graph(texts: list[str]) -> Ids:
            rows = tokenize(texts, tokenizer)
            return rows.values.astype(kind), rows.lengths

        return encode_in_graph
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_proto=model_of(state))
    dtype = ids_dtype(pieces.vocab_size())

    def encode(texts: list[str]) -> Ids:
        rows = pieces.encode(texts, num_threads=1)
        lengths = np.fromiter(map(len, rows), np.int32, len(rows))
        ids = np.fromiter(itertools.chain.from_iterable(rows), dtype, int(lengths.sum()))
        return ids, lengths

    return encode


def _hash(source: str, target: str) -> int:
    pair = f"{source}\t{target}".encode()
    return int.from_bytes(hashlib.blake2b(pair, digest_size=8).digest(), "little")
