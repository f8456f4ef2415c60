"""The machine: card, driver and versions; how fast it copies, and how many `tanh` it does."""

from __future__ import annotations

import functools
import os
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
# Of each card: dense products a second in bfloat16 and in TensorFloat-32, float32's default there,
# and bytes a second (NVIDIA's data sheets, SXM).
RATES = {
    "H100": (989e12, 494e12, 3.35e12),
    "H200": (989e12, 494e12, 4.8e12),
    "A100": (312e12, 156e12, 2.04e12),
}
IN_A_ROW = 64  # so many in one kernel that memory does not matter


def measure(tiny: bool) -> Iterator[dict[str, Any]]:
    """Give a row of facts, then one of rates: `copy_gb_per_s` and `tanh_per_s`."""
    facts = {"python": platform.python_version(), "XLA_FLAGS": os.environ.get("XLA_FLAGS", "")}
    yield {"case": "machine", **_card(), **facts, **_versions()}
    size = 2**16 if tiny else 2**28
    x = np.ones(size, "float32")
    copy = calls.milliseconds(calls.fused(lambda x: x + 1.0, x), 3 if tiny else 20)
    rate = 2 * x.nbytes / copy / 1e6
    rates = _rates()
    share_of_peak = rate * 1e9 / rates[2] if rates else None
    yield {"case": "copy", "copy_gb_per_s": rate, "share_of_peak": share_of_peak}

    def many(x: Any) -> Any:
        for _ in range(IN_A_ROW):
            x = keras.ops.tanh(x)
        return x

    x = x[: size // 16]
    taken = calls.milliseconds(calls.fused(many, x), 3 if tiny else 20)
    yield {"case": "tanh", "tanh_per_s": IN_A_ROW * x.size / taken * 1e3}


def share(flops: float, precision: str) -> float | None:
    """Return the share of the card's rate that so many operations a second are, where it is known.

    Args:
        flops: additions and multiplications a second.
        precision: "float32" or "mixed_bfloat16".
    """
    rates = _rates()
    return flops / rates[0 if precision == "mixed_bfloat16" else 1] if rates else None


def _rates() -> tuple[float, float, float] | None:
    card = _card()["card"]
    return next((rates for name, rates in RATES.items() if name in card), None)


@functools.cache
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
