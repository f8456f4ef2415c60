"""Training speed of whole models: python benchmarks/training_speed.py [--backend NAME]

Target tokens a second, padding left out and the end of each sentence counted, of training steps of
an encoder-decoder: bidirectional LSTM 256 x 2, decoder LSTM 512, embeddings 256, additive
attention of 512 units (or another `--model`), vocabulary 8,000, 64 sentences of 9 to 15 tokens a
batch, Adam, without dropout and without clipping. Beside this project's: stock Keras layers, which
run the decoder first and attend with all its outputs at once, an easier computation (no context
enters the recurrence); and peers, each in its own environment `$KERAS_ATTENTION_PEERS/NAME`. A
case says after its name which form it is in: in lower precision, compiled, or both. Cases that
a peer does not have, or cannot run, are left out. All are processes that take turns over the same
batches; medians, and medians of the ratios of each turn.
With `--end-to-end`: training by `training.train`, from text, with its callbacks but without scores
of the dev set, beside `train_on_batch` on the same batches, which takes turns with its epochs.
Prints a table; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable

from parts.batches import MODELS, written_batches
from parts.training import (
    OURS,
    add_sizes,
    load_batches,
    our_config,
    our_model,
    print_table,
    speed,
)
from parts.turns import median_ratio, serve, take_turns
from peers.environments import PEERS, TRAINING_FORMS, start_workers

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

STOCK = "stock Keras layers (easier)"
CASES = [
    *OURS,
    *(f"{name}{form}" for name in (STOCK, *PEERS) for form in ("", *TRAINING_FORMS.get(name, ()))),
]


def our_round(case: str, options: argparse.Namespace) -> Callable[[], None]:
    """A function that trains on every batch once."""
    import keras

    keras.utils.set_random_seed(options.seed)
    name, *form = case.split(", ")
    if name == STOCK:
        from peers.stock_keras import training

        kind = MODELS[options.model]
        return training(options.data, options.vocabulary, options.units, kind, form)
    batches, model = load_batches(options.data), our_model(case, options)

    def round_() -> None:
        for inputs, labels in batches:
            model.train_on_batch(inputs, labels)

    return round_


def measure(options: argparse.Namespace) -> dict[str, dict[str, float | None]]:
    """Measure all cases."""
    with written_batches(options) as (data, tokens):
        sizes = [options.vocabulary, options.units, options.model]
        workers = start_workers(options.cases, "train", data, sizes)
        rounds = take_turns(workers, options.repeat, "train")
        for worker in workers.values():
            worker.close()
    rows = {}
    for case, taken in rounds.items():
        rows[case] = {
            **speed(taken, tokens, options),
            "first_s": round(workers[case].ready_s, 1),
        }
        for ours in OURS:
            if ours in rounds:
                times = round(median_ratio(rounds[ours], taken), 2)
                rows[case][f"{ours}: times as fast"] = times
    return rows


def measure_end_to_end(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Measure what `training.train` reaches of the speed of its steps."""
    from parts import end_to_end

    cases = [case for case in options.cases if case in OURS]
    return {case: end_to_end.measure(our_config(case, options), options) for case in cases}


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--backend", choices=("tensorflow", "jax", "torch"), default="tensorflow")
    add("--cases", nargs="+", choices=CASES, default=CASES, help="what to measure")
    add_sizes(parser)
    add("--end-to-end", action="store_true", help="training.train against its bare steps")
    add("--worker", help=argparse.SUPPRESS)
    add("--data", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    os.environ["KERAS_BACKEND"] = options.backend
    if options.worker:
        serve({"train": our_round(options.worker, options)})
        return
    rows = measure_end_to_end(options) if options.end_to_end else measure(options)
    print_table(rows)
    names = (
        "model",
        "batch",
        "batches",
        "length",
        "length_multiple",
        "vocabulary",
        "units",
        "jit_compile",
    )
    sizes = {name: getattr(options, name) for name in names}
    print(json.dumps({"rows": rows, **sizes, "backend": options.backend, "cpus": os.cpu_count()}))


if __name__ == "__main__":
    main()
