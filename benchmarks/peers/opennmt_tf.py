"""OpenNMT-tf as a worker of the benchmarks, run by its own environment's Python.

python -m peers.opennmt_tf train BATCHES VOCABULARY UNITS MODEL FORM...
python -m peers.opennmt_tf translate SETTINGS VOCABULARY UNITS FORM...
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import opennmt
import tensorflow as tf
import tensorflow_addons as tfa
from parts.batches import MODELS, Model, training_batches
from parts.turns import rounds_by_mode
from peers.workload import lengths, refuse, serve_peer


def make_model(
    vocabulary: int, units: int, kind: Model = MODELS["LSTM additive"], **params: object
) -> opennmt.models.SequenceToSequence:
    """The benchmarks' encoder-decoder: its decoder feeds the attentional vector back."""
    cell = {"lstm": tf.keras.layers.LSTMCell, "gru": tf.keras.layers.GRUCell}[kind.cell]
    mechanisms = {
        "additive": tfa.seq2seq.BahdanauAttention,
        "general": tfa.seq2seq.LuongAttention,
    }
    model = opennmt.models.SequenceToSequence(
        source_inputter=opennmt.inputters.WordEmbedder(embedding_size=units // 2),
        target_inputter=opennmt.inputters.WordEmbedder(embedding_size=units // 2),
        encoder=opennmt.encoders.RNNEncoder(
            1, units // 2, bidirectional=True, dropout=0.0, cell_class=cell
        ),
        decoder=opennmt.decoders.AttentionalRNNDecoder(
            1,
            units,
            bridge_class=opennmt.layers.DenseBridge,
            attention_mechanism_class=mechanisms[kind.attention],
            cell_class=cell,
            dropout=0.0,
        ),
    )
    special = ["<blank>", "<s>", "</s>"]
    words = [f"w{number}" for number in range(vocabulary - len(special) - 1)]  # and <unk>
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/vocabulary"
        Path(path).write_text("\n".join(special + words) + "\n")
        model.initialize({"source_vocabulary": path, "target_vocabulary": path}, params=params)
        model.create_variables()
    return model


def training_round(
    path: str, vocabulary: int, units: int, kind: Model, form: list[str]
) -> Callable[[], None]:
    """A function that trains on every batch once."""
    if not kind.recurrent:
        refuse(kind)
    if "mixed_bfloat16" in form:
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = make_model(vocabulary, units, kind)
    optimizer = tf.keras.optimizers.legacy.Adam()
    batches = []
    for source, inputs, labels in training_batches(path):
        features = {"ids": source, "length": lengths(source)}
        target = {"ids": inputs, "ids_out": labels, "length": lengths(labels)}
        batches.append(tf.nest.map_structure(tf.constant, (features, target)))

    @tf.function(reduce_retracing=True, jit_compile="XLA" in form)
    def step(features: dict, target: dict) -> tf.Tensor:
        loss, gradients = model.compute_gradients(features, target, optimizer)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def round_() -> None:
        for features, target in batches:
            step(features, target).numpy()

    return round_


def translations(
    path: str, vocabulary: int, units: int, form: list[str]
) -> dict[str, Callable[[], None]]:
    """Functions that translate all sentences, by the mode's name: see decoding_speed.py."""
    if "mixed_bfloat16" in form:
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    settings = json.loads(Path(path).read_text())
    length = settings["length"]

    def make(beam_width: int) -> Callable[[list[list[str]]], None]:
        lengths = {"minimum_decoding_length": length, "maximum_decoding_length": length}
        model = make_model(vocabulary, units, beam_width=beam_width, **lengths)

        @tf.function(input_signature=[tf.TensorSpec([None, None], tf.string)])
        def translate(tokens: tf.Tensor) -> tf.Tensor:
            lengths = tf.fill(tf.shape(tokens)[:1], tf.shape(tokens)[1])
            features = model.features_inputter.make_features(
                features={"tokens": tokens, "length": lengths}
            )
            return model(features)[1]["tokens"]

        def run(texts: list[list[str]]) -> None:
            assert translate(tf.constant(texts)).numpy().shape[-1] >= length

        return run

    return rounds_by_mode(settings, [text.split() for text in settings["texts"]], make)


if __name__ == "__main__":
    serve_peer(training_round, translations)
