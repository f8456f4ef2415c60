"""Stock Keras layers, trained for quality_peers.py: python -m peers.quality_stock_keras TASK MODEL.

The encoder-decoder of Keras's and TensorFlow's tutorials: an LSTM that reads both ways, an LSTM
whose outputs attend with `AdditiveAttention` once it has run, and a `Dense` layer. Keras has no
search for it: here a plain loop in NumPy over the model of one step.
"""

from __future__ import annotations

import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops
from parts.quality import Task, nearest_width, pieces, read_lines, serve, timed, words

PAD, START, END = 0, 2, 3
BATCH_SIZE = 64  # TensorFlow's tutorial, as are Adam with its defaults and no dropout


class Translator:
    """Its layers, and the models made of them.

    Args:
        sizes: pieces of the source and of the target, special ones counted.
        units: of embeddings, of the encoder's LSTM both ways together, of the decoder's, and of
            the attention.
    """

    def __init__(self, sizes: tuple[int, int], units: int) -> None:
        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        x = layers.Embedding(sizes[0], units, mask_zero=True)(source)
        reader = layers.LSTM(units // 2, return_sequences=True, return_state=True)
        memory, h, c, h_back, c_back = layers.Bidirectional(reader)(x)
        first = [layers.Concatenate()(pair) for pair in ([h, h_back], [c, c_back])]
        self.encoder = keras.Model(source, [memory, *first])

        memory_in = keras.Input((None, units))
        known = keras.Input((None,), dtype="bool")
        states = [keras.Input((units,)) for _ in range(2)]
        x = layers.Embedding(sizes[1], units)(target)
        lstm = layers.LSTM(units, return_sequences=True, return_state=True)
        x, *last = lstm(x, initial_state=states)
        query = layers.Dense(units, use_bias=False)(x)
        key = layers.Dense(units, use_bias=False)(memory_in)
        context = layers.AdditiveAttention()([query, memory_in, key], mask=[None, known])
        x = layers.Dense(units, activation="tanh")(layers.Concatenate()([context, x]))
        logits = layers.Dense(sizes[1])(x)
        self.decoder = keras.Model([target, memory_in, known, *states], [logits, *last])

        logits, *_ = self.decoder([target, memory, ops.not_equal(source, PAD), *first])
        self.model = keras.Model({"source": source, "target": target}, logits)
        self.start = tf.function(self.encoder, reduce_retracing=True)
        self.step = tf.function(self.decoder, reduce_retracing=True)

    def search(self, source: np.ndarray, width: int, longest: int) -> list[list[int]]:
        """Beam search; hypotheses are compared by their mean log probability.

        Args:
            source: pieces `(B, S)`, padded.
            width: hypotheses kept of each.
            longest: most pieces of one.
        """
        count = len(source)
        rows = np.repeat(np.arange(count), width)
        memory, *states = (np.asarray(x)[rows] for x in self.start(source))
        known = (source != PAD)[rows]
        scores = np.full((count, width), -np.inf)
        scores[:, 0] = 0.0  # all are the same at first
        tokens = np.full((count * width, 1), START, "int32")
        said = np.zeros((count, width, 0), "int32")
        ended = np.zeros((count, width), bool)
        lengths = np.zeros((count, width))
        for _ in range(longest):
            logits, *states = self.step([tokens, memory, known, *states])
            found = np.array(tf.nn.log_softmax(logits[:, 0])).reshape(count, width, -1)
            found[ended] = -np.inf
            found[ended, PAD] = 0.0  # an ended one goes on as it is
            total = (scores[:, :, None] + found).reshape(count, -1)
            best = np.argsort(-total, axis=1)[:, :width]
            scores = np.take_along_axis(total, best, 1)
            parents, new = np.divmod(best, found.shape[-1])
            chosen = np.arange(count)[:, None], parents
            ended, lengths = ended[chosen], lengths[chosen] + ~ended[chosen]
            said = np.concatenate([said[chosen], new[:, :, None]], axis=2)
            ended |= new == END
            kept = (chosen[0] * width + parents).ravel()
            states = [np.asarray(state)[kept] for state in states]
            tokens = new.reshape(-1, 1).astype("int32")
            if ended.all():
                break
        best = np.argmax(scores / lengths, axis=1)
        return [[n for n in row if n > END] for row in said[np.arange(count), best].tolist()]


class Deadline(keras.callbacks.Callback):
    """Stops training at the first step after so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.end = time.monotonic() + seconds

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Look at the clock."""
        if time.monotonic() > self.end:
            self.model.stop_training = True


def batches(task: Task) -> tf.data.Dataset:
    """The training pairs in batches of sentences about as long, anew each epoch, without end."""
    sides = [[pieces(line) for line in read_lines(task.file(f"train.{s}"))] for s in SIDES]
    ragged = [tf.ragged.constant(side, tf.int32) for side in sides]

    def pair(row: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        source, target = ragged[0][row], ragged[1][row]
        inputs = tf.concat([[START], target], 0)
        return {"source": source, "target": inputs}, tf.concat([target, [END]], 0)

    count = len(sides[0])
    rows = tf.data.Dataset.range(count).shuffle(count, seed=task.seed).repeat()
    options = tf.data.Options()
    options.autotune.enabled = False
    return (
        rows.map(pair, num_parallel_calls=1)
        .bucket_by_sequence_length(
            lambda _, labels: tf.size(labels),
            bucket_boundaries=list(range(5, task.longest, 4)),
            bucket_batch_sizes=[BATCH_SIZE] * (len(range(5, task.longest, 4)) + 1),
        )
        .prefetch(4)
        .with_options(options)
    )


SIDES = ("source", "target")


def run(task: Task, _: str) -> dict[str, float | None]:
    """Train and translate."""
    keras.utils.set_random_seed(task.seed)
    sizes = tuple(len(read_lines(task.file(f"vocabulary.{side}"))) + 4 for side in SIDES)
    units = nearest_width(lambda n: Translator(sizes, n).model.count_params(), task.weights)
    translator = Translator(sizes, units)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=PAD)
    translator.model.compile(keras.optimizers.Adam(), loss)
    data = batches(task)

    def train() -> None:
        translator.model.fit(
            data, steps_per_epoch=10**9, callbacks=[Deadline(task.seconds)], verbose=0
        )

    seconds = timed(train)
    sources = [pieces(line) for line in read_lines(task.file("dev.source"))]
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    found: dict[int, list[int]] = {}

    def translate() -> None:
        for first in range(0, len(order), task.batch_size):
            rows = order[first : first + task.batch_size]
            padded = tf.ragged.constant([sources[i] for i in rows], tf.int32).to_tensor().numpy()
            answers = translator.search(padded, task.beam_width, task.longest)
            found.update(zip(rows, answers, strict=True))

    translation_s = timed(translate)
    with open(task.own("hypotheses"), "w", encoding="utf-8") as file:
        file.writelines(f"{words(found[i])}\n" for i in range(len(sources)))
    steps = int(translator.model.optimizer.iterations)
    pairs = len(read_lines(task.file("train.source")))
    return {
        "weights": translator.model.count_params(),
        "seconds": seconds,
        "steps": steps,
        "epochs": steps * BATCH_SIZE / pairs,
        "translation_s": translation_s,
    }


if __name__ == "__main__":
    serve(run)
