"""`keras_attention.plot` without its package, which imports Keras and a backend."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _plot_attention() -> Callable[..., Any]:
    package = importlib.util.find_spec("keras_attention")
    if package is None or package.origin is None:
        raise ImportError("keras_attention is not installed")
    path = Path(package.origin).with_name("plot.py")
    spec = importlib.util.spec_from_file_location("keras_attention_plot", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not there")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.plot_attention


plot_attention = _plot_attention()
