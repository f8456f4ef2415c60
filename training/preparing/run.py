"""A run directory with all that `training.train_arrays` needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np

from training.config import Config, ConfigError
from training.data.batches import PairBatches, Sentences
from training.data.copying import shared_words, vocabularies
from training.data.pipeline import pair_rows
from training.data.prepared import Prepared
from training.data.splits import load_training
from training.fit.arrays import token_arrays
from training.model import build_seq2seq
from training.runs.begin import begin, check_free, make_sides
from training.runs.files import SIDES, RunFiles
from training.runs.lock import locked
from training.runs.origin import Origin
from training.sources import TextSource


def prepare_run(config: Config, output: Path) -> dict:
    """Make a run directory with all that training needs; a prepared corpus stays where it is.

    Returns:
        Numbers of pairs, `train` and `dev`.

    Raises:
        CorpusError: if the data cannot be read.
        ConfigError: if the configuration does not fit the data.
        RunError: if the directory cannot be used.
    """
    if config.source != "text" or config.target != "text":
        raise ConfigError(f"training.prepare expected source = text. Received: {config.source}")
    files = RunFiles(output)
    with locked(files):
        check_free(files)
        data, dev = load_training(config)
        source, target = make_sides(config, data)
        assert target is not None
        sizes = source.size, target.vocab_size
        build_seq2seq(config, *sizes)  # finds out now what would fail elsewhere
        names = (f"{side}_vocab_size" for side in SIDES)
        arrays: dict[str, Any] = dict(zip(names, map(np.int64, sizes), strict=True))
        ids, dev_ids = (
            cast(tuple[Sentences, Sentences], pair_rows(config, split, source, target))
            for split in (data, dev)
        )
        statistics = PairBatches.of(config, *ids, training=True).statistics
        if not isinstance(data, Prepared):
            arrays |= token_arrays("", ids)
        arrays |= token_arrays("dev_", dev_ids)
        if config.copy:
            arrays["source_words"] = shared_words(*vocabularies(source, target))
        corpus_hash = TextSource.fingerprint(data, dev)
        origin = Origin.now(config.data, corpus_hash, statistics, len(dev.sources), sizes)
        begin(files, source, target, origin)
        np.savez_compressed(files.tokens, **arrays)
        config.save(files.config)
    return {"train": len(ids[0].lengths), "dev": len(dev_ids[0].lengths)}
