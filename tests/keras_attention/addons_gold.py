"""Record what TensorFlow Addons computes, for `test_addons.py`: weights, inputs, results.

Addons ended in 2024 and needs an older TensorFlow, in an environment of its own:

    pip install tensorflow-cpu==2.15.1 tensorflow-addons==0.23.0 'numpy<2'
    python tests/keras_attention/addons_gold.py
"""

import json
import os
import tempfile
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf
import tensorflow_addons as tfa

B, T, S, DIM, DV, UNITS, OUT, V = 2, 3, 5, 3, 4, 6, 5, 7
MECHANISMS = {
    "bahdanau": lambda: tfa.seq2seq.BahdanauAttention(4),
    "bahdanau normalized": lambda: tfa.seq2seq.BahdanauAttention(4, normalize=True),
    "luong": lambda: tfa.seq2seq.LuongAttention(UNITS),
    "luong scaled": lambda: tfa.seq2seq.LuongAttention(UNITS, scale=True),
    "bahdanau monotonic": lambda: tfa.seq2seq.BahdanauMonotonicAttention(4, score_bias_init=0.5),
}
WRAPPERS = {
    "plain": {},
    "layer": {"attention_layer_size": OUT},
    "tanh layer": {"attention_layer": "tanh"},
    "cell output": {"output_attention": False},
}


def record(mechanism, wrapper):
    rng = np.random.default_rng(7)
    options = dict(WRAPPERS[wrapper])
    if options.get("attention_layer") == "tanh":
        options["attention_layer"] = tf.keras.layers.Dense(OUT, "tanh", use_bias=False)
    attention = MECHANISMS[mechanism]()
    make = tf.keras.layers.GRUCell if wrapper == "plain" else tf.keras.layers.LSTMCell
    decoder = tfa.seq2seq.AttentionWrapper(
        make(UNITS), attention, alignment_history=False, **options
    )
    memory = rng.normal(size=(B, S, DV)).astype("float32")
    inputs = rng.normal(size=(B, T, DIM)).astype("float32")
    lengths = np.array([5, 3])

    def run():
        attention.setup_memory(tf.constant(memory), memory_sequence_length=lengths)
        state = decoder.get_initial_state(batch_size=B, dtype=tf.float32)
        outputs, weights = [], []
        for t in range(T):
            output, state = decoder(tf.constant(inputs[:, t]), state)
            outputs.append(output.numpy())
            weights.append(state.alignments.numpy())
        return np.stack(outputs, 1), np.stack(weights, 1)

    run()
    for w in decoder.weights:
        w.assign(rng.normal(size=w.shape, scale=0.5).astype("float32"))
    outputs, weights = run()
    with tempfile.TemporaryDirectory() as folder:
        path = tf.train.Checkpoint(decoder=decoder).save(folder + "/model")
        reader = tf.train.load_checkpoint(path)
        saved = {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}
    saved = {
        n: x.tolist() for n, x in saved.items() if "VARIABLE_VALUE" in n and "save_counter" not in n
    }
    return {
        "saved": saved,
        "memory": memory.tolist(),
        "lengths": lengths.tolist(),
        "inputs": inputs.tolist(),
        "outputs": outputs.tolist(),
        "weights": weights.tolist(),
    }


def rounded(x):
    if isinstance(x, dict):
        return {name: rounded(y) for name, y in x.items()}
    return [rounded(y) for y in x] if isinstance(x, list) else round(x, 7)


if __name__ == "__main__":
    found = {f"{m}, {w}": record(m, w) for m in MECHANISMS for w in WRAPPERS}
    path = Path(__file__).with_name("addons_gold.json")
    path.write_text(json.dumps(rounded(found)))
