"""How probable given targets are: the decoder's step, made to say them."""

from __future__ import annotations

import numpy as np

from serving.client.local.model import Folder
from serving.client.local.tokenizers import START_ID


def score_targets(folder: Folder, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return the log-probability of each target token after those before it.

    Args:
        folder: the export.
        source: int64 `(B, S)`, padded with 0.
        target: int64 `(B, T)`, T at least 1; END is a token like the others.

    Returns:
        float32 `(B, T)`.
    """
    manifest = folder.manifest["graphs"]
    made = folder.run("encoder", {"ids": source})
    memory = {name: made[name] for name in manifest["memory"]}
    state = {name: made[name] for name in manifest["state"]}
    last = np.full(len(target), START_ID, "int64")
    found = np.zeros(target.shape, "float32")
    for time, wanted in enumerate(target.T):
        taken = folder.run("step", {"tokens": last, **memory, **state})
        found[:, time] = taken["log_probs"][np.arange(len(wanted)), wanted]
        state = {name: taken[f"next_{name}"] for name in state}
        last = wanted
    return found
