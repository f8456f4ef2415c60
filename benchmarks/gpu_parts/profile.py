"""The time of each kernel of a training step, by Nsight Compute: does the card compute or wait?"""

from __future__ import annotations

import csv
import ctypes
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

MOST = 10  # kernels that are listed
METRIC = "gpu__time_duration.sum"
# Older releases of Nsight Compute write the units out, newer ones do not.
UNITS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3}


@contextmanager
def launches() -> Iterator[None]:
    """Within this, `ncu --profile-from-start off` sees what is launched; nothing without CUDA."""
    try:
        library = ctypes.CDLL("libcudart.so.12")
    except OSError:
        yield
        return
    library.cudaProfilerStart()
    yield
    library.cudaProfilerStop()


def rows(lines: Sequence[str], milliseconds: float | None) -> Iterator[dict[str, Any]]:
    """Give a row for all kernels, and one for each of those that take longest together.

    Args:
        lines: what `ncu --csv --metrics METRIC` printed, from the names of the columns on: a line a
            launch and metric. One that could not be measured has "n/a". None where `ncu` is not
            installed, or may not read the card's counters.
        milliseconds: of a step without Nsight Compute; the share of it is that which computes.
    """
    taken: dict[str, list[float]] = defaultdict(list)
    for row in csv.DictReader(lines):
        value, unit = row["Metric Value"].replace(",", ""), UNITS.get(row["Metric Unit"])
        if row["Metric Name"] == METRIC and unit and value.lower() != "n/a":
            taken[row["Kernel Name"]].append(float(value) * unit)
    total = sum(map(sum, taken.values()))
    share = total / milliseconds / 1e3 if milliseconds else None
    count = sum(map(len, taken.values()))
    none = {} if taken else {"ended": "no: ncu is missing, or saw none: see its words"}
    yield {"case": "all kernels", "launches": count, "us": total, "share_of_step": share, **none}
    for name, times in sorted(taken.items(), key=lambda item: -sum(item[1]))[:MOST]:
        yield {"case": name[:80], "launches": len(times), "us": sum(times)}
