"""Measure processes that take turns, so that other load on the machine meets all alike.

A worker prepares, says that it is ready, and then for each line that it reads runs the round of
that name and answers how long it took. Uses the standard library alone: peers' environments import
it too.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def serve(rounds: Mapping[str, Callable[[], dict[str, float] | None]], warm_up: int = 2) -> None:
    """Be a worker: run all rounds a few times for warmth, then the one that each line names.

    A round of which a part alone counts returns what that part took.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print must not come between the answers
    started = time.perf_counter()
    for _ in range(warm_up):
        for round_ in rounds.values():
            round_()
    print(json.dumps({"ready_s": time.perf_counter() - started}), file=answers)
    for line in sys.stdin:
        wall, processor = time.perf_counter(), time.process_time()
        measured = rounds[line.strip()]()
        taken = {
            "wall_s": time.perf_counter() - wall,
            "processor_s": time.process_time() - processor,
        }
        print(json.dumps(measured or taken), file=answers)


def rounds_by_mode(
    settings: Mapping[str, Any], inputs: Sequence[Any], make: Callable[[int], Callable]
) -> dict[str, Callable[[], None]]:
    """Return functions that translate all inputs, by the mode's name: see decoding_speed.py.

    Args:
        settings: `modes`, the beam width and batch size of each.
        inputs: texts, or rows of ids.
        make: from a beam width to the function that translates a batch of them.
    """
    translators = {
        width: make(width) for width in {width for width, _ in settings["modes"].values()}
    }

    def run(translate: Callable, batch: int) -> None:
        for start in range(0, len(inputs), batch):
            translate(inputs[start : start + batch])

    return {
        mode: functools.partial(run, translators[width], batch)
        for mode, (width, batch) in settings["modes"].items()
    }


class Worker:
    """A process that runs `serve`.

    Args:
        command: its command line.
        environment: its environment; None for this process's.
    """

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self._command = command
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.ready_s = self._answer()["ready_s"]

    def round(self, name: str) -> dict[str, float]:
        """Run a round; return its `wall_s` and its `processor_s`, of all threads together."""
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> dict[str, float]:
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise RuntimeError(f"{' '.join(self._command)} ended with status {code}")
        return json.loads(line)


def take_turns(workers: dict[str, Worker], repeat: int, name: str) -> dict[str, list[dict]]:
    """Let each worker run the round of that name in turn, `repeat` times."""
    rounds: dict[str, list] = {case: [] for case in workers}
    for _ in range(repeat):
        for case, worker in workers.items():
            rounds[case].append(worker.round(name))
    return rounds


def median(rounds: list[dict[str, float]], key: str = "wall_s") -> float:
    """Median over rounds."""
    return statistics.median(r[key] for r in rounds)


def median_ratio(rounds: list[dict], others: list[dict], key: str = "wall_s") -> float:
    """Median over turns of how many times as long `others` took as `rounds` in the same turn."""
    return statistics.median(b[key] / a[key] for a, b in zip(rounds, others, strict=True))
