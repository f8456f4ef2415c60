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
Prints a table; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable

from parts.batches import MODELS, training_batches, written_batches
from parts.turns import median, median_ratio, serve, take_turns
from peers.environments import PEERS, TRAINING_FORMS, start_workers

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

OURS = ("keras-attention", "keras-attention, mixed_bfloat16")
STOCK = "stock Keras layers (easier)"
CASES = [
    *OURS,
    *(f"{name}{form}" for name in (STOCK, *PEERS) for form in ("", *TRAINING_FORMS.get(name, ()))),
]


def our_model(case: str, options: argparse.Namespace) -> object:
    """A compiled model of this project."""
    import keras

    from training.config.schema import Config
    from training.fit._optimizer import ClippedAdam, TokenCrossentropy
    from training.model.seq2seq import build_seq2seq

    cell, attention, recurrent = MODELS[options.model]
    settings = {"encoder": cell, "decoder": cell, "attention": attention}
    if attention == "general":
        settings |= {"order": "luong", "input_feeding": recurrent}
    config = Config(
        dropout=0.0,
        precision=case.partition(", ")[2] or "float32",
        encoder_units=options.units // 2,
        decoder_units=options.units,
        embedding_size=options.units // 2,
        attention_units=options.units,
        readout_units=options.units,
        **settings,
    )
    keras.config.set_dtype_policy(config.precision)
    model = build_seq2seq(config, options.vocabulary, options.vocabulary)
    model.compile(ClippedAdam(1e-3, 1e9), TokenCrossentropy(), jit_compile=options.jit_compile)
    return model


def our_round(case: str, options: argparse.Namespace) -> Callable[[], None]:
    """A function that trains on every batch once."""
    import keras

    keras.utils.set_random_seed(options.seed)
    name, *form = case.split(", ")
    if name == STOCK:
        from peers.stock_keras import training

        kind = MODELS[options.model]
        return training(options.data, options.vocabulary, options.units, kind, form)
    model, batches = our_model(case, options), training_batches(options.data)

    def round_() -> None:
        for source, target, labels in batches:
            model.train_on_batch({"source": source, "target": target}, labels)

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
            "tokens_per_s": round(tokens / median(taken)),
            "step_ms": round(median(taken) / options.batches * 1e3, 1),
            "processor_ms": round(median(taken, "processor_s") / options.batches * 1e3, 1),
            "first_s": round(workers[case].ready_s, 1),
        }
        for ours in OURS:
            if ours in rounds:
                times = round(median_ratio(rounds[ours], taken), 2)
                rows[case][f"{ours}: times as fast"] = times
    return rows


def print_table(rows: dict[str, dict[str, float | None]]) -> None:
    """Print the measurements."""
    columns = {name: name.split(" (")[0] for name in next(iter(rows.values()), {})}
    print(f"{'':48}" + "".join(f"  {title}" for title in columns.values()))
    for case, row in rows.items():
        print(f"{case:48}" + "".join(f"  {row[c]:>{len(t)}}" for c, t in columns.items()))


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--backend", choices=("tensorflow", "jax", "torch"), default="tensorflow")
    add("--cases", nargs="+", choices=CASES, default=CASES, help="what to measure")
    add("--model", choices=MODELS, default="LSTM additive", help="what is trained")
    add("--repeat", type=int, default=5, help="rounds over all batches")
    add("--batch", type=int, default=64, help="sentences in a batch")
    add("--batches", type=int, default=16, help="batches in a round")
    add("--length", type=int, default=12, help="mean target tokens of a sentence")
    add("--length-multiple", type=int, default=1, help="lengths are padded to a multiple of it")
    add("--vocabulary", type=int, default=8000, help="tokens, on both sides")
    add("--units", type=int, default=512, help="of the decoder; the others follow from it")
    add("--jit-compile", action="store_true", help="compile this project's models by XLA")
    add("--seed", type=int, default=7, help="of data and weights")
    add("--worker", help=argparse.SUPPRESS)
    add("--data", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    os.environ["KERAS_BACKEND"] = options.backend
    if options.worker:
        serve({"train": our_round(options.worker, options)})
        return
    rows = measure(options)
    print_table(rows)
    names = ("model", "batch", "batches", "length", "length_multiple", "vocabulary", "units")
    names += ("jit_compile",)
    sizes = {name: getattr(options, name) for name in names}
    print(json.dumps({"rows": rows, **sizes, "backend": options.backend, "cpus": os.cpu_count()}))


if __name__ == "__main__":
    main()
