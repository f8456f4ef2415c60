"""How time and memory grow: python benchmarks/growth.py [--output DIR]

Of an `AdditiveAttention` (forward, and with all gradients), of a training step of the
encoder-decoder with additive attention in Bahdanau's order, and of its search as it is exported:
over the source's length, the batch, the units and the beam, one at a time; processor time, which
other work on the machine changes little, beside wall time. Beside each the same by
the plain formulas, `keras_attention.fast_paths(False)`, as far as the tensors of the additive
formula, `(B, T, S, units)`, stay below a bound. The fast and the plain process take turns; medians.
Peak memory is that of a later call, in a fresh process for each point. For each curve the exponent
of its upper half is fitted, a line through the logarithms: 1 is linear. Writes `growth.csv` and
`growth.png`, prints the exponents; the last line is JSON.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from parts.calls import Case, on_tensorflow
from parts.memory import peak_megabytes
from parts.turns import Worker, median, serve, take_turns

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

FAST, PLAIN = "fast paths", "plain formulas"
QUERIES, TARGET, OUTPUT = 64, 16, 20  # a layer's queries; target tokens in training; in a search
VOCABULARY, SEED = 1000, 7
LONGEST = 4096
BOUND = 4 * 2**30  # bytes of two `(B, T, S, units)` tensors, as many as the plain formulas hold
ROUND = 0.1  # seconds that a round takes at least


class Grid(NamedTuple):
    """Sizes that are measured: all others as in `base` while one goes through its values."""

    base: dict[str, int]
    values: dict[str, tuple[int, ...]]


LENGTHS = (16, 64, 256, 1024, LONGEST)
LAYER = Grid(
    {"source": 256, "batch": 16, "units": 256},
    {"source": LENGTHS, "batch": (4, 16, 64), "units": (64, 256, 1024)},
)
GRIDS = {
    "layer, forward": LAYER,
    "layer, with gradients": LAYER,
    "training step": Grid(
        {"source": 64, "batch": 16, "units": 128},
        {"source": LENGTHS, "batch": (4, 16, 64), "units": (64, 128, 256)},
    ),
    "translation": Grid(
        {"source": 64, "batch": 4, "units": 128, "beam": 5},
        {"source": LENGTHS, "beam": (1, 2, 5, 10, 20)},
    ),
}


class Point(NamedTuple):
    """A measurement: a work, by the fast paths or plainly, at some sizes."""

    work: str
    variant: str
    sizes: tuple[tuple[str, int], ...]

    def bytes_held(self) -> int:
        """Return the bytes that two of the plain formula's tensors take."""
        sizes = dict(self.sizes)
        queries = {"training step": TARGET, "translation": sizes.get("beam", 1)}
        triples = sizes["batch"] * sizes["source"] * queries.get(self.work, QUERIES)
        return 2 * 4 * triples * sizes["units"]


def curves(options: argparse.Namespace) -> Iterator[tuple[str, str, int, dict[str, int]]]:
    """Yield each work, the size that varies, its value, and all sizes."""
    for work in options.works:
        base, grid = GRIDS[work]
        small = {name: max(1, value // options.divide) for name, value in base.items()}
        for name, values in grid.items():
            for value in dict.fromkeys(max(1, value // options.divide) for value in values):
                yield work, name, value, {**small, name: value}


def make_call(point: Point) -> Callable[[], Any]:
    """Return what is measured, a function that waits for its result."""
    sizes, rng = dict(point.sizes), np.random.default_rng(SEED)
    if point.work == "training step":
        return training_step(rng, **sizes)
    if point.work == "translation":
        return translation(rng, **sizes)
    kind = "forward" if point.work == "layer, forward" else "step"
    return layer_calls(rng, **sizes)[kind]


def layer_calls(
    rng: np.random.Generator, source: int, batch: int, units: int
) -> dict[str, Callable[[], Any]]:
    """Calls of an `AdditiveAttention` to queries and values of a fixed width."""
    import keras

    from keras_attention import AdditiveAttention

    width = LAYER.base["units"]
    keras.utils.set_random_seed(SEED)
    arrays = [rng.normal(size=(batch, n, width)).astype("float32") for n in (QUERIES, source)]
    layer = AdditiveAttention(units)
    layer.build(*(x.shape for x in arrays))
    return on_tensorflow(Case(layer, arrays, layer.weights), "graph")


def training_step(
    rng: np.random.Generator, source: int, batch: int, units: int
) -> Callable[[], Any]:
    """Training steps of the encoder-decoder on one batch without padding."""
    import keras
    from parts.training import our_model

    keras.utils.set_random_seed(SEED)
    sizes = SimpleNamespace(units=units, vocabulary=VOCABULARY, jit_compile=False)
    sizes.model = "LSTM additive"
    model = our_model("keras-attention", sizes)
    lengths = {"source": source, "target": TARGET, "labels": TARGET}
    ids = {k: rng.integers(4, VOCABULARY, (batch, n), "int32") for k, n in lengths.items()}
    labels = ids.pop("labels")
    return lambda: model.train_on_batch(ids, labels)


def translation(
    rng: np.random.Generator, source: int, batch: int, units: int, beam: int
) -> Callable[[], Any]:
    """Translations of one batch of texts, strings to strings, by the exported graph."""
    import tensorflow as tf
    from parts.translation import words

    chosen = rng.choice(words(SimpleNamespace(vocabulary=VOCABULARY)), (batch, source))
    texts = tf.constant([" ".join(row) for row in chosen])
    translate = exported(units, beam)
    return lambda: translate(text=texts)["translation"].numpy()


@functools.lru_cache(maxsize=1)
def exported(units: int, beam: int) -> Callable:
    """The graph that an export holds, for any lengths."""
    from parts.translation import forced_translation, untrained_run

    sizes = SimpleNamespace(units=units, vocabulary=VOCABULARY, seed=SEED)
    run = untrained_run(Path(), sizes)
    settings = {"beam_width": beam, "num_results": 1, "max_source_length": LONGEST}
    module, translate = forced_translation(run, OUTPUT, **settings)
    exported.module = module  # it has the weights
    return translate


class Rounds(dict):
    """Rounds by the JSON of their point, each made when it is asked for; the last one is kept."""

    def __missing__(self, name: str) -> Callable[[], dict[str, float]]:
        """Make the call of a point, and return a round of it."""
        self.clear()
        call = make_call(Point(*json.loads(name)))
        call()

        def round_() -> dict[str, float]:
            walls, processors, started = [], [], time.perf_counter()
            while not walls or time.perf_counter() - started < ROUND:
                wall, processor = time.perf_counter(), time.process_time()
                call()
                walls.append(time.perf_counter() - wall)
                processors.append(time.process_time() - processor)
            medians = map(statistics.median, (walls, processors))
            return dict(zip(("wall_s", "processor_s"), medians, strict=True))

        self[name] = round_
        return round_


def in_variant(variant: str, run: Callable[..., Any], *arguments: Any) -> Any:
    """Run something by the fast paths or by the plain formulas."""
    from keras_attention import fast_paths

    with fast_paths(variant == FAST):
        return run(*arguments)


def measure_times(points: list[Point], repeat: int) -> dict[Point, dict[str, float]]:
    """Medians of milliseconds of wall and processor time; the points of one size take turns."""
    workers = {
        variant: Worker([sys.executable, __file__, "--worker", variant])
        for variant in dict.fromkeys(point.variant for point in points)
    }
    found = {}
    for point in (p for p in points if p.variant == FAST):
        name = json.dumps(point._replace(variant=""))
        pair = [p for p in (point, point._replace(variant=PLAIN)) if p in points]
        taking_part = {p.variant: workers[p.variant] for p in pair}
        take_turns(taking_part, 1, name)  # makes the calls
        rounds = take_turns(taking_part, repeat, name)
        for p in pair:
            found[p] = {
                "ms": round(median(rounds[p.variant]) * 1e3, 3),
                "processor_ms": round(median(rounds[p.variant], "processor_s") * 1e3, 3),
            }
    for worker in workers.values():
        worker.close()
    return found


def peak(point: Point) -> float | None:
    """Peak memory of a point, in MB, in a process that has measured nothing before."""
    return in_variant(point.variant, lambda: peak_megabytes(make_call(point)))


def measure_peaks(points: list[Point]) -> dict[Point, float | None]:
    """Peak memory of all points, each in a process of its own, two at a time."""
    # As in attention_layer.py: large arrays go back to the system when they are freed.
    os.environ |= {"MALLOC_MMAP_THRESHOLD_": str(2**18), "TF_ENABLE_ONEDNN_OPTS": "0"}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tensorflow", "keras"])
    with context.Pool(2, maxtasksperchild=1) as pool:
        return dict(zip(points, pool.map(peak, points, chunksize=1), strict=True))


def exponent(sizes: list[int], values: list[float | None]) -> float | None:
    """The slope of the upper half of a curve in logarithms; None of less than two points."""
    known = [(n, v) for n, v in zip(sizes, values, strict=True) if v]
    upper = known[-(len(known) // 2 + 1) :]
    if len(upper) < 2:
        return None
    x, y = np.log(np.array(upper, float)).T
    return round(float(np.polyfit(x, y, 1)[0]), 2)


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure all points; rows of the record, `None` for what was not."""
    keyed: dict[Point, list[tuple[str, int]]] = {}
    for work, name, value, sizes in curves(options):
        for variant in (FAST, PLAIN):
            point = Point(work, variant, tuple(sizes.items()))
            keyed.setdefault(point, []).append((name, value))
    points = [p for p in keyed if p.variant == FAST or p.bytes_held() <= BOUND]
    times = measure_times(points, options.repeat)
    peaks = measure_peaks(points)
    return [
        {
            "work": point.work,
            "variant": point.variant,
            "over": name,
            "size": value,
            **times.get(point, {"ms": None, "processor_ms": None}),
            "peak_mb": peaks.get(point),
        }
        for point, places in keyed.items()
        for name, value in places
    ]


def by_curve(rows: list[dict[str, Any]]) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """Rows by work, variant and the size that varies, the smallest first."""
    found: dict[tuple[str, str, str], list] = {}
    for row in rows:
        found.setdefault((row["work"], row["over"], row["variant"]), []).append(row)
    return {curve: sorted(own, key=lambda row: row["size"]) for curve, own in found.items()}


def fitted(rows: list[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Exponents of time and memory by curve, and the size up to which it was measured."""
    found = {}
    for (work, over, variant), own in by_curve(rows).items():
        sizes = [row["size"] for row in own]
        found[f"{work} over {over}, {variant}"] = {
            "time": exponent(sizes, [row["ms"] for row in own]),
            "processor": exponent(sizes, [row["processor_ms"] for row in own]),
            "memory": exponent(sizes, [row["peak_mb"] for row in own]),
            "up_to": max(row["size"] for row in own if row["ms"]),
        }
    return found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--output", type=Path, default=Path("runs/growth"), help="where the files go")
    add("--works", nargs="+", choices=GRIDS, default=list(GRIDS), help="what to measure")
    add("--repeat", type=int, default=3, help="rounds of each measurement")
    add("--divide", type=int, default=1, help="all sizes by it")
    add("--worker", choices=(FAST, PLAIN), help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["KERAS_BACKEND"] = "tensorflow"
    if options.worker:
        in_variant(options.worker, serve, Rounds(), 0)
        return
    from parts.growth_figure import draw

    from lab.shared import write_table

    rows = measure(options)
    found = fitted(rows)
    options.output.mkdir(parents=True, exist_ok=True)
    write_table(options.output / "growth.csv", rows, printed=False)
    draw(by_curve(rows), found, options.output / "growth.png")
    for curve, row in found.items():
        fits = "".join(f"  {name.replace('_', ' ')} {value}" for name, value in row.items())
        print(f"{curve:52}{fits}")
    print(json.dumps({"rows": found, "bound": BOUND, "cpus": os.cpu_count()}))


if __name__ == "__main__":
    main()
