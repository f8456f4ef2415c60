"""How many of the scored sources a run has learned from, by their content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from training.command.errors import UserError
from training.config.schema import load_config
from training.data.read._specs import Spec
from training.data.tokens._prepared import Prepared
from training.runs._origin import read_origin
from training.runs.files import RunFiles
from training.runs.run import Run

_FEW = 0.05  # share of learned sources up to which scores are about right


def warning(run: Run, spec: str, split: Any) -> str | None:
    """Return a warning if the run learned from more than a few of the sources to score.

    Args:
        run: the run.
        spec: the SPEC of the examples, for the message.
        split: the examples, as the run's source loads them.
    """
    found = learned_sources(run, split)
    if found is None:  # only the name is known
        if Spec.of(spec).absolute() != run.config.data:
            return None
        return f"Warning: {spec} includes the training data, so these scores are too high"
    count, total = np.count_nonzero(found), len(found)
    if count <= _FEW * total:
        return None
    return (
        f"Warning: {spec}: {run.path} learned from {count:,} of the {total:,} sources, so these "
        "scores are too high"
    )


def learned_sources(run: Run, split: Any) -> np.ndarray | None:
    """Return which sources of a split the run learned from, boolean `(n,)`; None if unknown.

    The runs that its training started from, by `--init`, count, too.
    """
    found, path = list[np.ndarray](), run.path
    digests = run.source.digests(split)
    while (files := RunFiles(path)).config.is_file():
        learned = _learned_texts(files) if files.tokens.is_dir() else None
        if files.learned.is_file():
            learned = np.load(files.learned)
        if learned is not None:
            found.append(np.isin(digests, learned))
        origin = read_origin(files)
        if origin is None or origin.init is None:
            break
        path = Path(origin.init)
    return np.logical_or.reduce(found) if found else None


def _learned_texts(files: RunFiles) -> np.ndarray | None:
    """Return the numbers of a run's training texts; None if these are not known."""
    config = load_config(files.config)
    try:
        ids = Prepared(files.tokens, Spec.of(config.data)).training
    except UserError:  # the token ids are damaged or gone
        return None
    learned: np.ndarray | None = ids.learned(ids.rows(config.train_limit, config.seed))
    return learned
