"""Counters and histograms, with the stock server's names, as Prometheus text."""

import bisect
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

# Microseconds, 10 to about 20 minutes.
_BUCKETS = [10 * 1.8**power for power in range(33)]

Labels = tuple[tuple[str, str], ...]


def _text(labels: Labels, *more: tuple[str, str]) -> str:
    escaped = (
        (name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for name, value in (*labels, *more)
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"


class _Counter:
    def __init__(self) -> None:
        self.values: dict[Labels, int] = defaultdict(int)

    def lines(self, name: str) -> Iterator[str]:
        yield f"# TYPE {name} counter"
        for labels, value in self.values.items():
            yield f"{name}{_text(labels)} {value}"


class _Gauge:
    def __init__(self) -> None:
        self.values: dict[Labels, float] = {}

    def lines(self, name: str) -> Iterator[str]:
        yield f"# TYPE {name} gauge"
        for labels, value in self.values.items():
            yield f"{name}{_text(labels) if labels else ''} {value:.15g}"


class _Histogram:
    def __init__(self) -> None:
        self.values: dict[Labels, list[int]] = defaultdict(lambda: [0] * (len(_BUCKETS) + 1))
        self.sums: dict[Labels, float] = defaultdict(float)

    def lines(self, name: str) -> Iterator[str]:
        yield f"# TYPE {name} histogram"
        limits = [*(f"{limit:g}" for limit in _BUCKETS), "+Inf"]
        for labels, counts in self.values.items():
            total = 0
            for limit, count in zip(limits, counts, strict=True):
                total += count
                yield f"{name}_bucket{_text(labels, ('le', limit))} {total}"
            yield f"{name}_sum{_text(labels)} {self.sums[labels]:g}"
            yield f"{name}_count{_text(labels)} {total}"


class Metrics:
    """The server's counters, histograms and gauges. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._metrics: dict[str, Any] = {  # a name says which
            ":tensorflow:serving:request_count": _Counter(),
            ":tensorflow:serving:request_latency": _Histogram(),
            ":tensorflow:serving:runtime_latency": _Histogram(),
            ":tensorflow:serving:batching_session:queuing_latency": _Histogram(),
            ":tensorflow:serving:model_warmup_latency": _Histogram(),
            ":tensorflow:serving:requests_rejected": _Counter(),
            ":tensorflow:serving:requests_in_flight": _Gauge(),
            ":tensorflow:serving:requests_queued": _Gauge(),
            ":tensorflow:serving:model_version_loaded": _Gauge(),
            ":tensorflow:serving:model_last_load_error_time": _Gauge(),
        }
        self._readers: dict[str, Callable[[], float]] = {}

    def count(self, name: str, **labels: str) -> None:
        """Add one to a counter."""
        with self._lock:
            self._metrics[f":tensorflow:serving:{name}"].values[tuple(labels.items())] += 1

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add a duration to a histogram of microseconds."""
        histogram = self._metrics[f":tensorflow:serving:{name}"]
        micros, key = seconds * 1e6, tuple(labels.items())
        with self._lock:
            histogram.values[key][bisect.bisect_right(_BUCKETS, micros)] += 1
            histogram.sums[key] += micros

    def set(self, name: str, value: float | None, **labels: str) -> None:
        """Set a gauge; None removes it."""
        values, key = self._metrics[f":tensorflow:serving:{name}"].values, tuple(labels.items())
        with self._lock:
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value

    def read(self, name: str, reader: Callable[[], float]) -> None:
        """Make `reader` set a gauge whenever the page is requested."""
        self._readers[name] = reader

    def page(self) -> str:
        """All metrics in Prometheus's text format."""
        for name, reader in self._readers.items():
            self.set(name, reader())
        with self._lock:
            lines = [line for name, metric in self._metrics.items() for line in metric.lines(name)]
        return "\n".join(lines) + "\n"
