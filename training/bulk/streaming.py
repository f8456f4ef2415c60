"""Files of pairs become a run's token ids without being held in memory: see `corpora`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from training.bulk.cleaning import Filters
from training.bulk.corpora import Plan, clean, encode, hold_out, make_tokenizers
from training.bulk.encoding import pairs_of
from training.bulk.workers import workers
from training.config.schema import Config
from training.data import corpus
from training.data.pair_files import MOST_UNUSABLE, CorpusError, fingerprint
from training.data.prepared import Streamed, read_texts
from training.data.splits import held_out, load_split
from training.data.token_files import SIDES

SMALL = 16 << 20  # bytes: of files with less, all is done in this process


def stream(config: Config, folder: Path) -> Streamed | None:
    """Write the tokenizers and the token ids of a run's texts.

    Args:
        config: of a run from text to text.
        folder: where they are written; made anew.

    Returns:
        What was written; None for what is not read so: corpora that have splits, a part of a
        corpus, several of them, words to copy, and files in which something is wrong, which the
        reader of whole files says best.

    Raises:
        ConfigError: if a tokenizer cannot be trained with these settings.
    """
    form, _, paths = config.data.partition(":")
    whole = not (config.copy or config.extra_data or config.train_limit)
    if form not in ("tsv", "parallel") or paths == corpus.STDIN or not whole:
        return None
    shutil.rmtree(folder, ignore_errors=True)
    work = folder / "work"
    work.mkdir(parents=True)
    try:
        return _stream(config, folder, work, paths.split(",") if form == "parallel" else [paths])
    except (CorpusError, OSError):
        return None
    finally:
        shutil.rmtree(work)


def _stream(config: Config, folder: Path, work: Path, paths: list[str]) -> Streamed | None:
    small = sum(Path(path).stat().st_size for path in paths) < SMALL
    plan = Plan(Filters(), 0 if small else os.cpu_count() or 1)
    with workers(plan.processes) as run:
        cleaned, left_out = clean(config, plan.filters, work, run)
        counts = [block.pairs for block in cleaned]
        unusable = sum(block.unusable for block in cleaned)
        lines = sum(block.lines for block in cleaned) - left_out["blank"]
        if left_out.keys() - {"blank", "no pair"} or (len(paths) > 1 and left_out):
            return None
        if unusable > max(1, MOST_UNUSABLE * lines):
            return None
        hold_out(config, work, folder, len(cleaned))
        if held_out(config)[0]:
            dev = read_texts(folder / "dev.tsv")
        else:
            dev, _ = load_split(config, "dev")
        pairs = (pair for number in range(len(cleaned)) for pair in pairs_of(work, number))
        found = fingerprint(pairs, dev.pairs())
        make_tokenizers(config, plan, work, folder, cleaned)
        encoded = encode(work, folder, counts, run)
    said = {side: encoded[side] for side in SIDES}
    return Streamed(folder, said, dev, found, sum(counts), unusable)
