"""The sentences that a run learns from, measures progress on, and is scored on.

A named corpus has its splits. Files have none: of their sources a share is held out for dev, and
for test if that is asked for, by a hash of each source's text, so that a sentence stays on its side
whatever is added to the file. Either can be other files instead. Extra data is learned from whole,
but for sources that are measured on.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from training.config.schema import Config
from training.data import corpus
from training.data.lines import read_blocks
from training.data.named import corpora
from training.data.pair_files import CorpusError, Split, merge_sources, number_of, sample

HELD_OUT = ("dev", "test")
# Lines, about, that are held out for dev where no share is chosen: 1,000 of many, and of few enough
# to tell epochs apart.
DEV_SHARE, MOST_DEV = 0.02, 1000
SMALL_DEV_SHARE, SMALL_DEV = 0.1, 300


def load_split(
    config: Config, name: str, *, limit: int | None = None, seed: int = 0
) -> tuple[Split, dict[str, str]]:
    """Read a split of what a run is about: at most `limit` sentences, a random sample of them.

    Return what was really read, too: the SPEC, `data`, and its `split`, which is "all" for files
    that were read whole. Raises CorpusError where there is no such split, or it cannot be read.
    """
    setting = getattr(config, name) if name in HELD_OUT else ""
    is_other = bool(setting) and _share(config, name) is None
    spec = setting if is_other else config.data
    if is_other or not corpus.is_file(spec):
        loaded = corpora.in_target_script(
            config.data, corpus.load(spec, name, limit=limit, seed=seed)
        )
        return loaded, {"data": spec, "split": "all" if corpus.is_file(spec) else name}
    lines = 0 if config.dev else sum(block.lines for block in read_blocks(config.data))
    shares = held_out(config, lines)
    there = [split for split, share in zip(HELD_OUT, shares, strict=True) if share]
    if name not in ("train", *there):
        named = ["train", *(key for key in HELD_OUT if key in there or getattr(config, key))]
        raise CorpusError(
            f"this run on {config.data} has no split {name!r}; it has {', '.join(named)}. Name the "
            "data with --data, or hold a test set out when a run begins, with --test"
        )
    every = corpus.load(config.data, "train")
    splits = [split_of(source, shares) for source in every.sources]
    part = every.select([i for i, split in enumerate(splits) if split == name])
    if not part.sources:
        raise too_few(config.data, name)
    if name != "train":
        part = merge_sources(dataclasses.replace(part, unusable=0))  # they are counted once
    return sample(part, limit, seed), {"data": config.data, "split": name}


def held_out(config: Config, lines: int) -> tuple[float, float]:
    """Return the shares of the sources, in so many lines, that are held out for dev and test."""
    dev, test = (_share(config, name) or 0.0 for name in HELD_OUT)
    if not config.dev and corpus.is_file(config.data):
        dev = dev_share(lines)
    if dev + test >= 1:
        raise CorpusError(
            f"dev and test expected shares below 1 in all. Received: {dev} and {test}"
        )
    return dev, test


def dev_share(lines: int) -> float:
    """Return the share of so many lines that is held out for dev where none is chosen."""
    few = min(SMALL_DEV_SHARE * lines, SMALL_DEV)
    return min(max(DEV_SHARE * lines, few), MOST_DEV) / max(1, lines)


def too_few(data: str, name: str) -> CorpusError:
    """Return the error for data of which no sentence is held out for dev or test."""
    return CorpusError(
        f"{data} has too few sentences to hold out a dev set or a test set: {name} would be empty"
    )


def _share(config: Config, name: str) -> float | None:
    """Return the share to hold out for dev or test; None where it is not a number."""
    setting = getattr(config, name)
    try:
        share = float(setting)
    except ValueError:
        return None
    if not corpus.is_file(config.data):
        raise CorpusError(
            f"{name} expected a SPEC, for {config.data} has splits. Received: {setting}"
        )
    if not 0 < share < 1:
        raise CorpusError(f"{name} expected a SPEC or 0 < share < 1. Received: {setting}")
    return share


def split_of(source: str, shares: tuple[float, float]) -> str:
    """Return the split of a source, where shares are held out for dev and test.

    A number from 0 to 1 that depends on the text alone decides.
    """
    if not any(shares):
        return "train"
    digest = number_of(source)
    place = (digest % 50 + digest // 50 % 1_000_000 / 1_000_000) / 50
    return "dev" if place < shares[0] else "test" if place >= 1 - shares[1] else "train"


def fitting_metric(references: Sequence[Sequence[str]]) -> str:
    """Return what fits the references: `exact` where most have three words or fewer, or `bleu`.

    BLEU counts runs of up to four words, of which such sentences have none. Each character of
    Chinese and Japanese is a word.
    """
    words = r"[\u3040-\u30ff\u3400-\u9fff]|[^\s\u3040-\u30ff\u3400-\u9fff]+"
    short = sum(len(re.findall(words, texts[0])) < 4 for texts in references)
    return "exact" if 2 * short > len(references) else "bleu"
