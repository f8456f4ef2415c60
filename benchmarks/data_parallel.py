"""Training in several processes against one: python benchmarks/data_parallel.py [--processes 2]

Target tokens a second of epochs with the step of `training.train_arrays` on JAX, padding left out
and the end of each sentence counted; processor time is that of all processes together. Both cases
train the model of training_speed.py on the same global batches, each process on a core of its own,
and take turns; medians, and the median of the ratios of each turn. Prints a table; the last line is
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

from parts.batches import written_batches
from parts.training import add_sizes, load_batches, our_config, print_table, speed
from parts.turns import Worker, median_ratio, serve

CASE = "keras-attention"


def work(options: argparse.Namespace) -> None:
    """Be one of the processes."""
    number = int(os.environ.get("KERAS_DISTRIBUTION_PROCESS_ID", "0"))
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})
    import keras

    from training.fit.crossentropy import TokenCrossentropy
    from training.fit.distributed import joined
    from training.fit.optimizer import ClippedAdam
    from training.model.seq2seq import build_seq2seq

    answers = os.dup(1)
    with joined() as processes:
        keras.utils.set_random_seed(options.seed)
        model = build_seq2seq(our_config(CASE, options), options.vocabulary, options.vocabulary)
        if processes.devices > 1:
            from training.fit.sharded import ShardedModel

            model = ShardedModel(model.input, model.output)
        model.compile(ClippedAdam(1e-3, 1.0), TokenCrossentropy(), jit_compile=True)
        batches = load_batches(options.data)

        def epoch() -> None:
            model.fit(
                processes.share(iter(batches)),
                steps_per_epoch=len(batches),
                shuffle=False,
                verbose=0,
            )

        os.dup2(answers, 1)  # which `joined` keeps from native code
        serve({"train": epoch})


def start(count: int, options: argparse.Namespace, data: str) -> list[Worker]:
    """Start as many processes that train together."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "OMP_NUM_THREADS": "1",
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": address,
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count),
    }

    def worker(number: int) -> Worker:
        command = [sys.executable, *sys.argv, "--worker", "--data", data]
        return Worker(command, {**environment, "KERAS_DISTRIBUTION_PROCESS_ID": str(number)})

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(worker, range(count)))


def together(workers: list[Worker]) -> dict[str, float]:
    """Let all of a training run an epoch; return what the slowest took, and all processors."""
    with ThreadPoolExecutor(len(workers)) as pool:
        rounds = list(pool.map(lambda worker: worker.round("train"), workers))
    return {
        "wall_s": max(taken["wall_s"] for taken in rounds),
        "processor_s": sum(taken["processor_s"] for taken in rounds),
    }


def measure(options: argparse.Namespace) -> dict[str, dict[str, float | None]]:
    """Measure both cases."""
    with written_batches(options) as (data, tokens):
        cases = {count: start(count, options, data) for count in (1, options.processes)}
        rounds: dict[int, list[dict[str, float]]] = {count: [] for count in cases}
        for _ in range(options.repeat):
            for count, workers in cases.items():
                rounds[count].append(together(workers))
        for workers in cases.values():
            with ThreadPoolExecutor(len(workers)) as pool:  # each waits for the others' end
                list(pool.map(Worker.close, workers))
    return {
        f"{count} process{'es' if count > 1 else ''}": {
            **speed(taken, tokens, options),
            "times 1 process": round(median_ratio(taken, rounds[1]), 2),
        }
        for count, taken in rounds.items()
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=2, help="how many train together")
    add_sizes(parser)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    rows = measure(options)
    print_table(rows)
    names = ("batch", "batches", "length", "length_multiple", "vocabulary", "units")
    sizes = {name: getattr(options, name) for name in names}
    print(json.dumps({"rows": rows, **sizes, "cpus": os.cpu_count()}))


if __name__ == "__main__":
    main()
