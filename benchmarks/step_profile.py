"""Where the milliseconds of a training step go: python benchmarks/step_profile.py

The model and the batches are those of `training_speed.py`. TensorFlow's profiler says when each
operation ran; an instant at which several run is shared out among them, so that the parts add up
to the step. Prints a table; the last line is JSON.
"""

from __future__ import annotations

import argparse
import glob
import itertools
import json
import os
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from parts.batches import make_batches
from parts.training import OURS, add_sizes, load_batches, our_model

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

PRODUCTS = "MatMul|Einsum"
# The first that fits counts; what is computed in gradients of our own has no layer in its name.
PARTS = (
    ("Adam", "", r"ResourceApplyAdam|^adam/"),
    ("output layer, products", PRODUCTS, r"/output|^output"),
    ("output layer, bias", "", r"/output|^output"),
    ("loss", "", r"compile_loss"),
    ("decoder's loop, products", PRODUCTS, r"decoder.*/while"),
    ("decoder's loop, the rest", "", r"decoder.*/while"),
    ("decoder outside the loop, products", PRODUCTS, r"decoder"),
    ("decoder outside the loop, the rest", "", r"decoder"),
    ("encoder's loops, products", PRODUCTS, r"hoisted_rnn.*/while"),
    ("encoder's loops, the rest", "", r"hoisted_rnn.*/while"),
    ("encoder outside the loops", "", r"encoder"),
    ("gradients of kernels, after the loops", PRODUCTS, r""),
    ("embeddings, gradients of the loss, sums", "", r""),
)
NOTHING = "no operation runs"
Interval = tuple[float, float, str]  # start and end in ms, part


def part_of(name: str, kind: str) -> str:
    """Return the part that an operation of this name and kind belongs to."""
    short = name.removeprefix("StatefulPartitionedCall/")
    return next(
        part for part, kinds, names in PARTS if re.search(kinds, kind) and re.search(names, short)
    )


def shares(intervals: Iterable[Interval]) -> Counter[str]:
    """Milliseconds of each part: an instant is shared out among the operations that run."""
    events = sorted(
        event for start, end, part in intervals for event in ((start, 1, part), (end, -1, part))
    )
    running: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    for (now, change, part), (until, *_) in itertools.pairwise(events):
        running[part] += change
        total = sum(running.values())
        for name, count in running.items():
            spent[name] += (until - now) * count / total if total else 0.0
    return spent


def operations(folder: str) -> Iterator[Interval]:
    """Read what the profiler wrote."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    (path,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
    space = xplane_pb2.XSpace()
    with open(path, "rb") as file:
        space.ParseFromString(file.read())
    for plane in space.planes:
        names = {key: data.name for key, data in plane.event_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                found = re.fullmatch(r"([^:]+):(\w+)", names[event.metadata_id])
                if not found or re.search("While|If|PartitionedCall", found[2]):
                    continue  # no operation, or one that holds others
                start = line.timestamp_ns / 1e6 + event.offset_ps / 1e9
                yield start, start + event.duration_ps / 1e9, part_of(*found.groups())


def profile(options: argparse.Namespace) -> dict[str, float]:
    """Milliseconds of a step, by part; all of it under `step`."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/batches.npz"
        np.savez(data, **make_batches(options))
        batches = load_batches(data)
        model = our_model(options.case, options)

        def steps() -> list[float]:
            taken = []
            for inputs, labels in batches:
                started = time.perf_counter()
                model.train_on_batch(inputs, labels)
                taken.append((time.perf_counter() - started) * 1e3)
            return taken

        steps()
        plain = statistics.median(step for _ in range(options.repeat) for step in steps())
        tf.profiler.experimental.start(folder)
        watched = sum(steps()) / options.batches
        tf.profiler.experimental.stop()
        found = shares(operations(folder))
    rows = {part: found[part] / options.batches for part, *_ in PARTS if found[part]}
    rows[NOTHING] = watched - sum(rows.values())
    return {"step": watched, "step, not watched": plain, **rows}


def print_table(rows: dict[str, float], order: Sequence[str]) -> None:
    """Print the parts, the largest first."""
    for part in order:
        print(f"{part:42}{rows[part]:8.1f} ms{100 * rows[part] / rows['step']:7.1f} %")


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--case", choices=OURS, default="keras-attention, mixed_bfloat16")
    add_sizes(parser)
    options = parser.parse_args(arguments)
    os.environ["KERAS_BACKEND"] = "tensorflow"
    rows = profile(options)
    parts = [part for part in rows if not part.startswith("step")]
    print_table(rows, ["step", *sorted(parts, key=rows.get, reverse=True), "step, not watched"])
    print(json.dumps({"case": options.case, "ms": {k: round(v, 2) for k, v in rows.items()}}))


if __name__ == "__main__":
    main()
