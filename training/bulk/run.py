"""A run directory with all that `training.train_arrays` needs."""

from __future__ import annotations

from pathlib import Path

from training.bulk.streaming import stream
from training.command.errors import ConfigError
from training.config.schema import Config
from training.model.build import build_model
from training.model.seq2seq import check_attention
from training.runs.begin import begin, check_free, open_run
from training.runs.files import RunFiles
from training.runs.lock import locked
from training.sources.kinds import KINDS


def prepare_run(config: Config, output: Path) -> dict:
    """Make a run directory with all that training needs; a prepared corpus stays where it is.

    Returns:
        Numbers of pairs, `train` and `dev`.

    Raises:
        CorpusError: if the data cannot be read.
        ConfigError: if the configuration does not fit the data.
        RunError: if the directory cannot be used.
    """
    if not KINDS[config.source].tokens:
        raise ConfigError(f"training.prepare expected source = text. Received: {config.source}")
    files = RunFiles(output)
    with locked(files):
        check_free(files)
        check_attention(config)  # before the data are read
        opened = open_run(files, config, streamed=stream(config, files.streamed))
        build_model(config, *opened.origin.vocabulary)  # finds out now what would fail elsewhere
        begin(files, opened)
    pairs, dev_pairs = opened.pairs.statistics, opened.dev_pairs.statistics
    return {"train": pairs.pairs + pairs.dropped, "dev": dev_pairs.pairs}
