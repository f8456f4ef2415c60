"""Every layer of the library, once in each of its forms, for the checks that all must pass."""

import functools
import zlib

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
from tests.keras_attention.helpers import few, randomize

B, TQ, TV, DQ, DV, UNITS, OUT = 2, 3, 5, 7, 11, 13, 17
# Widths of query and value where a score wants the same, or heads divide them.
WIDTHS = {
    "normalized_additive": (DQ, 2 * DV),
    "dot": (DV, DV),
    "scaled_dot": (15, 15),
    "general entmax": (2 * DQ, 2 * DV),
    "rnn heads": (DQ, 2 * DV),
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
    "rnn deep": lambda **k: rnn(general(), units=OUT, readout="deep", **k),
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
