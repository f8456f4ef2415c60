"""Score functions, which are pure: how well each query fits each key."""

from keras_attention.mechanisms.additive import additive_score as additive
from keras_attention.mechanisms.multiplicative import dot_score as dot

__all__ = ["additive", "dot"]
