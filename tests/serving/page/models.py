"""Small SavedModels of the kinds that the page shows beside text."""

from pathlib import Path

import numpy as np
import tensorflow as tf

ROWS, COLUMNS, TOKENS = 2, 3, 5
MOST_EVENTS = 3


class Bright(tf.Module):
    """Reads "abcde" in every image; token t looks where it is bright, t columns to the right.

    It is unsure of "b", and of "d" nearly.
    """

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def read(self, image_bytes):
        found = self._look(image_bytes)
        return {name: found[name] for name in ("text", "score")}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def regions(self, image_bytes):
        return self._look(image_bytes)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def nbest(self, image_bytes):
        batch = tf.shape(image_bytes)[0]
        return {
            "texts": tf.repeat([["abcde", "axcde", "", ""]], batch, 0),
            "scores": tf.repeat([[-1.0, -1.5, -2.0, -np.inf]], batch, 0),
        }

    def _look(self, image_bytes):
        def grid(file):
            image = tf.io.decode_png(file, channels=1)[None]
            return tf.image.resize(image, [ROWS, COLUMNS], "area")[0, :, :, 0]

        weights = tf.map_fn(grid, image_bytes, tf.TensorSpec([ROWS, COLUMNS], tf.float32))
        weights /= tf.reduce_sum(weights, [1, 2], keepdims=True)
        batch = tf.shape(image_bytes)[0]
        return {
            "text": tf.repeat(tf.constant(["abcde"]), batch),
            "score": -tf.ones([batch]),
            "tokens": tf.tile(tf.constant([[*"abcde"]]), [batch, 1]),
            "token_probabilities": tf.repeat([[0.9, 0.3, 1.0, 0.51, 0.99]], batch, 0),
            "attention_weights": tf.stack([tf.roll(weights, t, 2) for t in range(TOKENS)], 1),
        }


class Unsure(tf.Module):
    """Says each word in capitals and is unsure of the second."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def translate(self, text):
        words = tf.strings.split(tf.strings.upper(text)).to_tensor()
        inside = tf.range(tf.shape(words)[1]) > 0
        words = tf.where(inside & (words != ""), " " + words, words)
        sure = tf.where(tf.range(tf.shape(words)[1]) == 1, 0.34, 0.9)
        return {
            "translation": tf.strings.reduce_join(words, 1),
            "score": -tf.ones(tf.shape(text)),
            "truncated": tf.zeros_like(text, tf.bool),
            "words": words,
            "word_probabilities": tf.where(words != "", sure, 0.0),
        }


class Mean(tf.Module):
    """The probability is the mean of `bili` so far; all events with one weigh alike.

    More than three events are said to be too many.
    """

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.float32, name=name) for name in ("time", "bili")
        ]
    )
    def predict(self, time, bili):
        known = tf.cast(~tf.math.is_nan(bili) & ~tf.math.is_nan(time), tf.float32)
        weights = tf.math.divide_no_nan(known, tf.reduce_sum(known, 1, keepdims=True))
        values = tf.where(known > 0, bili, 0.0)
        return {
            "probability": tf.reduce_sum(weights * values, 1),
            "attention_weights": weights,
            "truncated": tf.fill([tf.shape(time)[0]], tf.shape(time)[1] > MOST_EVENTS),
        }


def save_reader(path: Path) -> Path:
    return _save(Bright(), path, "read", "regions", "nbest")


def save_predictor(path: Path) -> Path:
    return _save(Mean(), path, "predict")


def save_unsure(path: Path) -> Path:
    return _save(Unsure(), path, "translate")


def _save(module: tf.Module, path: Path, first: str, *others: str) -> Path:
    signatures = {name: getattr(module, name) for name in (first, *others)}
    signatures["serving_default"] = signatures[first]
    tf.saved_model.save(module, str(path), signatures=signatures)
    return path


VISITS = """patient,day,bili,note
a,0,0.5,first
a,10,,
b,3,0.25,other
a,30,0.125,last
"""
