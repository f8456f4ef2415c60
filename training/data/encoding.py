"""Text to token ids, a block at a time, in worker processes: by SentencePiece's own library.

TensorFlow, which other tokenizers take, would be 400 MB in each process.
"""

from __future__ import annotations

import functools
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from training.command.errors import ConfigError, UserError
from training.command.native import without_native_log
from training.config.schema import Config
from training.data.lines import MOST_UNUSABLE, Block, Skipped, parse
from training.data.named import corpora
from training.data.pair_files import CorpusError
from training.data.pieces import SENTENCEPIECE, model_of, model_state, train_sentencepiece
from training.data.specs import Spec
from training.data.splits import Shares, split_of, too_few
from training.data.store import SIDES, TOGETHER, UNK_ID, Ids, ids_dtype, in_chunks

MOST_CHECKED = 100_000  # targets whose tokens are looked at
MOST_NAMED = 10
Pairs = list[tuple[str, str]]  # sources with their targets
Run = Callable[[Callable[..., Any], Iterable[tuple]], Iterator[Any]]


@contextmanager
def workers(count: int) -> Iterator[Run]:
    """Start `count` processes; with 0 the calls run in this process.

    Yield `run(function, tasks)`: it calls the function with each tuple of arguments and yields the
    results in order. Tasks are drawn as they are needed. Raises UserError where a process is
    killed.
    """
    if not count:
        yield lambda function, tasks: (function(*task) for task in tasks)
        return
    pool = ProcessPoolExecutor(
        count, mp_context=multiprocessing.get_context("spawn"), initializer=_initialize
    )

    def run(function: Callable[..., Any], tasks: Iterable[tuple]) -> Iterator[Any]:
        pending: deque[Future] = deque()
        for task in tasks:
            pending.append(pool.submit(function, *task))
            if len(pending) > count:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    try:
        yield run
    except BrokenProcessPool:
        raise UserError(
            "a worker process was killed: where memory is short, take fewer with --workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _initialize() -> None:
    """End with the process that started this one, and leave interruptions to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


# How words are copied: the share of pairs whose names are hidden, the longest source, the seed.
Copying = tuple[float, int, int]


class Tokenizing(NamedTuple):
    """The settings by which texts become tokens."""

    kinds: tuple[str, str]  # of both sides' tokenizers
    sizes: tuple[int, int]  # of their vocabularies, at most
    copying: Copying | None  # None where no words are copied

    @classmethod
    def of(cls, config: Config) -> Tokenizing:
        """Return the settings of a configuration."""
        copying = config.copy_hidden, config.max_source_length, config.seed
        return cls(
            (config.source_tokenizer, config.target_tokenizer),
            (config.source_vocab_size, config.target_vocab_size),
            copying if config.copy else None,
        )


class BlockEncoding(NamedTuple):
    """The settings by which the blocks of a SPEC are split and encoded."""

    tokenizers: tuple[Path, Path]  # files of both sides
    shares: Shares  # of the sources that are held out for dev and test
    measured: frozenset[str]  # sources of dev and test, where these are no shares
    extra: bool  # whether pairs with a source in `measured` are left out
    script_of: str  # data in whose script targets are written
    copying: Copying | None  # None where no words are copied


def pairs_of(block: Block, job: BlockEncoding, skipped: Skipped) -> Iterator[tuple[str, str, str]]:
    """Yield the split, source and target of each pair."""
    split = corpora.in_target_script(job.script_of, parse(block, skipped))
    for source, target in split.pairs():
        skipped.shared += source in job.measured
        if not (job.extra and source in job.measured):
            yield split_of(source, job.shares), source, target


def _on_tensorflow() -> Any:
    """Import the tokenizers that run on TensorFlow, without the lines that it logs."""
    with without_native_log():
        from training.data import tokenizers
    return tokenizers


def train_state(side: str, kind: str, size: int, lines: Sequence[str]) -> dict[str, Any]:
    """Train the tokenizer of "source" or "target" on lines, and return its file's content.

    Raises ConfigError where it cannot be trained with these settings.
    """
    try:
        if kind == SENTENCEPIECE:
            # Variants of a character in a source are one; a target keeps its own characters.
            rule = "nmt_nfkc" if side == "source" else "identity"
            return model_state(train_sentencepiece(lines, size, normalization=rule))
        return _on_tensorflow().train_vocabulary(kind, lines, size).state()
    except ValueError as error:
        raise ConfigError(f"{side}_vocab_size={size}: {error}") from error


def train_side(
    samples: Sequence[tuple[Block, BlockEncoding]], side: str, kind: str, size: int
) -> dict[str, Any]:
    """Train the tokenizer of a side on the training pairs of blocks, as `train_state` does."""
    texts = [
        pair[SIDES.index(side)]
        for block, job in samples
        for split, *pair in pairs_of(block, job, Skipped())
        if split == "train"
    ]
    if not texts:
        raise too_few(samples[0][0].spec, "train")
    return train_state(side, kind, size, texts)


def check_targets(
    name: str | Spec, targets: Sequence[str], state: dict[str, Any], most: float = MOST_UNUSABLE
) -> None:
    """Print how many targets a tokenizer cannot write, or not as they are, with examples.

    Raises CorpusError where all, or more than a share of `most`, have no known token.
    """
    targets = targets[:MOST_CHECKED]
    encoded, texts, unknown = _said(state, targets)
    lacking = [i for i, ids in enumerate(encoded) if UNK_ID in ids]
    wholly = [i for i in lacking if not texts[i].replace("⁇", "").strip()]
    if lacking:
        tokens = dict.fromkeys(unknown([targets[i] for i in lacking]))
        shown = " ".join(list(tokens)[:MOST_NAMED]) + (" …" if len(tokens) > MOST_NAMED else "")
        line = f"{name}: {len(lacking):,} of {len(targets):,} targets have tokens that the model "
        line += f"cannot say, {len(tokens):,} in all: {shown}"
        if most < 1 and len(wholly) > min(max(1, most * len(targets)), len(targets) - 1):
            raise CorpusError(f"{line}; {len(wholly):,} targets have no other")
        print(line, flush=True)
    wrong = [i for i, text in enumerate(texts) if text != targets[i] and UNK_ID not in encoded[i]]
    if wrong:
        example = f"{targets[wrong[0]]!r} as {texts[wrong[0]]!r}"
        print(f"{name}: {len(wrong):,} of {len(targets):,} targets are said otherwise: {example}")


def _said(
    state: dict[str, Any], texts: Sequence[str]
) -> tuple[list[list[int]], list[str], Callable[[Sequence[str]], list[str]]]:
    """Return the ids of texts, the texts of ids, and a function to the unknown tokens of texts."""
    if state["kind"] == SENTENCEPIECE:
        import sentencepiece

        pieces = sentencepiece.SentencePieceProcessor(model_proto=model_of(state))

        def unknown(texts: Sequence[str]) -> list[str]:
            strings = pieces.encode(list(texts), out_type=str)
            letters = "".join(itertools.chain.from_iterable(strings)).replace("▁", "")
            return [letter for letter in letters if pieces.piece_to_id(letter) == UNK_ID]

        encoded = pieces.encode(list(texts))
        return encoded, pieces.decode(encoded), unknown
    tokenizers = _on_tensorflow()
    return tokenizers.said(tokenizers.tokenizer_of(state), texts)


def encode_block(
    block: Block, job: BlockEncoding
) -> tuple[tuple[Ids, Ids], dict[str, Pairs], Skipped]:
    """Return the token ids of training pairs, the pairs of dev and test, and skipped lines."""
    skipped, parts = Skipped(), dict[str, Pairs](train=[], dev=[], test=[])
    for split, source, target in pairs_of(block, job, skipped):
        parts[split].append((source, target))
    return encode_pairs(parts.pop("train"), job.tokenizers, job.copying), parts, skipped


def encode_pairs(
    pairs: Sequence[tuple[str, str]], tokenizers: tuple[Path, Path], copying: Copying | None
) -> tuple[Ids, Ids]:
    """Return the token ids of the sources and targets of pairs."""
    states = [file.read_text(encoding="utf-8") for file in tokenizers]
    if copying is None:
        source, target = map(_encoder, states)
        return source([a for a, _ in pairs]), target([b for _, b in pairs])
    from training.data.token_ids import encode_to_copy

    return encode_to_copy([*map(_in_graph, states)], copying, pairs)


@functools.lru_cache(maxsize=2)
def _in_graph(state: str) -> Any:
    """Return the tokenizer of a file's content."""
    return _on_tensorflow().tokenizer_of(json.loads(state))


@functools.lru_cache(maxsize=2)
def _encoder(state: str) -> Callable[[list[str]], Ids]:
    """Return a function from texts to ids, by the content of a tokenizer's file."""
    if json.loads(state)["kind"] != SENTENCEPIECE:
        from training.data.token_ids import encode as encode_in_graph

        return functools.partial(encode_in_graph, tokenizer=_in_graph(state))
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_proto=model_of(json.loads(state)))
    dtype = ids_dtype(pieces.vocab_size())

    def encode(texts: list[str]) -> Ids:
        encoded = pieces.encode(texts, num_threads=1)
        lengths = np.fromiter(map(len, encoded), np.int32, len(encoded))
        return np.fromiter(itertools.chain.from_iterable(encoded), dtype, lengths.sum()), lengths

    return lambda texts: in_chunks(len(texts), TOGETHER, lambda part: encode(texts[part]))
