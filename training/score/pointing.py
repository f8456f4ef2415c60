"""Pointing: whether the greatest weight lies on the character that the decoder writes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from training.data.ids import START_ID
from training.data.pair_files import Split
from training.data.pipeline import reader
from training.decode.search import force_decode
from training.graphs import graph
from training.runs.run import Run
from training.sources.image.source import grid_size


def region_weights(
    runs: Sequence[Run], images: Sequence, texts: Sequence[str], batch_size: int = 64
) -> list[np.ndarray]:
    """Attention weights, averaged over runs, while the text of each image is said.

    Returns:
        For each image float32 `(T, h, w)`: for each token of its text the weight of each region.
    """
    models = [run.model for run in runs]
    source, tokenizer = runs[0].source, runs[0].target_tokenizer
    encoder = models[0].get_layer("encoder")
    pixels = tf.TensorSpec(encoder.input.shape, encoder.input.dtype)

    @graph(pixels, tf.TensorSpec([None], tf.string))
    def attend(batch: tf.Tensor, texts_said: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        ids = tokenizer.tokenize(texts_said)
        start = tf.fill([tf.shape(batch)[0], 1], START_ID)
        target = tf.concat([start, ids.to_tensor()], axis=1)
        return force_decode(models, batch, target), ids.row_lengths()

    read = reader(source.rows(images), 1)
    height, width = grid_size(runs[0].config)
    result = []
    for first in range(0, len(images), batch_size):
        batch = read(tf.range(first, min(first + batch_size, len(images)))[:, None], 1)
        weights, lengths = attend(batch, tf.constant(texts[first : first + batch_size], tf.string))
        for row, length in zip(weights.numpy(), lengths.numpy(), strict=True):
            result.append(row[:length].reshape(length, height, width))
    return result


def pointing(runs: Sequence[Run], split: Split) -> np.ndarray:
    """Count how often the region of largest weight lies in the box of the character being written.

    Each character is a token; the boxes were never seen in training. A region lies in a box if its
    centre does.

    Returns:
        Hits and characters of each image, `(N, 2)`.
    """
    texts = [references[0] for references in split.references]
    all_weights, gold = region_weights(runs, split.sources, texts), split.boxes or []
    rows = []
    for weights, boxes in zip(all_weights, gold, strict=True):
        length, height, width = weights.shape
        best = weights.reshape(length, -1).argmax(axis=1)
        x, y = (best % width + 0.5) / width, (best // width + 0.5) / height
        left, top, right, bottom = np.array(boxes).T
        inside = (left <= x) & (x <= right) & (top <= y) & (y <= bottom)
        rows.append((int(inside.sum()), length))
    return np.array(rows)
