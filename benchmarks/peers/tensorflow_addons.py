"""TensorFlow Addons' seq2seq as a worker of the benchmarks, run by its own environment's Python.

python -m peers.tensorflow_addons train BATCHES VOCABULARY UNITS MODEL FORM...
python -m peers.tensorflow_addons translate SETTINGS VOCABULARY UNITS FORM...

Its `AttentionWrapper` feeds the attentional vector back. The output layer is given to the decoder
only where each step needs its logits; in training it runs once, over all steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa
from parts.batches import MODELS, SPECIAL, Model, training_batches
from peers.workload import refuse, serve_peer, translation_rounds

START, END = 2, 3
IDS = tf.TensorSpec([None, None], tf.int32)


class Seq2Seq(tf.Module):
    """The benchmarks' encoder-decoder."""

    def __init__(self, vocabulary: int, units: int, kind: Model = MODELS["LSTM additive"]) -> None:
        super().__init__()
        layers = tf.keras.layers
        self.embed_source = layers.Embedding(vocabulary, units // 2)
        self.embed_target = layers.Embedding(vocabulary, units // 2)
        layer = {"lstm": layers.LSTM, "gru": layers.GRU}[kind.cell]
        cell = {"lstm": layers.LSTMCell, "gru": layers.GRUCell}[kind.cell]
        encoder = layer(units // 2, return_sequences=True, return_state=True)
        self.encoder = layers.Bidirectional(encoder)
        states = {"lstm": 2, "gru": 1}[kind.cell]
        self.bridges = [layers.Dense(units, activation="tanh") for _ in range(states)]
        mechanisms = {
            "additive": tfa.seq2seq.BahdanauAttention,
            "general": tfa.seq2seq.LuongAttention,
        }
        self.attention = mechanisms[kind.attention](units)
        self.cell = tfa.seq2seq.AttentionWrapper(
            cell(units),
            self.attention,
            attention_layer=layers.Dense(units, activation="tanh", use_bias=False),
        )
        self.output = layers.Dense(vocabulary)

    def encode(self, source: tf.Tensor, beam_width: int = 1) -> list:
        """Give the memory to the attention mechanism; return the decoder's first states."""
        mask = source > 0
        memory, *states = self.encoder(self.embed_source(source), mask=mask)
        states = [
            b(tf.concat(states[n :: len(self.bridges)], -1)) for n, b in enumerate(self.bridges)
        ]
        found = (memory, states, tf.reduce_sum(tf.cast(mask, tf.int32), 1))
        if beam_width > 1:
            found = tfa.seq2seq.tile_batch(found, multiplier=beam_width)
        memory, states, lengths = found
        self.attention.setup_memory(memory, memory_sequence_length=lengths)
        initial = self.cell.get_initial_state(batch_size=tf.shape(memory)[0], dtype=memory.dtype)
        return initial.clone(cell_state=states if len(states) > 1 else states[0])

    def loss(self, source: tf.Tensor, inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Mean cross-entropy of the labels."""
        decoder = tfa.seq2seq.BasicDecoder(self.cell, tfa.seq2seq.TrainingSampler())
        lengths = tf.reduce_sum(tf.cast(labels > 0, tf.int32), 1)
        outputs, _, _ = decoder(
            self.embed_target(inputs), initial_state=self.encode(source), sequence_length=lengths
        )
        weights = tf.cast(labels > 0, tf.float32)
        logits = tf.cast(self.output(outputs.rnn_output), tf.float32)
        return tfa.seq2seq.sequence_loss(logits, labels, weights)

    def translate(self, source: tf.Tensor, beam_width: int, length: int) -> tf.Tensor:
        """The best translation of so many tokens, `(B, length)`."""
        initial = self.encode(source, beam_width)
        start = tf.fill(tf.shape(source)[:1], START)
        shared = {"output_layer": self.output, "maximum_iterations": length}
        embedding = self.embed_target.variables[0]
        if beam_width > 1:
            decoder = tfa.seq2seq.BeamSearchDecoder(self.cell, beam_width, **shared)
        else:
            sampler = tfa.seq2seq.GreedyEmbeddingSampler()
            decoder = tfa.seq2seq.BasicDecoder(self.cell, sampler, **shared)
        outputs, _, _ = decoder(embedding, start_tokens=start, end_token=END, initial_state=initial)
        return outputs.predicted_ids[:, :, 0] if beam_width > 1 else outputs.sample_id


def training_round(
    path: str, vocabulary: int, units: int, kind: Model, form: list[str]
) -> Callable[[], None]:
    """A function that trains on every batch once."""
    if not kind.recurrent:
        refuse(kind)
    if "mixed_bfloat16" in form:
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model, optimizer = Seq2Seq(vocabulary, units, kind), tf.keras.optimizers.legacy.Adam()
    batches = [[tf.constant(ids) for ids in batch] for batch in training_batches(path)]

    @tf.function(input_signature=[IDS] * 3, jit_compile="XLA" in form)
    def step(source: tf.Tensor, inputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = model.loss(source, inputs, labels)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return loss

    model.loss(*batches[0])  # makes the weights

    def round_() -> None:
        for batch in batches:
            step(*batch).numpy()

    return round_


def translations(
    path: str, vocabulary: int, units: int, form: list[str]
) -> dict[str, Callable[[], None]]:
    """Functions that translate all sentences, by the mode's name."""
    if "mixed_bfloat16" in form:
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = Seq2Seq(vocabulary, units)
    model.loss(*[tf.ones((1, 2), tf.int32)] * 3)  # makes the weights
    model.output.bias.assign(np.where(np.arange(vocabulary) < SPECIAL, -1e4, 0.0))

    def make(beam_width: int, length: int) -> Callable[[np.ndarray], np.ndarray]:
        translate = tf.function(
            lambda source: model.translate(source, beam_width, length), input_signature=[IDS]
        )
        return lambda source: translate(tf.constant(source, tf.int32)).numpy()

    return translation_rounds(path, make)


if __name__ == "__main__":
    serve_peer(training_round, translations)
