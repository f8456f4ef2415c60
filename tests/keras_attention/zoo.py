"""Every layer of the library, once in each of its forms, for the checks that all must pass."""

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
    LocationAttention,
    LocationSensitiveAttention,
    MonotonicAttention,
    MonotonicChunkwiseAttention,
    MultiplicativeAttention,
)

B, TQ, TV, DQ, DV, UNITS = 2, 3, 5, 6, 6, 4


def general(**kwargs):
    return MultiplicativeAttention("general", **kwargs)


def rnn(attention, cell=keras.layers.GRUCell, **kwargs):
    return AttentionRNN(cell(UNITS), attention, return_attention_scores=True, **kwargs)


MECHANISMS = {
    "additive": lambda **k: AdditiveAttention(UNITS, **k),
    "additive heads": lambda **k: AdditiveAttention(UNITS, normalize=True, num_heads=2, **k),
    "dot": lambda **k: MultiplicativeAttention("dot", use_scale=True, **k),
    "scaled dot heads": lambda **k: MultiplicativeAttention("scaled_dot", num_heads=3, **k),
    "general sparsemax": lambda **k: general(distribution="sparsemax", **k),
    "general entmax": lambda **k: general(distribution="entmax15", num_heads=2, **k),
    "location": lambda **k: LocationAttention(7, **k),
    "local-m": lambda **k: LocalAttention(general(), 1, **k),
    "local-p": lambda **k: LocalAttention(AdditiveAttention(UNITS), 2, predictive=True, **k),
    "location-sensitive": lambda **k: LocationSensitiveAttention(
        UNITS, 2, 3, cumulative=True, sharpening=1.5, distribution="smoothing", **k
    ),
    "coverage": lambda **k: CoverageAttention(UNITS, **k),
    "monotonic": lambda **k: MonotonicAttention(AdditiveAttention(UNITS), noise=0.5, **k),
    "monotonic recursive": lambda **k: MonotonicAttention(general(), mode="recursive", **k),
    "chunkwise": lambda **k: MonotonicChunkwiseAttention(
        AdditiveAttention(UNITS), general(), 2, **k
    ),
}
POOLING = {"pooling": lambda **k: AttentionPooling(UNITS, **k)}
RECURRENT = {
    "rnn bahdanau": lambda **k: rnn(AdditiveAttention(UNITS, dropout=0.3), **k),
    "rnn bahdanau feeding": lambda **k: rnn(
        CoverageAttention(UNITS), keras.layers.LSTMCell, units=5, input_feeding=True, gate=True, **k
    ),
    "rnn luong": lambda **k: rnn(
        LocalAttention(general(), 1), order="luong", units=5, return_state=True, **k
    ),
    "rnn luong feeding": lambda **k: rnn(
        MonotonicAttention(general(num_heads=1)), order="luong", units=5, input_feeding=True, **k
    ),
    "rnn heads": lambda **k: rnn(general(num_heads=2), return_sequences=False, **k),
}
OTHER = {
    "cell": lambda **k: AttentionCell(keras.layers.GRUCell(UNITS), CoverageAttention(UNITS), **k),
    "hoisted": lambda **k: HoistedRNN(keras.layers.GRUCell(UNITS), return_sequences=True, **k),
}
LAYERS = {**MECHANISMS, **POOLING, **RECURRENT, **OTHER}


def shapes(name):
    """The shapes of the layer's inputs, without the batch axis."""
    if name in POOLING or name == "hoisted":
        return [(TV, DV)]
    return [(DQ,) if name == "cell" else (TQ, DQ), (TV, DV)]


def call(name, layer, inputs, **kwargs):
    """Call the layer with all that it can return, as a flat list."""
    if name in MECHANISMS or name in POOLING:
        kwargs["return_attention_scores"] = True
    return keras.tree.flatten(layer(*inputs, **kwargs))


def arrays(name, rng, batch=B):
    return [rng.normal(size=(batch, *shape)).astype("float32") for shape in shapes(name)]


def fixed_weights(layer):
    """Give the layer weights that are the same in every run and on every backend."""
    rng = np.random.default_rng(7)
    for w in layer.trainable_weights:
        w.assign(rng.normal(size=w.shape, scale=0.5).astype("float32"))
