"""The data of quality_peers.py: a preset's splits as pieces that every peer reads alike."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from parts.quality import pieces, vocabulary, words

from training.config.schema import Config
from training.data.read._sentences import Split, sample
from training.data.read.texts import Texts, load_split
from training.data.tokens._prepared import Prepared
from training.data.tokens._token_ids import tokenize
from training.data.tokens.store import Sequences
from training.data.tokens.tokenizers import load_tokenizer
from training.model.seq2seq import build_model
from training.runs._start import open_run
from training.runs.files import SIDES, RunFiles

LONGEST = 1 << 16  # tokens
CHUNK = 4096  # sentences put together at a time


def prepare(config: Config, folder: Path, dev_limit: int | None = None) -> None:
    """Write the data of a configuration, unless they are there.

    Args:
        config: what is trained on what.
        folder: made if it is not there; `Task` in quality.py says what is in it.
        dev_limit: see `load_dev`.

    Raises:
        UserError: if the data cannot be read, or no tokenizer can be made of them.
    """
    if (folder / "sizes.json").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    files = RunFiles(folder)
    opened = open_run(files, config)
    tokenizers = opened.source.tokenizer, opened.target
    for side, tokenizer in zip(SIDES, tokenizers, strict=True):
        tokenizer.save(folder / f"{side}.tokenizer")
        _write(folder / f"vocabulary.{side}", vocabulary(tokenizer.vocab_size))
    ids = Prepared(files.streamed)
    chosen = ids.rows(config.train_limit, config.seed)
    every = np.arange(ids.count) if chosen is None else chosen
    train = [side.select(every[:, None], LONGEST) for side in ids.sides()]
    rows = {"train": _short_enough(config, *map(_rows, train))}
    valid = sample(opened.dev, config.max_dev_translations or None, config.seed)
    scored = load_dev(config, dev_limit)
    for name, split in {"valid": valid, "dev": scored}.items():
        first = split.sources, [references[0] for references in split.references]
        sides = zip(first, tokenizers, strict=True)
        rows[name] = [_rows(tokenize(texts, tokenizer)) for texts, tokenizer in sides]
    for name, both in rows.items():
        for side, sentences in zip(SIDES, both, strict=True):
            _write(folder / f"{name}.{side}", map(words, sentences))
    shutil.rmtree(files.streamed)
    pairs = len(rows["train"][0])
    model = build_model(config, *(tokenizer.vocab_size for tokenizer in tokenizers))
    counts = {"pairs": pairs, "dev": len(scored.sources), "weights": model.count_params()}
    (folder / "sizes.json").write_text(json.dumps(counts) + "\n")


def load_dev(config: Config, limit: int | None) -> Split:
    """Read what is scored, all of dev for None, as `training.evaluate --limit` does."""
    return load_split(Texts.of(config), "dev", limit=limit)[0]


def texts(lines: Sequence[str], folder: Path) -> list[str]:
    """Put the pieces of each line together as the tokenizer of the target side does."""
    tokenizer, found = load_tokenizer(folder / "target.tokenizer"), []
    for start in range(0, len(lines), CHUNK):
        ids = [
            [number for number in pieces(line) if number < tokenizer.vocab_size]
            for line in lines[start : start + CHUNK]
        ]
        padded = tf.ragged.constant(ids, tf.int32, ragged_rank=1).to_tensor()
        found += [text.decode("utf-8") for text in tokenizer.detokenize(padded).numpy()]
    return found


def _rows(sentences: Sequences) -> list[list[int]]:
    values = sentences.values
    return [
        values[start : start + length].tolist()
        for start, length in zip(sentences.starts, sentences.lengths, strict=True)
    ]


def _short_enough(config: Config, sources: list, targets: list) -> list[list]:
    """Leave out the pairs that the preset's training leaves out."""
    limits = config.max_source_length, config.max_target_length
    kept = [
        pair
        for pair in zip(sources, targets, strict=True)
        if all(0 < len(side) <= limit for side, limit in zip(pair, limits, strict=True))
    ]
    return [list(side) for side in zip(*kept, strict=True)]


def _write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
