"""Training speed of whole models: python benchmarks/training_speed.py [--backend NAME]

Target tokens a second, padding left out and the end of each sentence counted, of training steps of
an encoder-decoder: bidirectional LSTM 256 x 2, decoder LSTM 512, embeddings 256, additive
attention of 512 units (or another `--model`), vocabulary 8,000, 64 sentences of 9 to 15 tokens a
batch, Adam, without dropout and without clipping. Beside this project's: stock Keras layers, which
run the decoder first and attend with all its outputs at once, an easier computation (no context
enters the recurrence); and peers, each in its own environment `$KERAS_ATTENTION_PEERS/NAME`. A
case says after its name which form it is in: in lower precision, compiled, or both. What a peer
does not have, or cannot run, is left out. All are processes that take turns over the same batches;
medians, and medians of the ratios of each turn.
With `--end-to-end`: training by `training.train`, from text, with its callbacks but without scores
of the dev set, beside `train_on_batch` on the same batches, which takes turns with its epochs.
Prints a table; the last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator

import numpy as np
from peers.workload import MODELS, training_batches
from turns import PEERS, TRAINING_FORMS, median, median_ratio, serve, start_workers, take_turns

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

OURS = ("keras-attention", "keras-attention, mixed_bfloat16")
STOCK = "stock Keras layers (easier)"
CASES = [
    *OURS,
    *(f"{name}{form}" for name in (STOCK, *PEERS) for form in ("", *TRAINING_FORMS.get(name, ()))),
]
FIRST_WORD = 4


def draw_lengths(
    rng: np.random.Generator, count: int, options: argparse.Namespace
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of sources and of targets, END counted, which are about as long as their sources."""
    shortest, longest = round(options.length * 0.75), round(options.length * 1.25)
    targets = rng.integers(shortest, longest + 1, count)
    return np.maximum(1, targets + rng.integers(-2, 3, count)), targets


def make_batches(options: argparse.Namespace) -> dict[str, np.ndarray]:
    """Sources and labels of all batches, ids padded with 0, in the order they are taken."""
    rng = np.random.default_rng(options.seed)
    sources, targets = draw_lengths(rng, options.batch * options.batches, options)
    rows = np.lexsort((sources, targets)).reshape(options.batches, options.batch)

    def ids(lengths: np.ndarray) -> np.ndarray:
        width = -(-lengths.max() // options.length_multiple) * options.length_multiple
        words = rng.integers(FIRST_WORD, options.vocabulary, (len(lengths), width))
        return np.where(np.arange(width) < lengths[:, None], words, 0).astype("int32")

    batches = {}
    for number, chosen in enumerate(rng.permutation(rows)):
        batches[f"source_{number:03d}"] = ids(sources[chosen])
        batches[f"labels_{number:03d}"] = ids(targets[chosen])
    return batches


def load_batches(path: str) -> list[tuple[dict[str, np.ndarray], np.ndarray]]:
    """Inputs and labels of each batch for Keras models."""
    return [
        ({"source": source, "target": target}, labels)
        for source, target, labels in training_batches(path)
    ]


def our_config(case: str, options: argparse.Namespace) -> object:
    """The configuration of a case."""
    from training.config.schema import Config

    sizes = {
        "encoder_units": options.units // 2,
        "decoder_units": options.units,
        "embedding_size": options.units // 2,
        "attention_units": options.units,
        "readout_units": options.units,
    }
    cell, attention, recurrent = MODELS[options.model]
    settings = {"encoder": cell, "decoder": cell, "attention": attention}
    if attention == "general":
        settings |= {"order": "luong", "input_feeding": recurrent}
    precision = case.partition(", ")[2] or "float32"
    return Config(dropout=0.0, precision=precision, **sizes, **settings)


def our_model(case: str, options: argparse.Namespace) -> object:
    """A compiled model of this project."""
    import keras

    from training.fit.crossentropy import TokenCrossentropy
    from training.fit.optimizer import Adam
    from training.model.seq2seq import build_seq2seq

    config = our_config(case, options)
    keras.config.set_dtype_policy(config.precision)
    model = build_seq2seq(config, options.vocabulary, options.vocabulary)
    model.compile(Adam(), TokenCrossentropy(), jit_compile=options.jit_compile)
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
    batches, model = load_batches(options.data), our_model(case, options)

    def round_() -> None:
        for inputs, labels in batches:
            model.train_on_batch(inputs, labels)

    return round_


@contextlib.contextmanager
def written_batches(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Write all batches for workers: a file that `load_batches` reads, and its target tokens."""
    batches = make_batches(options)
    tokens = sum(int((x > 0).sum()) for name, x in batches.items() if name.startswith("labels"))
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/batches.npz"
        np.savez(data, **batches)
        yield data, tokens


def speed(
    taken: list[dict[str, float]], tokens: int, options: argparse.Namespace
) -> dict[str, float]:
    """What the rounds of a case come to; a round has that many target tokens."""
    return {
        "tokens_per_s": round(tokens / median(taken)),
        "step_ms": round(median(taken) / options.batches * 1e3, 1),
        "processor_ms": round(median(taken, "processor_s") / options.batches * 1e3, 1),
    }


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
    import end_to_end

    cases = [case for case in options.cases if case in OURS]
    return {case: end_to_end.measure(our_config(case, options), options) for case in cases}


def print_table(rows: dict[str, dict[str, float | None]]) -> None:
    """Print the measurements."""
    columns = {name: name.split(" (")[0] for name in next(iter(rows.values()), {})}
    print(f"{'':48}" + "".join(f"  {title}" for title in columns.values()))
    for case, row in rows.items():
        print(f"{case:48}" + "".join(f"  {row[c]:>{len(t)}}" for c, t in columns.items()))


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is trained on what."""
    add = parser.add_argument
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
