"""Every attention mechanism by name, made from the same few settings.

The tests of all layers and the table of docs/mechanisms.md read `BY_NAME`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from keras_attention._attention import Attention
from keras_attention.mechanisms._additive import AdditiveAttention
from keras_attention.mechanisms._history import CoverageAttention, LocationSensitiveAttention
from keras_attention.mechanisms._local import LocalAttention, LocationAttention
from keras_attention.mechanisms._monotonic import MonotonicAttention, MonotonicChunkwiseAttention
from keras_attention.mechanisms._multiplicative import MultiplicativeAttention


class Mechanism(NamedTuple):
    """An entry of `BY_NAME`.

    Attributes:
        make: returns the layer for `units` and keyword arguments: `num_heads`, `distribution`,
            `dropout`, `seed`, `name`, `dtype` and the mechanism's own arguments.
        about: the formula and the paper, in Markdown.
    """

    make: Callable[..., Attention]
    about: str


def _normalized(units: int, **options: Any) -> Attention:
    return AdditiveAttention(units, normalize=True, **options)


def _multiplicative(score: str) -> Callable[..., Attention]:
    return lambda units, **options: MultiplicativeAttention(score, **options)


def _location(units: int, max_length: int = 256, **options: Any) -> Attention:
    return LocationAttention(max_length, **options)


def _local(predictive: bool) -> Callable[..., Attention]:
    def make(units: int, num_heads: int = 1, **options: Any) -> Attention:
        score = MultiplicativeAttention("general", num_heads=num_heads, dtype=options.get("dtype"))
        return LocalAttention(score, predictive=predictive, **options)

    return make


def _monotonic(units: int, num_heads: int = 1, noise: float = 1.0, **options: Any) -> Attention:
    score = _normalized(units, num_heads=num_heads, dtype=options.get("dtype"))
    return MonotonicAttention(score, noise=noise, **options)


def _chunkwise(units: int, num_heads: int = 1, noise: float = 1.0, **options: Any) -> Attention:
    dtype = options.get("dtype")
    stop = _normalized(units, num_heads=num_heads, dtype=dtype)
    weigh = AdditiveAttention(units, num_heads=num_heads, dtype=dtype)
    return MonotonicChunkwiseAttention(stop, weigh, noise=noise, **options)


BY_NAME = {
    "additive": Mechanism(AdditiveAttention, "`vᵀ tanh(W q + U k)`, Bahdanau et al. 2014"),
    "normalized_additive": Mechanism(
        _normalized, "`g (v/‖v‖)ᵀ tanh(W q + U k + b)`, Salimans and Kingma 2016"
    ),
    "dot": Mechanism(_multiplicative("dot"), "`q·k`, Luong et al. 2015"),
    "scaled_dot": Mechanism(_multiplicative("scaled_dot"), "`q·k / √dim`, Vaswani et al. 2017"),
    "general": Mechanism(_multiplicative("general"), "`qᵀ W k`, Luong et al. 2015"),
    "location": Mechanism(
        _location, "`W q`, for at most `max_length` (256) positions, Luong et al. 2015"
    ),
    "local_m": Mechanism(
        _local(False), "`general` in a window of `half_width` (10) around `t`, Luong et al. 2015"
    ),
    "local_p": Mechanism(
        _local(True), "`general` in a window around a predicted place, Luong et al. 2015"
    ),
    "location_sensitive": Mechanism(
        LocationSensitiveAttention, "`vᵀ tanh(W q + U k + V f + b)`, `f = F * a'`, Chorowski 2015"
    ),
    "coverage": Mechanism(CoverageAttention, "`vᵀ tanh(W q + U k + w_c Σ a + b)`, See et al. 2017"),
    "monotonic": Mechanism(
        _monotonic, "a walk to the right that stops at `sigmoid(e + r)`, Raffel et al. 2017"
    ),
    "chunkwise": Mechanism(
        _chunkwise, "`monotonic`, then softmax over `chunk_size` (2), Chiu and Raffel 2018"
    ),
}


def make(name: str, /, units: int, **options: Any) -> Attention:
    """Make an attention layer.

    Args:
        name: one of `BY_NAME`.
        units: width of the hidden layer, of all heads together, in mechanisms that have a hidden
            layer.
        **options: see `Mechanism`, such as `half_width` of `LocalAttention`.

    Raises:
        ValueError: if the name is unknown, or if the mechanism does not have an option.
    """
    if name not in BY_NAME:
        raise ValueError(f"make expected one of {', '.join(BY_NAME)}. Received: name={name!r}")
    try:
        return BY_NAME[name].make(units, **options)
    except TypeError as error:  # an argument twice, or an unknown one
        raise ValueError(f"make({name!r}) has no such options: {error}") from error
