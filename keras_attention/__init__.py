"""Attention for recurrent Keras models."""

from keras_attention import distributions, scores
from keras_attention.additive import AdditiveAttention
from keras_attention.attention import Attention, Memory
from keras_attention.hoisted import HoistedRNN
from keras_attention.multiplicative import MultiplicativeAttention
from keras_attention.plot import plot_attention
from keras_attention.recurrent import AttentionRNN, State
from keras_attention.search import SearchResult, beam_search, greedy_search

__all__ = [
    "AdditiveAttention",
    "Attention",
    "AttentionRNN",
    "HoistedRNN",
    "Memory",
    "MultiplicativeAttention",
    "SearchResult",
    "State",
    "beam_search",
    "distributions",
    "greedy_search",
    "plot_attention",
    "scores",
]
