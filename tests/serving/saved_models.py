"""Small SavedModels: a translator, arithmetic of TensorFlow 1, and a count that does not end."""

from pathlib import Path

import tensorflow as tf

WORDS = 7
PREDICT, REGRESS = (f"tensorflow/serving/{method}" for method in ("predict", "regress"))


class Upper(tf.Module):
    """Translates into capitals; reads seven words; has a translator's four signatures."""

    def __init__(self, suffix: str = ""):
        super().__init__()
        self.penalty = tf.Variable([0.5, 0.25, 0.125])
        self.suffix = tf.constant(suffix)

    def _words(self, text):
        return tf.strings.split(tf.ensure_shape(text, [None]))

    def translate(self, text):
        words = self._words(text)
        read = tf.strings.reduce_join(words[:, :WORDS], axis=1, separator=" ")
        lengths = words.row_lengths()
        return {
            "translation": tf.strings.upper(read) + self.suffix,
            "score": -tf.cast(lengths, tf.float32) * self.penalty[0],
            "truncated": lengths > WORDS,
        }

    def nbest(self, text):
        found = self.translate(text)
        return {
            "translations": tf.stack([found["translation"], tf.strings.lower(text), text], axis=1),
            "scores": found["score"][:, None] - self.penalty,
        }

    def align(self, text):
        words = self._words(text)[:, :WORDS].to_tensor("")
        size = tf.shape(words)[1]
        weights = tf.eye(size, batch_shape=[tf.shape(words)[0]])
        said = tf.cast(words != "", tf.float32)
        return {
            "translation": self.translate(text)["translation"],
            "source_tokens": words,
            "target_tokens": tf.strings.upper(words),
            "attention_weights": weights * said[:, :, None] * said[:, None, :],
        }


def save_upper(path: Path, suffix: str = "", names=("translate", "nbest", "align")) -> Path:
    module = Upper(suffix)
    text = tf.TensorSpec([None], tf.string, name="text")
    signatures = {
        name: tf.function(getattr(module, name)).get_concrete_function(text) for name in names
    }
    signatures["serving_default"] = signatures["translate"]
    tf.saved_model.save(module, str(path), signatures=signatures)
    return path


def save_half_plus_two(path: Path) -> Path:
    """A TensorFlow 1 model: y = x / 2 + 2. `sum` adds two inputs of different dtypes.

    `parse` has an input that a try with any text fails on: a serialized example.
    """
    v1 = tf.compat.v1
    build = v1.saved_model.signature_def_utils.build_signature_def
    info = v1.saved_model.utils.build_tensor_info
    with tf.Graph().as_default(), v1.Session() as session:
        examples = v1.placeholder(tf.string, [None], "examples")
        parsed = tf.io.parse_example(examples, {"x": tf.io.FixedLenFeature([1], tf.float32)})
        x = tf.identity(parsed["x"], "x")
        half = v1.get_variable("half", initializer=0.5, use_resource=True)
        y = tf.add(x * half, 2.0, "y")
        a = v1.placeholder(tf.float32, [None], "a")
        b = v1.placeholder(tf.int64, [None], "b")
        session.run(v1.global_variables_initializer())
        signatures = {
            "serving_default": build({"x": info(x)}, {"y": info(y)}, PREDICT),
            "sum": build(
                {"a": info(a), "b": info(b)}, {"sum": info(tf.cast(a, tf.int64) + b)}, PREDICT
            ),
            "parse": build({"inputs": info(examples)}, {"outputs": info(y)}, REGRESS),
        }
        builder = v1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()
    return path


class Endless(tf.Module):
    """Counts to 2^40 in a loop of the graph: days."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def __call__(self, text):
        # As long as the text says "count": others, as the warm-up's, are answered at once.
        last = tf.where(tf.reduce_any(text == "count"), tf.constant(2**40, tf.int64), 1)
        done = tf.while_loop(lambda n: n < last, lambda n: [n + 1], [tf.constant(0, tf.int64)])
        return {"count": tf.fill(tf.shape(text), done[0])}


def save_endless(path: Path) -> Path:
    module = Endless()
    tf.saved_model.save(module, str(path), signatures=module.__call__)
    return path
