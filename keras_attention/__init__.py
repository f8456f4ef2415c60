"""Attention for recurrent Keras models."""

from keras_attention import distributions, losses, scores
from keras_attention.additive import AdditiveAttention
from keras_attention.attention import Attention, Memory
from keras_attention.cell import AttentionCell, State
from keras_attention.history import CoverageAttention, LocationSensitiveAttention
from keras_attention.hoisted import HoistedRNN
from keras_attention.local import LocalAttention
from keras_attention.monotonic import MonotonicAttention, MonotonicChunkwiseAttention
from keras_attention.multiplicative import LocationAttention, MultiplicativeAttention
from keras_attention.normalized import LayerNormGRUCell, LayerNormLSTMCell
from keras_attention.plot import plot_attention
from keras_attention.pooling import AttentionPooling
from keras_attention.recurrent import AttentionRNN
from keras_attention.search import SearchResult, Shortlist, beam_search, greedy_search

__all__ = [
    "AdditiveAttention",
    "Attention",
    "AttentionCell",
    "AttentionPooling",
    "AttentionRNN",
    "CoverageAttention",
    "HoistedRNN",
    "LayerNormGRUCell",
    "LayerNormLSTMCell",
    "LocalAttention",
    "LocationAttention",
    "LocationSensitiveAttention",
    "Memory",
    "MonotonicAttention",
    "MonotonicChunkwiseAttention",
    "MultiplicativeAttention",
    "SearchResult",
    "Shortlist",
    "State",
    "beam_search",
    "distributions",
    "greedy_search",
    "losses",
    "plot_attention",
    "scores",
]
