"""Encode texts to token ids, a block at a time, in worker processes.

SentencePiece's own library encodes subwords. TensorFlow, which all other tokenizers need, would
take 400 MB in each process.
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

import numpy as np

from training.command.errors import ConfigError, UserError
from training.command.native import start_tensorflow
from training.command.progress import print_note
from training.config.schema import Config
from training.data._lines import MOST_UNUSABLE, Block, Skipped
from training.data._pair_files import CorpusError, digest_of
from training.data._specs import Spec
from training.data.pieces import SENTENCEPIECE, Pieces, model_of, model_state, train_sentencepiece
from training.data.rules import ALPHABETS
from training.data.splits import Division, too_few
from training.data.store import SIDES, Ids

MOST_CHECKED = 100_000  # most targets that are checked
MOST_UNREAD = 0.9  # largest share of sources without a known token
MOST_NAMED = 10  # tokens that a message lists
_UNKNOWN = {"source": "cannot tell apart", "target": "can never output"}
Pairs = list[tuple[str, str]]  # a source and its target each
Run = Callable[[Callable[..., Any], Iterable[tuple]], Iterator[Any]]


@contextmanager
def workers(count: int) -> Iterator[Run]:
    """Start `count` worker processes; with 0, all calls run in this process.

    Yield `run(function, tasks)`, which calls the function with each tuple of arguments and yields
    the results in order. `run` takes a task only when a worker needs one. Raises UserError if a
    worker is killed.
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
            "A worker process was killed, probably because memory ran out. Close other programs "
            "and try again; training.prepare also takes --workers 1"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _initialize() -> None:
    """Ignore Ctrl-C, which the parent process handles, and end when the parent process ends."""
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
    longest: int  # most tokens of a source
    seed: int  # seed of the draw of hidden names


class Tokenizing(NamedTuple):
    """The settings of both tokenizers."""

    kinds: tuple[str, str]  # kinds of the source's and the target's tokenizer
    sizes: tuple[int, int]  # largest sizes of their vocabularies
    copying: Copying | None  # None if no words are copied

    @classmethod
    def of(cls, config: Config) -> Tokenizing:
        """Return the settings of a configuration."""
        copying = Copying(config.copy_masking, config.max_source_length, config.seed)
        return cls(
            (config.source_tokenizer, config.target_tokenizer),
            (config.source_vocab_size, config.target_vocab_size),
            copying if config.copy else None,
        )


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
        from training.data.tokenizers import train_vocabulary

        return train_vocabulary(kind, lines, size).state()
    except ValueError as error:
        raise ConfigError(f"{side}_vocab_size={size}: {error}") from error


def train_side(
    samples: Sequence[tuple[Block, Division]], side: str, kind: str, size: int
) -> dict[str, Any]:
    """Return the content of a tokenizer's file, trained on one side of blocks' training pairs."""
    texts = [
        pair[SIDES.index(side)]
        for block, division in samples
        for split, *pair in division.pairs(block, Skipped())
        if split == "train"
    ]
    if not texts:
        raise too_few(samples[0][0].spec, "train")
    return train_state(side, kind, size, texts)


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
    said = [(text, *each) for text, each in zip(texts, tokenizer.said(texts), strict=True)]
    if side == "source":
        most = max(most, MOST_UNREAD)
        if getattr(tokenizer, "kind", SENTENCEPIECE) in ALPHABETS:  # whole letters, not their parts
            letters = [each.decode() for each in tokenizer.unknown(texts).numpy()]
            rows = zip(said, letters, strict=True)
            said = [(text, again, list(unknown)) for (text, again, _), unknown in rows]
    of = f"of {len(texts):,} {side}s"
    if lacking := [(again, unknown) for _, again, unknown in said if unknown]:
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
    if wrong := [pair for *pair, unknown in said if not unknown and pair[0] != pair[1]]:
        example = f"for example {wrong[0][0]!r} to {wrong[0][1]!r}"
        print_note(f"{name}: the tokenizer changes {len(wrong):,} {of}, {example}")


def encode_block(
    block: Block, division: Division, encoding: Encoding
) -> tuple[tuple[Ids, Ids], np.ndarray, dict[str, Pairs], Skipped]:
    """Encode the training pairs of a block.

    Returns:
        The token ids of both sides, the `digest_of` each source, uint64 `(n,)`, the dev and the
        test pairs, and the skipped lines.
    """
    skipped, parts = Skipped(), dict[str, Pairs](train=[], dev=[], test=[])
    for split, source, target in division.pairs(block, skipped):
        parts[split].append((source, target))
    pairs = parts.pop("train")
    digests = np.array([digest_of(source.encode()) for source, _ in pairs], np.uint64)
    return encode_pairs(pairs, encoding), digests, parts, skipped


def encode_pairs(pairs: Pairs, encoding: Encoding) -> tuple[Ids, Ids]:
    """Return the token ids of all sources, and of all targets."""
    source, target = (_reader(file.read_text(encoding="utf-8")) for file in encoding.tokenizers)
    if encoding.copying is None:
        return source.encode([a for a, _ in pairs]), target.encode([b for _, b in pairs])
    from training.data._token_ids import encode_to_copy

    return encode_to_copy((source, target), encoding.copying, pairs)


@functools.lru_cache(maxsize=2)
def _reader(state: str) -> Any:
    """Return the tokenizer of a file's content, without TensorFlow if it is SentencePiece's."""
    loaded = json.loads(state)
    if loaded["kind"] == SENTENCEPIECE:
        return Pieces(model_of(loaded))
    start_tensorflow()
    from training.data.tokenizers import tokenizer_of

    return tokenizer_of(loaded)
