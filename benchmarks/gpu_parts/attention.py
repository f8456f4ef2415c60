"""`scores.additive` and `AdditiveAttention` beside the plain formula, Keras's layer and the floor.

The floor of a forward pass is the longer of two times: inputs and outputs read and written once at
the rate of a copy, and one `tanh` a (query, key, unit). A training step has gradients to write
too, and every `tanh` twice, since keeping them takes more memory than time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from parts.calls import attention_case, make_calls

from gpu_parts import calls

SIZES = ((32, 48, 48, 512), (64, 128, 128, 512))  # batch, queries, keys, units
TINY = ((3, 5, 7, 11),)


def measure(tiny: bool, rates: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    """Give a row a size, dtype and case.

    Args:
        tiny: whether it is to run, not to measure.
        rates: of the machine, `copy_gb_per_s` and `tanh_per_s`.
    """
    for size in TINY if tiny else SIZES:
        for dtype in ("float32", "bfloat16"):
            yield from _of_size(size, dtype, 2 if tiny else 20, rates)


def _of_size(
    size: tuple[int, int, int, int], dtype: str, repeat: int, rates: Mapping[str, float]
) -> Iterator[dict[str, Any]]:
    batch, queries, keys, units = size
    rng = np.random.default_rng(7)
    query, key, scale = (
        rng.normal(size=shape).astype("float32")
        for shape in ((batch, queries, units), (batch, keys, units), (units,))
    )
    bytes_each = np.dtype("float32").itemsize // (2 if dtype == "bfloat16" else 1)
    floor = _floor(size, bytes_each, rates)
    fast: dict[str, float] = {}
    for name in (
        "scores.additive",
        "plain formula",
        "AdditiveAttention",
        "keras AdditiveAttention",
    ):
        row = {"case": name, "size": "×".join(map(str, size)), "dtype": dtype}
        try:
            case = attention_case(name, query, key, scale, dtype)
            for what, call in make_calls(case).items():
                row[f"{what}_ms"] = calls.milliseconds(call, repeat)
                row[f"{what}_mb"] = calls.peak_megabytes(call)
                if name == "scores.additive":
                    row[f"{what}_share_of_floor"] = floor[what] / row[f"{what}_ms"]
                    fast[what] = row[f"{what}_ms"]
                elif name == "plain formula" and what in fast:
                    row[f"{what}_times_slower"] = row[f"{what}_ms"] / fast[what]
        except (RuntimeError, MemoryError, ValueError) as error:  # such as the memory of the card
            row["error"] = str(error).splitlines()[0][:200]
        yield row


def _floor(
    size: tuple[int, int, int, int], bytes_each: int, rates: Mapping[str, float]
) -> dict[str, float]:
    """Return the milliseconds that the scores take at least."""
    batch, queries, keys, units = size
    inputs, outputs = batch * (queries + keys) * units, batch * queries * keys
    triples = batch * queries * keys * units
    moved = {"forward": inputs + outputs, "step": 2 * (inputs + outputs)}
    done = {"forward": triples, "step": 2 * triples}
    return {
        what: max(
            moved[what] * bytes_each / rates["copy_gb_per_s"] / 1e6,
            done[what] / rates["tanh_per_s"] * 1e3,
        )
        for what in moved
    }
