"""Translation speed of whole models: python benchmarks/decoding_speed.py

Sentences a second, greedily and with 5 beams, one at a time and in batches of 32: 500 sentences of
12 tokens, outputs of exactly 20 tokens, by an encoder-decoder of untrained weights: bidirectional
LSTM 256 x 2, decoder LSTM 512, embeddings 256, additive attention of 512 units, vocabulary 8,000.
This project's are an exported SavedModel, loaded in a fresh process and called with strings, and an
ONNX export, asked in a process without TensorFlow with a thread for each core. Beside them a
hand-written greedy loop over stock Keras layers, from token ids to token ids, and peers, each in
its own environment `$KERAS_ATTENTION_PEERS/NAME`. All are processes that take turns; medians, and
medians of the ratios of each turn. Prints a table; the last line is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from parts.batches import SPECIAL
from parts.translation import export_forced, forced_translation, untrained_run, words
from parts.turns import median, median_ratio, rounds_by_mode, serve, take_turns
from peers.environments import PEERS, TRANSLATION_FORMS, start_workers

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Beam width and batch size of each mode.
MODES = {
    "greedy, 1 at a time": (1, 1),
    "greedy, batch 32": (1, 32),
    "beam 5, 1 at a time": (5, 1),
    "beam 5, batch 32": (5, 32),
}
OURS, BFLOAT16 = "keras-attention SavedModel", "keras-attention SavedModel, bfloat16"
STOCK = "stock Keras layers, own loop"
PRECISIONS = {OURS: "float32", BFLOAT16: "bfloat16"}
ONNX = {"keras-attention ONNX": "float32", "keras-attention ONNX, int8": "int8"}
REFERENCES = [
    f"{name}{form}" for name in (STOCK, *PEERS) for form in ("", *TRANSLATION_FORMS.get(name, ()))
]
CASES = [*PRECISIONS, *ONNX, *REFERENCES]
START = 2  # the id of this project's tokenizers


def export_ours(folder: Path, options: argparse.Namespace) -> None:
    """Export an untrained model whose outputs are as long as asked, for each beam width."""
    import tensorflow as tf

    run = untrained_run(folder, options)
    precisions = [PRECISIONS[case] for case in options.cases if case in PRECISIONS]
    widths = {MODES[mode][0] for mode in options.modes}
    for precision, width in itertools.product(precisions, widths):
        settings = {"beam_width": width, "num_results": width, "precision": precision}
        module, translate = forced_translation(run, options.output_length, **settings)
        path = str(folder / f"{precision}-{width}")
        tf.saved_model.save(module, path, signatures={"translate": translate})
    for case in ONNX.keys() & set(options.cases):
        export_forced(run, options.output_length, folder / f"onnx-{ONNX[case]}", ONNX[case])


def our_rounds(data: Path, precision: str) -> dict[str, Callable[[], None]]:
    """Functions that translate all sentences by the exported models, by mode."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers its ops)

    settings = json.loads(data.read_text())

    def make(width: int) -> Callable[[list[str]], None]:
        model = tf.saved_model.load(data.parent / f"{precision}-{width}")

        def translate(texts: list[str]) -> None:
            found = model.signatures["translate"](text=tf.constant(texts))["translation"]
            assert all(len(text.split()) == settings["length"] for text in found.numpy())

        return translate

    return rounds_by_mode(settings, settings["texts"], make)


def onnx_rounds(data: Path, weights: str) -> dict[str, Callable[[], None]]:
    """Functions that translate all sentences by the ONNX export, by mode."""
    from serving.portable.read import LocalTranslator

    settings, threads = json.loads(data.read_text()), len(os.sched_getaffinity(0))

    def make(width: int) -> Callable[[list[str]], None]:
        folder = data.parent / f"onnx-{weights}"
        translator = LocalTranslator(folder, beam_width=width, threads=threads)

        def translate(texts: list[str]) -> None:
            found = translator.translate(texts)
            assert all(len(each.text.split()) == settings["length"] for each in found)

        return translate

    return rounds_by_mode(settings, settings["texts"], make)


def stock_rounds(case: str, options: argparse.Namespace) -> dict[str, Callable[[], None]]:
    """Functions that translate all sentences, as ids, by a loop over stock Keras layers."""
    import keras
    import tensorflow as tf
    from keras import layers

    keras.config.set_dtype_policy(case.removeprefix(STOCK).removeprefix(", ") or "float32")
    settings = json.loads(options.data.read_text())
    units, vocabulary, length = options.units, options.vocabulary, settings["length"]
    embed_source = layers.Embedding(vocabulary, units // 2, mask_zero=True)
    lstm = layers.LSTM(units // 2, return_sequences=True, return_state=True)
    encoder = layers.Bidirectional(lstm)
    bridges = [layers.Dense(units, activation="tanh") for _ in range(2)]
    embed_target, cell = layers.Embedding(vocabulary, units // 2), layers.LSTMCell(units)
    project_query, project_key = (layers.Dense(units, use_bias=False) for _ in range(2))
    attention, readout = layers.AdditiveAttention(), layers.Dense(units, activation="tanh")
    output = layers.Dense(vocabulary)

    def greedy(source: tf.Tensor) -> tf.Tensor:
        x = embed_source(source)
        memory, *states = encoder(x)
        states = [b(tf.concat(states[n::2], -1)) for n, b in enumerate(bridges)]
        key, mask = project_key(memory), source > 0
        tokens, ids = tf.fill(tf.shape(source)[:1], START), tf.TensorArray(tf.int32, length)

        def step(t: tf.Tensor, tokens: tf.Tensor, states: list, ids: tf.TensorArray) -> tuple:
            state, states = cell(embed_target(tokens), states)
            query = project_query(state)[:, None]
            context = attention([query, memory, key], mask=[None, mask])[:, 0]
            logits = output(readout(tf.concat([context, state], -1)))
            tokens = tf.argmax(logits, -1, tf.int32)
            return t + 1, tokens, states, ids.write(t, tokens)

        loop = (tf.constant(0), tokens, states, ids)
        *_, ids = tf.while_loop(lambda t, *_: t < length, step, loop)
        return tf.transpose(ids.stack())

    keras.utils.set_random_seed(options.seed)
    greedy(tf.ones((1, 2), tf.int32))  # makes the weights
    signature = [tf.TensorSpec([None, None], tf.int32)]
    translate = tf.function(greedy, input_signature=signature, autograph=False)
    sources = np.array([[int(w[1:]) + SPECIAL for w in text.split()] for text in settings["texts"]])

    def run(ids: np.ndarray) -> None:
        assert translate(tf.constant(ids, tf.int32)).numpy().shape[1] == length

    modes = {mode: each for mode, each in settings["modes"].items() if each[0] == 1}
    return rounds_by_mode({"modes": modes}, sources, lambda width: run)


def measure(options: argparse.Namespace) -> dict[str, dict[str, dict[str, float]]]:
    """Measure all cases in all modes."""
    rng = np.random.default_rng(options.seed)
    chosen = rng.choice(words(options), (options.sentences, options.length))
    settings = {
        "texts": [" ".join(row) for row in chosen],
        "length": options.output_length,
        "modes": {mode: MODES[mode] for mode in options.modes},
    }
    rows: dict[str, dict] = {case: {} for case in options.cases}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "settings.json"
        data.write_text(json.dumps(settings))
        if {*PRECISIONS, *ONNX} & set(options.cases):
            export_ours(data.parent, options)
        sizes = [options.vocabulary, options.units]
        workers = start_workers(options.cases, "translate", str(data), sizes)
        for mode in options.modes:
            greedy = MODES[mode][0] == 1
            taking_part = {c: w for c, w in workers.items() if greedy or not c.startswith(STOCK)}
            rounds = take_turns(taking_part, options.repeat, mode)
            for case, taken in rounds.items():
                row = {"sentences_per_s": round(options.sentences / median(taken), 1)}
                processor = median(taken, "processor_s") / options.sentences
                row["processor_ms"] = round(processor * 1e3, 2)
                for other in (OURS, *REFERENCES):
                    if other in rounds and other != case:
                        row[f"times {other}"] = round(median_ratio(taken, rounds[other]), 2)
                rows[case][mode] = row
        for worker in workers.values():
            worker.close()
    return {case: row for case, row in rows.items() if row}


def print_table(rows: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print the measurements."""
    for case, modes in rows.items():
        print(case)
        for mode, row in modes.items():
            times = "".join(f"   {v} {name}" for name, v in row.items() if name.startswith("times"))
            print(
                f"  {mode:20}{row['sentences_per_s']:>10} sentences/s"
                f"{row['processor_ms']:>10} ms of processor time{times}"
            )


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--backend", choices=("tensorflow",), default="tensorflow", help="exports need it")
    add("--cases", nargs="+", choices=CASES, default=CASES, help="what to measure")
    add("--modes", nargs="+", choices=MODES, default=list(MODES), help="how to translate")
    add("--repeat", type=int, default=5, help="rounds over all sentences")
    add("--sentences", type=int, default=500, help="in a round")
    add("--length", type=int, default=12, help="tokens of a sentence")
    add("--output-length", type=int, default=20, help="tokens of its translation")
    add("--vocabulary", type=int, default=8000, help="tokens, on both sides")
    add("--units", type=int, default=512, help="of the decoder; the others follow from it")
    add("--seed", type=int, default=7, help="of sentences and weights")
    add("--worker", help=argparse.SUPPRESS)
    add("--data", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    os.environ["KERAS_BACKEND"] = options.backend
    if options.worker:
        if options.worker.startswith(STOCK):
            rounds = stock_rounds(options.worker, options)
        elif options.worker in ONNX:
            rounds = onnx_rounds(options.data, ONNX[options.worker])
        else:
            rounds = our_rounds(options.data, PRECISIONS[options.worker])
        serve(rounds, 1)
        return
    rows = measure(options)
    print_table(rows)
    names = ("sentences", "length", "output_length", "vocabulary", "units")
    sizes = {name: getattr(options, name) for name in names}
    print(json.dumps({"rows": rows, **sizes, "backend": options.backend, "cpus": os.cpu_count()}))


if __name__ == "__main__":
    main()
