"""Fast paths beside the plain formulas, in every mode of a backend and on a grid of sizes."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from parts.calls import MODES, Case, make_calls

# Sizes (B, Tq, Tv, units) of additive scores, and (B, T, units) of a decoder with input feeding.
SCORES = [(8, 20, 20, 64), (64, 20, 20, 64), (32, 30, 30, 128), (32, 48, 48, 256)]
DECODERS = [(8, 20, 64), (32, 30, 256)]
TINY = {"scores": [(2, 3, 5, 7)], "decoder": [(2, 3, 5)]}
LOSS = 1.05  # times the plain formula's processor time, above which a fast path loses
SPENT = 1.0  # seconds of calls of one kind, at least
TURN = 0.1  # the same in a turn, about: the time of threads elsewhere is known by ticks
MOST = 20.0  # the same where the fast path seems to lose: other load may be why


def use_one_thread(backend: str) -> None:
    """Let a backend that has not been imported compute on one thread."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if backend == "jax":
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    elif backend == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)


def make_case(kind: str, size: tuple[int, ...], fast: bool) -> Case:
    """Return a case whose function takes the fast paths, or not."""
    import keras

    from keras_attention import AdditiveAttention, AttentionRNN, fast_paths, scores

    rng = np.random.default_rng(7)
    keras.utils.set_random_seed(7)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype("float32")

    batch, steps, *rest, units = size
    if kind == "scores":
        arrays = [normal(batch, steps, units), normal(batch, rest[0], units), normal(units)]
        plain, weights = scores.additive, []
    else:
        arrays = [normal(batch, steps, units), normal(batch, steps, units)]
        plain = AttentionRNN(
            keras.layers.GRUCell(units), AdditiveAttention(units), units=units, input_feeding=True
        )
        plain.build(arrays[0].shape, arrays[1].shape)
        weights = plain.trainable_weights

    def function(*inputs: Any) -> Any:
        with fast_paths(fast):
            return plain(*inputs)

    return Case(function, arrays, weights)


def compare(
    kind: str, size: tuple[int, ...], mode: str, repeat: int, most: float = MOST
) -> dict[str, float]:
    """Return of a forward pass and of a step how often the plain time the fast one is.

    Calls take turns; of each the least processor time counts, of many where they are short or the
    fast path seems to lose.
    """
    calls = {fast: make_calls(make_case(kind, size, fast), mode) for fast in (True, False)}
    least: dict[tuple[str, bool], float] = {}
    for what in ("forward", "step"):
        for call in (calls[True][what], calls[False][what]):
            call()  # it traces and compiles
        started = time.perf_counter()
        calls[False][what]()
        count = math.ceil(TURN / (time.perf_counter() - started))
        spent, turns = 0.0, 0
        while turns < repeat or spent < (
            most if turns and ratio(least, what) > LOSS else min(SPENT, most)
        ):
            for fast in (True, False):
                taken = seconds(calls[fast][what], count)
                least[what, fast] = min(least.get((what, fast), math.inf), taken)
                spent += taken
            turns += 1
    return {f"{what}_ratio": ratio(least, what) for what in ("forward", "step")}


def ratio(least: dict[tuple[str, bool], float], what: str) -> float:
    """Return the fast path's least time, divided by that of the plain formula."""
    return least[what, True] / least[what, False]


def seconds(call: Callable[[], Any], count: int) -> float:
    """Return the processor time of so many calls."""
    started = time.process_time()
    for _ in range(count):
        call()
    return time.process_time() - started


def run(backend: str, repeat: int, tiny: bool = False) -> None:
    """Print the ratios of all modes, kinds and sizes, and where a fast path loses."""
    sizes = TINY if tiny else {"scores": SCORES, "decoder": DECODERS}
    most = 0.0 if tiny else MOST
    rows = []
    print("processor time of the fast path, divided by that of the plain formula (one thread)")
    for mode in MODES[backend]:
        for kind, size in [(k, x) for k, xs in sizes.items() for x in xs]:
            row = {"mode": mode, "kind": kind, "size": size}
            row |= {k: round(v, 2) for k, v in compare(kind, size, mode, repeat, most).items()}
            rows.append(row)
            name = f"{backend} {mode}, {kind} {' x '.join(map(str, size))}"
            lost = max(row["forward_ratio"], row["step_ratio"]) > LOSS
            print(
                f"{name:48} forward {row['forward_ratio']:.2f}, step {row['step_ratio']:.2f}"
                + ("   LOSES" if lost else ""),
                flush=True,
            )
    lost = [row for row in rows if max(row["forward_ratio"], row["step_ratio"]) > LOSS]
    print(f"a fast path loses by more than 5 % in {len(lost)} of {len(rows)} cases")
    print(json.dumps({"rows": rows, "lost": len(lost), "backend": backend}))
