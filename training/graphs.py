"""The one maker of this project's TensorFlow functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf


def graph(*specs: tf.TensorSpec, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a TensorFlow function, traced once for these inputs.

    Autograph is off: no function here has a Python `if` or `for` on a tensor, and Autograph reads
    source files while it traces, which may have changed since they were imported.

    Args:
        *specs: of the inputs; without any, it is traced anew for each shape.
        **options: of `tf.function`.
    """
    import tensorflow as tf

    def decorate(function: Callable[..., Any]) -> Any:
        return tf.function(function, input_signature=specs or None, autograph=False, **options)

    return decorate
