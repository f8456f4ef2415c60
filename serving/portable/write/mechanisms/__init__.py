"""Attention mechanisms in ONNX: each prepares the memory once, and returns weights at every step.

To add a mechanism, write a class in a new file of this folder, and decorate it with
`@form_of(Layer)`. All files of the folder are imported here.
"""

import importlib
import pkgutil

from serving.portable.write.mechanisms._mechanism import make

__all__ = ["make"]

for _file in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_file.name)
