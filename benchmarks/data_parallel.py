"""Training in several processes: python benchmarks/data_parallel.py [--backends NAME ...]

Target tokens a second, the end of each sentence counted, of epochs with one process and with
several, on TensorFlow and on JAX. Each process has one core; the model is the one of
training_speed.py, and the batches are equal in all cases. The cases take turns. The table has the
best round of each case, because other work on the machine can only slow a round down, and slows
processes that wait for one another most. "median times" is the median ratio to one process of the
same turn. Processor time is that of all processes of a case together. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from parts.turns import Worker, median_ratio, serve

if TYPE_CHECKING:  # workers choose a core before they import anything else
    from training.config.schema import Config
    from training.data.batches._batches import Batches

BACKENDS = ("tensorflow", "jax")
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}


def work(options: argparse.Namespace) -> None:
    """Be one of the processes of a case."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[options.worker % len(cores)]})
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print must not come between the answers
    from training.config.schema import Config
    from training.fit import _optimizer as optimizer
    from training.fit.devices._joining import joined

    config = Config(
        dropout=0.0,
        batch_size=options.batch,
        batch_shapes=1,
        encoder_units=options.units // 2,
        decoder_units=options.units,
        embedding_size=options.units // 2,
        attention_units=options.units,
        readout_units=options.units,
    )
    with joined() as processes:
        optimizer.configure_keras(config)
        batches = _batches(config, options)
        words = options.vocabulary, options.vocabulary
        model = optimizer.make_trainable(config, words, Path(), batches, processes)
        steps = batches.statistics.steps_per_epoch

        def epoch() -> None:
            model.fit(processes.epoch(batches, 0), steps_per_epoch=steps, shuffle=False, verbose=0)

        os.dup2(answers, 1)
        serve({"epoch": epoch})


def _batches(config: Config, options: argparse.Namespace) -> Batches:
    """Return batches of random sentences."""
    import numpy as np

    from training.data.batches._batches import Batches
    from training.data.batches._plan import Batching
    from training.data.tokens.store import Sequences

    rng, count = np.random.default_rng(options.seed), options.batch * options.batches

    def sentences() -> Sequences:
        lengths = np.full(count, options.length)
        return Sequences.of(rng.integers(4, options.vocabulary, lengths.sum()), lengths)

    return Batches(Batching.of(config), sentences(), sentences(), training=True)


def variables(backend: str, addresses: list[str], number: int) -> dict[str, str]:
    """Return the environment variables of a process; each has an address."""
    if len(addresses) == 1:
        return {}
    if backend == "jax":
        return {
            "JAX_COORDINATOR_ADDRESS": addresses[0],
            "JAX_NUM_PROCESSES": str(len(addresses)),
            "JAX_PROCESS_ID": str(number),
        }
    task = {"type": "worker", "index": number}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})}


@contextmanager
def started(backend: str, count: int) -> Iterator[list[Worker]]:
    """Start the processes of a case; end them afterwards."""
    with ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        addresses = ["{}:{}".format(*each.getsockname()) for each in free]

    def start(number: int) -> Worker:
        environment = {**os.environ, **ONE_THREAD, "KERAS_BACKEND": backend}
        environment |= variables(backend, addresses, number)
        return Worker([sys.executable, *sys.argv, "--worker", str(number)], environment)

    with ThreadPoolExecutor(count) as pool:
        workers = list(pool.map(start, range(count)))
        yield workers
        list(pool.map(Worker.close, workers))  # each waits for the others' end


def together(workers: list[Worker]) -> dict[str, float]:
    """Let the processes of a case train an epoch; return the slowest time, and the sum."""
    with ThreadPoolExecutor(len(workers)) as pool:
        rounds = list(pool.map(lambda worker: worker.round("epoch"), workers))
    return {
        "wall_s": max(taken["wall_s"] for taken in rounds),
        "processor_s": sum(taken["processor_s"] for taken in rounds),
    }


def measure(options: argparse.Namespace, backend: str) -> list[dict]:
    """Measure one process and several on a backend."""
    counts = 1, options.processes
    rounds: dict[int, list[dict[str, float]]] = {count: [] for count in counts}
    with started(backend, 1) as one, started(backend, options.processes) as several:
        for _ in range(options.repeat):
            for count, workers in zip(counts, (one, several), strict=True):
                rounds[count].append(together(workers))
    tokens = options.batch * options.batches * (options.length + 1)
    best = {
        count: {key: min(each[key] for each in taken) for key in taken[0]}
        for count, taken in rounds.items()
    }
    return [
        {
            "backend": backend,
            "processes": count,
            "tokens_per_s": round(tokens / best[count]["wall_s"]),
            "step_ms": round(best[count]["wall_s"] / options.batches * 1e3, 1),
            "processor_ms": round(best[count]["processor_s"] / options.batches * 1e3, 1),
            "times_one": round(best[1]["wall_s"] / best[count]["wall_s"], 2),
            "median_times_one": round(median_ratio(taken, rounds[1]), 2),
            "rounds": [round(each["wall_s"], 3) for each in taken],
        }
        for count, taken in rounds.items()
    ]


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--backends", nargs="+", choices=BACKENDS, default=BACKENDS, help="what to measure")
    add("--processes", type=int, default=2, help="how many train together")
    add("--repeat", type=int, default=6, help="epochs of each case")
    add("--batch", type=int, default=512, help="sentences in a batch of all processes")
    add("--batches", type=int, default=1, help="batches in an epoch")
    add("--length", type=int, default=12, help="tokens of a sentence")
    add("--vocabulary", type=int, default=8000, help="tokens, on both sides")
    add("--units", type=int, default=512, help="of the decoder; the others follow from it")
    add("--seed", type=int, default=7, help="of data and weights")
    add("--worker", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options)
        return
    rows = [row for backend in options.backends for row in measure(options, backend)]
    titles = {
        "backend": "backend",
        "processes": "processes",
        "tokens_per_s": "tokens/s",
        "step_ms": "ms a step",
        "processor_ms": "processor ms",
        "times_one": "times one process",
        "median_times_one": "median times",
    }
    print("  ".join(f"{title:>{max(10, len(title))}}" for title in titles.values()))
    for row in rows:
        print("  ".join(f"{row[key]:>{max(10, len(title))}}" for key, title in titles.items()))
    names = ("batch", "batches", "length", "vocabulary", "units")
    print(json.dumps({"rows": rows, **{name: getattr(options, name) for name in names}}))


if __name__ == "__main__":
    main()
