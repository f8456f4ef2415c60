"""Small SavedModels of the kinds that the page shows beside text."""

from pathlib import Path

import tensorflow as tf

ROWS, COLUMNS, TOKENS = 2, 3, 5


class Bright(tf.Module):
    """Reads "abcde" in every image; token t looks where it is bright, t columns to the right."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def read(self, image_bytes):
        found = self._look(image_bytes)
        return {name: found[name] for name in ("text", "score")}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="image_bytes")])
    def regions(self, image_bytes):
        return self._look(image_bytes)

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
            "attention_weights": tf.stack([tf.roll(weights, t, 2) for t in range(TOKENS)], 1),
        }


class Mean(tf.Module):
    """The probability is the mean of `bili` so far; all events with one weigh alike."""

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.float32, name=name) for name in ("time", "bili")
        ]
    )
    def predict(self, time, bili):
        known = tf.cast(~tf.math.is_nan(bili) & ~tf.math.is_nan(time), tf.float32)
        weights = tf.math.divide_no_nan(known, tf.reduce_sum(known, 1, keepdims=True))
        values = tf.where(known > 0, bili, 0.0)
        return {"probability": tf.reduce_sum(weights * values, 1), "attention_weights": weights}


def save_reader(path: Path) -> Path:
    module = Bright()
    signatures = {"read": module.read, "serving_default": module.read, "regions": module.regions}
    tf.saved_model.save(module, str(path), signatures=signatures)
    return path


def save_predictor(path: Path) -> Path:
    module = Mean()
    signatures = {"predict": module.predict, "serving_default": module.predict}
    tf.saved_model.save(module, str(path), signatures=signatures)
    return path


VISITS = """patient,day,bili,note
a,0,0.5,first
a,10,,
b,3,0.25,other
a,30,0.125,last
"""
