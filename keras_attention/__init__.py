"""Attention for recurrent Keras models."""

from keras_attention import addons, distributions, losses, mechanisms, scores
from keras_attention._attention import Attention, Memory
from keras_attention._plot import plot_attention
from keras_attention.backend import exporting, fast_paths
from keras_attention.layers._pooling import AttentionPooling
from keras_attention.layers._positions import SinePositionEncoding
from keras_attention.layers.pointer import PointerGenerator, copied_ids
from keras_attention.mechanisms._additive import AdditiveAttention
from keras_attention.mechanisms._history import CoverageAttention, LocationSensitiveAttention
from keras_attention.mechanisms._local import LocalAttention, LocationAttention
from keras_attention.mechanisms._monotonic import MonotonicAttention, MonotonicChunkwiseAttention
from keras_attention.mechanisms._multiplicative import MultiplicativeAttention
from keras_attention.recurrent._rnn import AttentionRNN
from keras_attention.recurrent.cell import AttentionCell, State
from keras_attention.recurrent.hoisted_rnn import HoistedRNN
from keras_attention.search import SearchResult, Shortlist, beam_search, greedy_search

__all__ = [
    "AdditiveAttention",
    "Attention",
    "AttentionCell",
    "AttentionPooling",
    "AttentionRNN",
    "CoverageAttention",
    "HoistedRNN",
    "LocalAttention",
    "LocationAttention",
    "LocationSensitiveAttention",
    "Memory",
    "MonotonicAttention",
    "MonotonicChunkwiseAttention",
    "MultiplicativeAttention",
    "PointerGenerator",
    "SearchResult",
    "Shortlist",
    "SinePositionEncoding",
    "State",
    "addons",
    "beam_search",
    "copied_ids",
    "distributions",
    "exporting",
    "fast_paths",
    "greedy_search",
    "losses",
    "mechanisms",
    "plot_attention",
    "scores",
]
