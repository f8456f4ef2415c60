"""Speed and memory of attention layers: python benchmarks/attention_layer.py [--backend NAME]

Compares `scores.additive` with its plain formula, and `AdditiveAttention` with
`keras.layers.AdditiveAttention` and `keras.layers.Attention` behind the same two projections:
the forward pass, a training step (forward and backward), the peak of its memory, and the first
call of both, where compilers work. Calls take turns, so that other load meets all alike; medians.
Peak memory is that of a later call, in a fresh process for each case. Prints a table; the last
line is JSON. With `--unknown` TensorFlow traces for any batch and lengths, as a training with texts
does. With `--modes` the fast paths stand beside the plain formulas in every mode of the backend
(graph, graph of unknown lengths, XLA, eager; jit, eager; eager, compiled) and on a grid of sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from parts import modes
from parts.calls import Case, attention_case, make_calls
from parts.memory import peak_megabytes

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Name of each case to the case that it is compared with.
CASES = {
    "plain formula": "plain formula",
    "scores.additive": "plain formula",
    "keras AdditiveAttention": "keras AdditiveAttention",
    "AdditiveAttention": "keras AdditiveAttention",
    "keras Attention (dot)": "keras AdditiveAttention",
}
MEASURES = {"forward_ms": "forward", "step_ms": "step", "peak_mb": "peak", "first_s": "first"}


def make_case(name: str, options: argparse.Namespace) -> Case:
    """Build a case with random inputs and weights."""
    import keras

    rng, units = np.random.default_rng(options.seed), options.units
    keras.utils.set_random_seed(options.seed)
    shapes = (options.batch, options.queries, units), (options.batch, options.keys, units), (units,)
    query, value, scale = (rng.normal(size=shape).astype("float32") for shape in shapes)
    return attention_case(name, query, value, scale / units**0.5)


def measure_times(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Medians of all cases, taken in turns."""
    calls = {name: make_calls(make_case(name, options), options.mode) for name in options.cases}

    def seconds(call: Callable) -> float:
        started = time.perf_counter()
        call()
        return time.perf_counter() - started

    rows = {
        name: {"first_s": round(sum(map(seconds, case.values())), 2)}
        for name, case in calls.items()
    }
    taken: dict[tuple[str, str], list[float]] = {}
    for _ in range(options.repeat):
        for name, case in calls.items():
            for what, call in case.items():
                taken.setdefault((name, what), []).append(seconds(call))
    for (name, what), times in taken.items():
        rows[name][f"{what}_ms"] = round(statistics.median(times) * 1e3, 2)
    return rows


def measure_peak(name: str) -> float | None:
    """Peak memory of a case's training step, in a process of its own."""
    command = [sys.executable, *sys.argv, "--peak-of", name]
    # Large arrays go back to the system when they are freed, in all cases alike.
    # The allocator that oneDNN brings to TensorFlow would keep them.
    more = {"MALLOC_MMAP_THRESHOLD_": str(2**18), "TF_ENABLE_ONEDNN_OPTS": "0"}
    environment = {**os.environ, **more}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def print_table(rows: dict[str, dict[str, Any]]) -> None:
    """Print the measurements, and how many times less than the compared case each is."""
    print(f"{'':26}" + "".join(f"{column:>12}" for column in MEASURES) + "   times less than")
    for name, row in rows.items():
        line = f"{name:26}" + "".join(f"{row[m] or '-':>12}" for m in MEASURES)
        if name != CASES[name] and CASES[name] in rows:
            ratios = (f"{short} {row[f'{short}_ratio']}" for short in ("forward", "step", "peak"))
            line += f"   {CASES[name]}: {', '.join(ratios)}"
        print(line)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--backend", choices=("tensorflow", "jax", "torch"), default="tensorflow")
    add("--batch", type=int, default=32, help="sequences")
    add("--queries", type=int, default=48, help="Tq")
    add("--keys", type=int, default=48, help="Tv")
    add("--units", type=int, default=512, help="width of everything")
    add("--repeat", type=int, default=20, help="calls of each measurement")
    add("--seed", type=int, default=7, help="of inputs and weights")
    add("--cases", nargs="+", choices=CASES, default=list(CASES), help="what to measure")
    add("--unknown", action="store_true", help="of unknown batch and lengths, on TensorFlow")
    add("--modes", action="store_true", help="fast paths and plain formulas in all modes")
    add("--tiny", action="store_true", help="with --modes, only small sizes")
    add("--peak-of", choices=CASES, help="print the peak memory of one case, in MB")
    options = parser.parse_args()
    if options.unknown and options.backend != "tensorflow":
        parser.error("--unknown is of TensorFlow")
    options.mode = "unknown" if options.unknown else None
    os.environ["KERAS_BACKEND"] = options.backend
    if options.modes:
        modes.use_one_thread(options.backend)
        modes.run(options.backend, options.repeat, options.tiny)
        return
    if options.peak_of:
        calls = make_calls(make_case(options.peak_of, options), options.mode)
        print(json.dumps(peak_megabytes(calls["step"])))
        return
    peaks = {name: measure_peak(name) for name in options.cases}
    rows = measure_times(options)
    for name, row in rows.items():
        row["peak_mb"] = peaks[name]
    for name, row in rows.items():
        for measure, short in MEASURES.items():
            pair = rows.get(CASES[name], row)[measure], row[measure]
            row[f"{short}_ratio"] = round(pair[0] / pair[1], 2) if all(pair) else None
    print_table(rows)
    sizes = {name: getattr(options, name) for name in ("batch", "queries", "keys", "units")}
    facts = {"unknown": options.unknown, "backend": options.backend, "cpus": os.cpu_count()}
    print(json.dumps({"rows": rows, **sizes, **facts}))


if __name__ == "__main__":
    main()
