"""A training step of a decoder that attends, on a backend.

    KERAS_BACKEND=NAME python benchmarks/recurrent_step.py

Beside it stands the same step with Keras's own LSTM in the decoder's place, which attends to
nothing. PyTorch runs the loop over the target from Python, operation by operation; TensorFlow and
JAX compile it. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import keras
import numpy as np

from keras_attention import AdditiveAttention, AttentionRNN


def decoder(units: int, attends: bool) -> keras.Model:
    """Return a model of embedded targets and an encoder's states, compiled to be trained."""
    target, memory = keras.Input((None, units)), keras.Input((None, units))
    if attends:
        outputs = AttentionRNN(keras.layers.LSTMCell(units), AdditiveAttention(units))(
            target, memory
        )
    else:
        outputs = keras.layers.LSTM(units, return_sequences=True)(target)
    model = keras.Model([target, memory], keras.layers.Dense(units)(outputs))
    model.compile(keras.optimizers.Adam(), "mse")
    return model


def milliseconds(model: keras.Model, arguments: argparse.Namespace) -> float:
    """Return the median time of a training step, after one that is not counted."""
    rng = np.random.default_rng(7)
    shape = (arguments.batch, arguments.length, arguments.units)
    target, memory, wanted = rng.normal(size=(3, *shape)).astype("float32")
    times = []
    for _ in range(arguments.repeat + 1):
        started = time.perf_counter()
        model.train_on_batch([target, memory], wanted)
        times.append(time.perf_counter() - started)
    return 1000 * statistics.median(times[1:])


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=32, help="sequences")
    parser.add_argument("--length", type=int, default=40, help="steps, and positions of the memory")
    parser.add_argument("--units", type=int, default=256, help="width of everything")
    parser.add_argument("--repeat", type=int, default=10, help="steps that are counted")
    arguments = parser.parse_args()
    rows = {
        name: milliseconds(decoder(arguments.units, attends), arguments)
        for name, attends in (("AttentionRNN", True), ("keras.layers.LSTM", False))
    }
    for name, each in rows.items():
        print(f"{keras.backend.backend():10}  {name:18}  {each:8.1f} ms a step")
    print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()
