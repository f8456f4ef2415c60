"""Loads weights trained with `tfa.seq2seq` of TensorFlow Addons into layers of this library.

An `AttentionWrapper` attends after its cell, and feeds the context to the next step. With any
mechanism, it corresponds to `AttentionRNN(cell, attention, order="luong", input_feeding=True)`. For
`attention_layer_size=n`, add `units=n, activation=None`: the attentional vector of Addons is
linear. Without `attention_layer_size`, this library outputs `[c_t; s_t]`, and Addons outputs either
`c_t` or `s_t`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import keras
import numpy as np

from keras_attention._attention import Attention
from keras_attention.mechanisms._additive import AdditiveAttention
from keras_attention.mechanisms._monotonic import MonotonicAttention, MonotonicChunkwiseAttention
from keras_attention.mechanisms._multiplicative import MultiplicativeAttention
from keras_attention.recurrent import keras_cells
from keras_attention.recurrent.cell import AttentionCell

SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_OPTIONAL = {  # weights of some mechanisms of Addons, and the option for them here
    "attention_g": "normalize=True, or use_scale=True of MultiplicativeAttention",
    "attention_b": "normalize=True",
    "attention_score_bias": "a score bias, as MonotonicAttention has",
}


def read_checkpoint(path: str, prefix: str = "") -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of a `tf.train.Checkpoint` by their names in it.

    Needs TensorFlow, of any version from 2.0.

    Args:
        path: of the checkpoint, without `.index`.
        prefix: the beginning of the names, for example `"model/decoder/"`; it is left out.

    Raises:
        ValueError: if no name begins with the prefix.
    """
    from keras_attention.backend._on_tensorflow import checkpoint_arrays

    arrays = {
        name.removesuffix(SUFFIX): np.asarray(x)
        for name, x in checkpoint_arrays(path).items()
        if name.endswith(SUFFIX) and ".OPTIMIZER_SLOT" not in name
    }
    named = {n.removeprefix(prefix): x for n, x in arrays.items() if n.startswith(prefix)}
    if not named:
        roots = ", ".join(sorted({name.partition("/")[0] for name in arrays}))
        raise ValueError(
            f"read_checkpoint expected names that begin with {prefix!r}. "
            f"Received: names that begin with {roots}"
        )
    return named


def load_weights(
    layer: Attention | AttentionCell, weights: Mapping[str, np.ndarray[Any, Any]]
) -> None:
    """Give a built layer the weights of an Addons mechanism or of an `AttentionWrapper`.

    Args:
        layer: for a mechanism, an `AdditiveAttention`, a `MultiplicativeAttention("general")`, or a
            `MonotonicAttention` of one of them; for a wrapper, an `AttentionRNN` or `AttentionCell`
            with the arguments in the docstring of this module.
        weights: arrays by name, as in a checkpoint. The end of a name counts: of a mechanism
            `memory_layer/kernel`, `query_layer/kernel`, `attention_v`, `attention_g`,
            `attention_b`, `attention_score_bias`; of a wrapper `_cell/kernel` (or
            `_cell/cells/0/kernel`) and so on, `_attention_layers/0/kernel`.

    Raises:
        ValueError: if the layer is of another kind or not built; if a weight is missing, occurs
            twice or has another shape.
    """
    if not layer.built:
        _refuse("a built layer", repr(layer))
    if isinstance(layer, Attention):
        _load_mechanism(layer, weights)
        return
    if layer.order != "luong" or not layer.input_feeding or layer.gate:
        _refuse(
            'a layer with order="luong", input_feeding=True and no gate, as an AttentionWrapper is',
            f"order={layer.order!r}, input_feeding={layer.input_feeding}, gate={layer.gate}",
        )
    _load_mechanism(layer.attention, weights)
    parts, size = keras_cells.parts(layer.cell), layer.cell_output_size
    for number, cell in enumerate(parts):
        place = "_cell/" if len(parts) == 1 else f"_cell/cells/{number}/"
        for variable in cell.weights:
            if variable.name not in ("kernel", "recurrent_kernel", "bias"):
                _refuse("SimpleRNN, GRU or LSTM cells", f"{cell!r} with {variable.name}")
            array = _find(weights, place + variable.name)
            if variable.name == "kernel" and number == 0 and not layer.units:
                # Addons feeds only the context: the rows of `s` in `[c; s]` are 0.
                array = np.pad(array, [(0, size), (0, 0)])
            _assign(variable, array, place + variable.name)
    if layer.units:
        name = "_attention_layers/0/kernel"
        kernel = _find(weights, name)  # its rows are [s; c], [c; s] here
        _assign(layer.output_kernel, np.concatenate([kernel[size:], kernel[:size]]), name)
        if any(key.endswith("_attention_layers/0/bias") for key in weights):
            _refuse("an attention layer without bias", "one with it")


def _refuse(expected: str, received: str) -> NoReturn:
    raise ValueError(f"load_weights expected {expected}. Received: {received}")


def _load_mechanism(layer: Attention, weights: Mapping[str, np.ndarray[Any, Any]]) -> None:
    named: dict[str, keras.Variable | None] = {}
    if isinstance(layer, MonotonicAttention) and not isinstance(layer, MonotonicChunkwiseAttention):
        named["attention_score_bias"], layer = layer.score_bias, layer.attention
    general = isinstance(layer, MultiplicativeAttention) and layer.score == "general"
    if type(layer) is AdditiveAttention:
        named |= {
            "query_layer/kernel": layer.query_kernel,
            "memory_layer/kernel": layer.key_kernel,
            "attention_v": layer.scale,
            "attention_b": layer.bias,
            "attention_g": layer.gain,
        }
    elif general:
        named |= {"memory_layer/kernel": layer.kernel, "attention_g": layer.scale}
    else:
        _refuse(
            'AdditiveAttention, MultiplicativeAttention("general") or MonotonicAttention of those',
            repr(layer),
        )
    for name, what in _OPTIONAL.items():
        if named.get(name) is None and _keys(weights, name):
            _refuse(f"a layer with {what}, which {name} belongs to", repr(layer))
    for name, variable in named.items():
        if variable is not None:
            array = _find(weights, name)
            # Addons computes `q·(k M)` for a row `k` of the memory; here it is `qᵀ W k`: `W = Mᵀ`.
            transposed = general and name == "memory_layer/kernel"
            _assign(variable, array.T if transposed else array, name)


def _keys(weights: Mapping[str, np.ndarray[Any, Any]], name: str) -> list[str]:
    return [key for key in weights if key == name or key.endswith("/" + name)]


def _find(weights: Mapping[str, np.ndarray[Any, Any]], name: str) -> np.ndarray[Any, Any]:
    keys = _keys(weights, name)
    if len(keys) != 1:
        _refuse(f"one weight whose name ends with {name}", ", ".join(keys or weights))
    return np.asarray(weights[keys[0]])


def _assign(variable: keras.Variable, value: np.ndarray[Any, Any], name: str) -> None:
    if tuple(variable.shape) != value.shape:
        _refuse(f"{name} of a form that gives {tuple(variable.shape)}", str(value.shape))
    variable.assign(value)
