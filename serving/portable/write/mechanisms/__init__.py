"""Attention mechanisms in ONNX: each prepares the memory once, and returns weights at every step.

To add a mechanism, write a class in a file, decorate it with `@form_of(Layer)`, and import it here.
"""

from serving.portable.write.mechanisms._borrowing import Chunkwise, Local, Monotonic
from serving.portable.write.mechanisms._mechanism import make

__all__ = ["Chunkwise", "Local", "Monotonic", "make"]
