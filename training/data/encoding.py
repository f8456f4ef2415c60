"""Text to token ids, a block at a time, in worker processes: by SentencePiece's own library.

TensorFlow, which other tokenizers take, would be 400 MB in each process.
"""

from __future__ import annotations

import functools
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

from training.command.errors import ConfigError, UserError
from training.command.native import start_tensorflow
from training.config.schema import Config
from training.data.lines import MOST_UNUSABLE, Block, Skipped
from training.data.pair_files import CorpusError
from training.data.pieces import SENTENCEPIECE, Pieces, model_of, model_state, train_sentencepiece
from training.data.specs import Spec
from training.data.splits import Division, too_few
from training.data.store import SIDES, Ids

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


class Copying(NamedTuple):
    """How words are copied from a source."""

    hidden: float  # share of pairs whose names are hidden
    longest: int  # tokens of a source
    seed: int


class Tokenizing(NamedTuple):
    """The settings by which texts become tokens."""

    kinds: tuple[str, str]  # of both sides' tokenizers
    sizes: tuple[int, int]  # of their vocabularies, at most
    copying: Copying | None  # None where no words are copied

    @classmethod
    def of(cls, config: Config) -> Tokenizing:
        """Return the settings of a configuration."""
        copying = Copying(config.copy_hidden, config.max_source_length, config.seed)
        return cls(
            (config.source_tokenizer, config.target_tokenizer),
            (config.source_vocab_size, config.target_vocab_size),
            copying if config.copy else None,
        )


class Encoding(NamedTuple):
    """The tokenizers, trained, and how words are copied."""

    tokenizers: tuple[Path, Path]  # files of both sides
    copying: Copying | None

    def check_targets(self, name: str | Spec, targets: Sequence[str], most: float) -> None:
        """Check targets as `check_targets` does; those with copied words may have any word."""
        if self.copying is None:
            check_targets(name, targets, _reader(self.tokenizers[1].read_text("utf-8")), most)


def train_state(side: str, kind: str, size: int, lines: Sequence[str]) -> dict[str, Any]:
    """Train the tokenizer of "source" or "target" on lines, and return its file's content.

    Raises ConfigError where it cannot be trained with these settings.
    """
    try:
        if kind == SENTENCEPIECE:
            # Variants of a character in a source are one; a target keeps its own characters.
            rule = "nmt_nfkc" if side == "source" else "identity"
            return model_state(train_sentencepiece(lines, size, normalization=rule))
        start_tensorflow()
        from training.data.tokenizers import train_vocabulary

        return train_vocabulary(kind, lines, size).state()
    except ValueError as error:
        raise ConfigError(f"{side}_vocab_size={size}: {error}") from error


def train_side(
    samples: Sequence[tuple[Block, Division]], side: str, kind: str, size: int
) -> dict[str, Any]:
    """Train the tokenizer of a side on the training pairs of blocks, as `train_state` does."""
    texts = [
        pair[SIDES.index(side)]
        for block, division in samples
        for split, *pair in division.pairs(block, Skipped())
        if split == "train"
    ]
    if not texts:
        raise too_few(samples[0][0].spec, "train")
    return train_state(side, kind, size, texts)


def check_targets(
    name: str | Spec, targets: Sequence[str], tokenizer: Any, most: float = MOST_UNUSABLE
) -> None:
    """Print how many targets a tokenizer cannot write, or not as they are, with examples.

    Raises CorpusError where all, or more than a share of `most`, have no known token.
    """
    targets = targets[:MOST_CHECKED]
    said = [(target, *each) for target, each in zip(targets, tokenizer.said(targets), strict=True)]
    of = f"of {len(targets):,} targets"
    if lacking := [(again, unknown) for _, again, unknown in said if unknown]:
        tokens = dict.fromkeys(token for _, unknown in lacking for token in unknown)
        shown = " ".join(list(tokens)[:MOST_NAMED]) + (" …" if len(tokens) > MOST_NAMED else "")
        line = f"{name}: {len(lacking):,} {of} have tokens that the model cannot say, "
        line += f"{len(tokens):,} in all: {shown}"
        wholly = sum(not again.replace("⁇", "").strip() for again, _ in lacking)
        if most < 1 and wholly > min(max(1, most * len(targets)), len(targets) - 1):
            raise CorpusError(f"{line}; {wholly:,} targets have no other")
        print(line, flush=True)
    if wrong := [pair for *pair, unknown in said if not unknown and pair[0] != pair[1]]:
        print(f"{name}: {len(wrong):,} {of} are said otherwise: {wrong[0][0]!r} as {wrong[0][1]!r}")


def encode_block(
    block: Block, division: Division, encoding: Encoding
) -> tuple[tuple[Ids, Ids], dict[str, Pairs], Skipped]:
    """Return the token ids of training pairs, the pairs of dev and test, and skipped lines."""
    skipped, parts = Skipped(), dict[str, Pairs](train=[], dev=[], test=[])
    for split, source, target in division.pairs(block, skipped):
        parts[split].append((source, target))
    return encode_pairs(parts.pop("train"), encoding), parts, skipped


def encode_pairs(pairs: Pairs, encoding: Encoding) -> tuple[Ids, Ids]:
    """Return the token ids of the sources and targets of pairs."""
    source, target = (_reader(file.read_text(encoding="utf-8")) for file in encoding.tokenizers)
    if encoding.copying is None:
        return source.encode([a for a, _ in pairs]), target.encode([b for _, b in pairs])
    from training.data.token_ids import encode_to_copy

    return encode_to_copy((source, target), encoding.copying, pairs)


@functools.lru_cache(maxsize=2)
def _reader(state: str) -> Any:
    """Return the tokenizer of a file's content, without TensorFlow where it is SentencePiece's."""
    loaded = json.loads(state)
    if loaded["kind"] == SENTENCEPIECE:
        return Pieces(model_of(loaded))
    start_tensorflow()
    from training.data.tokenizers import tokenizer_of

    return tokenizer_of(loaded)
