"""Every layer of the library, once in each of its forms, for the checks that all must pass.

`python -m tests.keras_attention.zoo [COUNT]` prints how far each is from the values recorded in
gold.json, a JSON line a precision and layer, for the backend and device that Keras has. These were
recorded in float32 on a CPU, where the other tests hold each formula to a loop in NumPy.
"""

import functools
import json
import sys
import zlib
from pathlib import Path

import keras
import numpy as np

from keras_attention import (
    AdditiveAttention,
    AttentionCell,
    AttentionPooling,
    AttentionRNN,
    CoverageAttention,
    HoistedRNN,
    LocalAttention,
    MonotonicAttention,
    MultiplicativeAttention,
    distributions,
    mechanisms,
)
from tests.keras_attention.helpers import array, few, randomize

GOLD = Path(__file__).with_name("gold.json")
# Products of float32 are rounded to 10 bits in TF32 before they are added, to 8 in bfloat16.
TOLERANCES = {"float32": 1e-4, "TF32": 2e-2, "bfloat16": 2e-1}

B, TQ, TV, DQ, DV, UNITS, OUT = 2, 3, 5, 7, 11, 13, 17
# Widths of query and value where a score wants the same, or heads divide them.
WIDTHS = {
    "normalized_additive": (DQ, 2 * DV),
    "dot": (DV, DV),
    "scaled_dot": (15, 15),
    "general entmax": (2 * DQ, 2 * DV),
    "rnn heads": (DQ, 2 * DV),
    "chunkwise heads": (DQ, 2 * DV),
}


@keras.saving.register_keras_serializable("tests")
def smoothing(scores, mask=None):
    """Sigmoids divided by their sum (Chorowski et al. 2015, arXiv 1506.07503, section 2.3)."""
    if mask is not None:
        scores = keras.ops.where(mask, scores, 0.0)
    return distributions.softmax(keras.ops.log_sigmoid(scores), mask)


@keras.saving.register_keras_serializable("tests")
def sharpened(scores, mask=None):
    return smoothing(1.5 * scores, mask)


def general(**kwargs):
    return MultiplicativeAttention("general", **kwargs)


def rnn(attention, cell=keras.layers.GRUCell, width=UNITS, **kwargs):
    return AttentionRNN(cell(width), attention, return_attention_scores=True, **kwargs)


def of_one_dtype(make):
    """The layer and those in it with the dtype that is asked for."""

    def made(dtype=None, **kwargs):
        policy = keras.config.dtype_policy()
        keras.config.set_dtype_policy(dtype or policy)
        try:
            return make(**kwargs)
        finally:
            keras.config.set_dtype_policy(policy)

    return made


# Several heads and all distributions are among them, and windows that five positions do not fit in.
OWN = {
    "normalized_additive": {"num_heads": 2},
    "dot": {"use_scale": True},
    "scaled_dot": {"num_heads": 3},
    "general": {"distribution": "sparsemax"},
    "location": {"max_length": 7},
    "local_m": {"half_width": 1},
    "local_p": {"half_width": 2},
    "location_sensitive": {
        **{"filters": 2, "kernel_size": 3, "cumulative": True, "distribution": sharpened},
    },
}
MECHANISMS = {
    **{
        name: functools.partial(
            mechanisms.make, name, 2 * UNITS if options.get("num_heads") == 2 else UNITS, **options
        )
        for name, options in ((name, OWN.get(name, {})) for name in mechanisms.BY_NAME)
    },
    "general entmax": lambda **k: general(distribution="entmax15", num_heads=2, **k),
    "chunkwise heads": lambda **k: mechanisms.make("chunkwise", 2 * UNITS, num_heads=2, **k),
    "monotonic hard": of_one_dtype(lambda **k: MonotonicAttention(general(), mode="hard", **k)),
}
POOLING = {"pooling": lambda **k: AttentionPooling(UNITS, **k)}
RECURRENT = {
    "rnn bahdanau": lambda **k: rnn(AdditiveAttention(UNITS, dropout=0.3), **k),
    "rnn bahdanau feeding": lambda **k: rnn(
        CoverageAttention(UNITS),
        keras.layers.LSTMCell,
        units=OUT,
        input_feeding=True,
        gate=True,
        **k,
    ),
    "rnn luong": lambda **k: rnn(
        LocalAttention(general(), 1), order="luong", units=OUT, return_state=True, **k
    ),
    "rnn luong feeding": lambda **k: rnn(
        MonotonicAttention(general(num_heads=1)), order="luong", units=OUT, input_feeding=True, **k
    ),
    "rnn deep": lambda **k: rnn(general(), units=OUT, readout="maxout", **k),
    "rnn heads": lambda **k: rnn(
        general(num_heads=2), width=2 * UNITS, return_sequences=False, **k
    ),
}
RECURRENT = {name: of_one_dtype(make) for name, make in RECURRENT.items()}
OTHER = {
    "cell": of_one_dtype(
        lambda **k: AttentionCell(keras.layers.GRUCell(UNITS), CoverageAttention(UNITS), **k)
    ),
    "hoisted": of_one_dtype(
        lambda **k: HoistedRNN(keras.layers.GRUCell(UNITS), return_sequences=True, **k)
    ),
}
LAYERS = {**MECHANISMS, **POOLING, **RECURRENT, **OTHER}
# Among them these have each operation that a backend replaces: products, gathers, sorts, loops.
OF_EVERY_BACKEND = {
    *("additive", "general entmax", "location", "location_sensitive", "chunkwise", "pooling"),
    *("rnn bahdanau feeding", "rnn luong", "hoisted"),
}


def thinned(names):
    """The layers on TensorFlow; on another backend those that meet an operation of its own."""
    return few(names, *OF_EVERY_BACKEND)


def widths(name):
    """The widths of the layer's query, or input, and of its value."""
    return WIDTHS.get(name, (DQ, DV))


def shapes(name):
    """The shapes of the layer's inputs, without the batch axis."""
    query, value = widths(name)
    if name in POOLING or name == "hoisted":
        return [(TV, value)]
    return [(query,) if name == "cell" else (TQ, query), (TV, value)]


def masks(name):
    """The name of the mask of each input, empty for one that takes none."""
    if name in POOLING or name == "hoisted":
        return ["mask"]
    if name in MECHANISMS:
        return ["query_mask", "value_mask"]
    return ["" if name == "cell" else "inputs_mask", "memory_mask"]


def call(name, layer, inputs, **kwargs):
    """Call the layer with all that it can return, as a flat list."""
    if name in MECHANISMS or name in POOLING:
        kwargs["return_attention_scores"] = True
    return keras.tree.flatten(layer(*inputs, **kwargs))


def arrays(name, rng, batch=B):
    return [rng.normal(size=(batch, *shape)).astype("float32") for shape in shapes(name)]


def fixed_weights(layer):
    """Give the layer weights that are the same in every run and on every backend."""
    randomize(layer, np.random.default_rng(7), 0.35)


def built(name, **kwargs):
    """The layer with these weights."""
    layer = LAYERS[name](**kwargs)
    layer.build(*[(B, *shape) for shape in shapes(name)])
    fixed_weights(layer)
    return layer


def recorded(name):
    """The layer and the inputs of which gold.json has the results, and the generator after them."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return built(name), arrays(name, rng), rng


def differences(names):
    """A row a precision and layer: its largest difference, in units of its largest value."""
    gold = json.loads(GOLD.read_text())
    for precision, tolerance in TOLERANCES.items():
        allow_tf32(precision == "TF32")
        for name in names:
            policy = "mixed_bfloat16" if precision == "bfloat16" else "float32"
            keras.config.set_dtype_policy(policy)
            try:
                found = outputs(name)
            except (RuntimeError, ValueError, TypeError) as error:
                yield {"case": name, "precision": precision, "error": str(error)[:200]}
                continue
            finally:
                keras.config.set_dtype_policy("float32")
            worst = 0.0
            for n, values in enumerate(found):
                wanted = np.array(gold[name][str(n)])
                size = max(np.abs(wanted).max(), 1e-3)
                worst = max(worst, float(np.abs(values - wanted).max() / size))
            right = "yes" if worst <= tolerance else "NO"
            yield {"case": name, "precision": precision, "difference": worst, "right": right}
    allow_tf32(False)


def outputs(name):
    """The layer's outputs of the inputs and weights that gold.json was recorded with."""
    layer, inputs, _ = recorded(name)
    found = [keras.ops.cast(x, "float32") for x in call(name, layer, inputs)]
    return [x.astype("float64").ravel() for x in array(found)]


def allow_tf32(allow):
    """Let products of float32 be rounded to TF32 first, or forbid it; a CPU takes no notice."""
    if keras.backend.backend() == "jax":
        import jax

        jax.config.update("jax_default_matmul_precision", "tensorfloat32" if allow else "float32")
    elif keras.backend.backend() == "torch":
        import torch

        torch.set_float32_matmul_precision("high" if allow else "highest")
        torch.backends.cudnn.allow_tf32 = allow
    else:
        import tensorflow as tf

        tf.config.experimental.enable_tensor_float_32_execution(allow)


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else len(LAYERS)
    for row in differences(list(LAYERS)[:count]):
        print(json.dumps(row), flush=True)
