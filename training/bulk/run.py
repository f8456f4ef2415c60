"""A run directory with all that `training.train_arrays` needs."""

from __future__ import annotations

from pathlib import Path

from training.command.errors import ConfigError
from training.config.schema import Config
from training.data.splits import load_training
from training.model.build import build_model
from training.model.seq2seq import build_attention
from training.runs.begin import begin, check_free, make_sides, tokenize_pairs
from training.runs.files import RunFiles
from training.runs.lock import locked
from training.runs.origin import Origin
from training.runs.tokens import read_batches
from training.sources.text.source import TextSource


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
        build_attention(config)  # refuses what there is not, before the data are read
        data, dev = load_training(config)
        source, target = make_sides(config, data)
        assert target is not None
        sizes = source.size, target.vocab_size
        build_model(config, *sizes)  # finds out now what would fail elsewhere
        corpus_hash = TextSource.fingerprint(data, dev)
        folder = tokenize_pairs(files, config, data, dev, (source, target), corpus_hash)
        pairs, dev_pairs = (batches.statistics for batches in read_batches(config, folder))
        origin = Origin.now(config.data, corpus_hash, pairs, len(dev.sources), sizes)
        begin(files, source, target, origin)
        config.save(files.config)
    return {"train": pairs.pairs + pairs.dropped, "dev": dev_pairs.pairs}
