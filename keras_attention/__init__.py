"""Attention for recurrent Keras models."""

from keras_attention import addons, distributions, losses, mechanisms, scores
from keras_attention.additive import AdditiveAttention
from keras_attention.attention import Attention
from keras_attention.cell import AttentionCell, State
from keras_attention.coverage import CoverageAttention
from keras_attention.fast.choice import exporting, fast_paths
from keras_attention.fast.hoisted import HoistedRNN
from keras_attention.local import LocalAttention
from keras_attention.location_sensitive import LocationSensitiveAttention
from keras_attention.monotonic import MonotonicAttention, MonotonicChunkwiseAttention
from keras_attention.multiplicative import LocationAttention, MultiplicativeAttention
from keras_attention.normalized import LayerNormGRUCell, LayerNormLSTMCell
from keras_attention.plot import plot_attention
from keras_attention.pointer import PointerGenerator
from keras_attention.pooling import AttentionPooling
from keras_attention.positions import LearnedPositionEncoding, SinePositionEncoding
from keras_attention.recurrent import AttentionRNN
from keras_attention.search import (
    SearchResult,
    Shortlist,
    beam_search,
    greedy_search,
    sample_search,
)
from keras_attention.shapes import as_grid
from keras_attention.weighing import Memory

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
    "LearnedPositionEncoding",
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
    "as_grid",
    "beam_search",
    "distributions",
    "exporting",
    "fast_paths",
    "greedy_search",
    "losses",
    "mechanisms",
    "plot_attention",
    "sample_search",
    "scores",
]
