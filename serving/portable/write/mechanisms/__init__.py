"""Attention mechanisms: each prepares a memory once, and weighs it at every step.

A new one is a file with a class that `form_of` names the layer of, and its import here.
"""

from serving.portable.write.mechanisms.borrowing import Chunkwise, Local, Monotonic
from serving.portable.write.mechanisms.mechanism import make

__all__ = ["Chunkwise", "Local", "Monotonic", "make"]
