"""Token ids of a run's texts, in its directory: text is tokenized once, when a run begins.

They are written aside until the run begins. Pairs of a prepared corpus stay where they are.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.command.errors import RunError, UserError
from training.command.files import move
from training.config.schema import Config
from training.data.batches import Batches, text_batches
from training.data.corpus import is_prepared
from training.data.pair_files import CorpusError
from training.data.plan import Batching
from training.data.prepared import WORDS, Prepared
from training.data.subwords import Samplers, make_sampler
from training.runs.files import RunFiles


def move_tokens(files: RunFiles) -> Path:
    """Move the token ids that were written aside into the run; return their folder."""
    shutil.rmtree(files.tokens, ignore_errors=True)
    return move(files.streamed, files.tokens)


def tokens_of(files: RunFiles) -> Prepared | None:
    """Return the token ids of a run; None where they are missing or damaged."""
    try:
        return Prepared(files.tokens)
    except UserError:
        return None


def read_batches(
    config: Config, folder: Path, tokenizers: Sequence[Mapping[str, Any]] = ()
) -> tuple[Batches, Batches]:
    """Return the batches for training and those of the dev set.

    Args:
        config: of the run.
        folder: of its token ids.
        tokenizers: what the files of both sides hold, to train with `subword_sampling`.

    Raises:
        UserError: the ids of the run, or of its prepared corpus, are damaged.
    """
    try:
        own = Prepared(folder)
    except CorpusError as error:
        raise RunError(str(error)) from None
    corpus = Prepared(config.data) if is_prepared(config.data) else own
    samplers: Samplers = (None, None)
    if config.subword_sampling and tokenizers:
        alpha, (source, target) = config.subword_sampling, tokenizers
        samplers = make_sampler(alpha, source), make_sampler(alpha, target)
    batching = Batching.of(config)
    rows = corpus.rows(config.train_limit, config.seed)
    pairs = text_batches(batching, *corpus.sides(), training=True, rows=rows, samplers=samplers)
    dev = text_batches(batching, *own.sides("dev"), training=False, shapes=pairs.plan.shapes)
    return pairs, dev


def read_source_words(folder: Path) -> np.ndarray:
    """Return the words of both vocabularies: see `training.data.tokenizing.shared_words`."""
    return np.load(folder / WORDS)
