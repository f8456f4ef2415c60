"""Score functions, which are pure: how well each query fits each key."""

from keras_attention.mechanisms._additive import additive_score as additive
from keras_attention.mechanisms._multiplicative import dot_score as dot

__all__ = ["additive", "dot"]
