"""Sources of the dev split: examples to show people, and texts to compare answers on."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from training.command.errors import UserError
from training.data.splits import load_split
from training.runs.run import Run
from training.sources.kinds import KINDS

COUNT = 5
_DRAWN = 100  # sources of which they are taken
_MOST_CHARACTERS = 80
_MOST_BYTES = 20_000  # of an image


def dev_sources(run: Run, limit: int) -> list[Any]:
    """Return at most so many sources of the dev split, none where it cannot be found."""
    config = run.config
    try:
        if KINDS[config.source].tokens:
            return list(load_split(config, "dev", limit=limit)[0].sources)
        return list(run.source.load_split(config, config.data, "dev", limit=limit).sources)
    except UserError:
        return []


def examples(run: Run) -> list[str]:
    """Return short texts, or small images in base64, to begin with; none of histories."""
    if KINDS[run.config.source].tokens:
        texts = dict.fromkeys(dev_sources(run, _DRAWN))
        return [text for text in texts if len(text) <= _MOST_CHARACTERS][:COUNT]
    if run.config.source != "image":
        return []
    found = dev_sources(run, COUNT)
    files = [file.read_bytes() if isinstance(file, Path) else file for file in found]
    return [base64.b64encode(file).decode() for file in files if len(file) <= _MOST_BYTES]
