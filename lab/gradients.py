"""The norm of the loss's gradient for a state, over the distance between them.

An encoder reads 60 random vectors, then a decoder takes one step, whose output makes the
loss: a random direction times it. The decoder begins with the encoder's last state; with
attention it looks at all of them as well. Without attention every gradient goes back through all
the steps between, and vanishes or explodes (Bengio et al. 1994; Hochreiter and Schmidhuber 1997;
Pascanu et al. 2012, arXiv 1211.5063); attention is a way around them. All weights are as
initialised, the recurrent kernels orthogonal times a gain. Given are the norm for h_t alone, and
for the whole state, which in an LSTM is h_t and c_t.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_attention import AdditiveAttention, AttentionRNN
from lab import shared

CELLS = {
    "simple_rnn": keras.layers.SimpleRNNCell,
    "gru": keras.layers.GRUCell,
    "lstm": keras.layers.LSTMCell,
}
LENGTH, UNITS, BATCH_SIZE = 60, 64, 8  # steps of the encoder, units of all cells, sequences
SEEDS = 3  # times that weights and data are drawn
GAINS = (0.5, 1.0, 2.0)  # of the recurrent kernels
INPUT_SCALE = 0.1  # standard deviation; larger inputs saturate the cells


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the study has no options."""


def run(options: argparse.Namespace) -> dict:
    """Run the study; return the values that its last line prints."""
    rows = []
    for cell in CELLS:
        for attention in (False, True):
            for gain in GAINS:
                norms = mean_norms(cell, attention, gain)
                for step, (state, hidden) in enumerate(norms):
                    rows.append(
                        {
                            "cell": cell,
                            "attention": "additive" if attention else "none",
                            "gain": gain,
                            "distance": LENGTH - step,
                            "norm_h": float(hidden),
                            "norm_state": float(state),
                        }
                    )
            print(f"{cell}, attention: {rows[-1]['attention']}: done", flush=True)
    rows.sort(key=lambda row: (row["cell"], row["attention"], row["gain"], row["distance"]))
    shared.write_table(options.output / "gradients.csv", rows, printed=False)
    ends = far_to_near(rows)
    shared.write_table(options.output / "summary.csv", ends)
    draw(rows, options.output / "gradients.png")
    return {"far_to_near": ends}


def mean_norms(cell: str, attention: bool, gain: float) -> np.ndarray:
    """Norms of some draws, their geometric mean: `(length, 2)`."""
    logs = []
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        keras.utils.set_random_seed(seed)
        shape = (BATCH_SIZE, LENGTH, UNITS)
        inputs = INPUT_SCALE * rng.normal(size=shape).astype("float32")
        norms = gradient_norms(cell, attention, gain, inputs, rng)
        logs.append(np.log(np.maximum(norms, 1e-38)))
    return np.exp(np.mean(logs, axis=(0, 2)))


def gradient_norms(
    cell: str, attention: bool, gain: float, inputs: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Norms of the loss's gradient for each state of the encoder.

    `rng` draws the direction of the loss and the decoder's input; `inputs` are `(B, T, units)`.

    Returns:
        float32 `(T, B, 2)`: of the whole state after step t, and of its h alone.
    """
    batch, length, units = inputs.shape
    encoder, decoder_cell = (
        CELLS[cell](units, recurrent_initializer=keras.initializers.Orthogonal(gain))
        for _ in range(2)
    )
    decoder = decoder_cell
    if attention:
        decoder = AttentionRNN(decoder_cell, AdditiveAttention(units), units=units)
    start = tf.constant(rng.normal(size=(batch, units)), tf.float32)
    direction = rng.normal(size=(batch, units))
    direction = tf.constant(direction / np.linalg.norm(direction, axis=1, keepdims=True))
    sizes = encoder.state_size if isinstance(encoder.state_size, (list, tuple)) else [units]
    state = [tf.zeros((batch, size)) for size in sizes]
    states = []
    with tf.GradientTape() as tape:
        tape.watch(state)
        for step in range(length):
            _, state = encoder(inputs[:, step], state)
            state = list(state) if isinstance(state, (list, tuple)) else [state]
            states.append(state)
        if attention:
            memory = tf.stack([hidden for hidden, *_ in states], axis=1)
            output = decoder(start[:, None], memory, initial_state=state)[:, 0]
        else:
            output, _ = decoder(start, state)
        loss = tf.reduce_sum(output * tf.cast(direction, tf.float32))
    gradients = tape.gradient(loss, states)
    # h_t is read by the next step and by the attention, which takes it out of the state.
    squares = [[tf.reduce_sum(tf.square(g), axis=1) for g in parts] for parts in gradients]
    return np.sqrt([np.stack([sum(parts), parts[0]], axis=-1) for parts in squares])


def far_to_near(rows: Sequence[dict]) -> list[dict]:
    """The farthest state's norm by the nearest one's: below 1 it vanishes, above it explodes."""
    result = []
    for key in dict.fromkeys((row["cell"], row["attention"], row["gain"]) for row in rows):
        own = [row for row in rows if (row["cell"], row["attention"], row["gain"]) == key]
        near, far = (chosen(own, key=lambda row: row["distance"]) for chosen in (min, max))
        result.append(
            {
                **dict(zip(("cell", "attention", "gain"), key, strict=True)),
                "distance": far["distance"],
                "near": near["norm_state"],
                "far": far["norm_state"],
                "far_by_near": far["norm_state"] / near["norm_state"],
            }
        )
    return result


def draw(rows: Sequence[dict], path: Path) -> None:
    """Draw the norms, cells side by side, without attention above and with it below."""
    figure, panels = shared.new_figure(2, len(CELLS), height=3.5)
    for line, attention in enumerate(("none", "additive")):
        for column, cell in enumerate(CELLS):
            axes = panels[line, column]
            own = [r for r in rows if (r["cell"], r["attention"]) == (cell, attention)]
            for number, gain in enumerate(dict.fromkeys(row["gain"] for row in own)):
                points = [row for row in own if row["gain"] == gain]
                distance = [row["distance"] for row in points]
                norms = [row["norm_state"] for row in points]
                axes.plot(distance, norms, color=f"C{number}", label=f"gain {gain:g}")
                if cell == "lstm":
                    hidden = [row["norm_h"] for row in points]
                    axes.plot(distance, hidden, color=f"C{number}", linestyle=":")
            axes.set_yscale("log")
            axes.set_title(f"{cell}, attention: {attention}")
            axes.grid(alpha=0.3)
            axes.set_xlabel("steps from the state to the loss")
        panels[line, 0].set_ylabel("norm of ∂loss/∂state")
    for axes in panels.flat:
        axes.set_ylim(1e-12, 1e6)
    panels[0, 0].legend()
    panels[0, 2].plot([], [], color="black", linestyle=":", label="h alone")
    panels[0, 2].legend()
    figure.savefig(path, dpi=120)
