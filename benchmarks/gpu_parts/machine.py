"""The machine: card, driver and versions; how fast it copies, and how many `tanh` it does."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import keras
import numpy as np

from gpu_parts import calls

PACKAGES = ("keras", "numpy", "jax", "jaxlib", "torch", "triton", "tensorflow")
IN_A_ROW = 64  # so many in one kernel that memory does not matter


def measure(tiny: bool) -> Iterator[dict[str, Any]]:
    """Give a row of facts, then one of rates: `copy_gb_per_s` and `tanh_per_s`."""
    yield {"case": "machine", **_card(), "python": platform.python_version(), **_versions()}
    size = 2**16 if tiny else 2**28
    x = np.ones(size, "float32")
    copy = calls.milliseconds(calls.fused(lambda x: x + 1.0, x), 3 if tiny else 20)
    yield {"case": "copy", "copy_gb_per_s": 2 * x.nbytes / copy / 1e6}

    def many(x: Any) -> Any:
        for _ in range(IN_A_ROW):
            x = keras.ops.tanh(x)
        return x

    x = x[: size // 16]
    taken = calls.milliseconds(calls.fused(many, x), 3 if tiny else 20)
    yield {"case": "tanh", "tanh_per_s": IN_A_ROW * x.size / taken * 1e3}


def _card() -> dict[str, str]:
    if not calls.on_gpu() or shutil.which("nvidia-smi") is None:
        return {"card": "none" if not calls.on_gpu() else "unknown", "driver": "none"}
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    card, driver, memory = subprocess.check_output(query, text=True).splitlines()[0].split(", ")
    return {"card": card, "driver": driver, "memory": memory}


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
