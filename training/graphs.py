"""The decorator that makes every TensorFlow function of this project."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf


def graph(*specs: tf.TensorSpec, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a TensorFlow function, traced once for these input specs.

    Autograph is off for two reasons. No function here has a Python `if` or `for` on a tensor. And
    Autograph reads source files while it traces, which may have changed since their import.

    Args:
        *specs: one spec for each input; without specs, each new input shape causes a new trace.
        **options: arguments of `tf.function`.
    """
    import tensorflow as tf

    def decorate(function: Callable[..., Any]) -> Any:
        return tf.function(function, input_signature=specs or None, autograph=False, **options)

    return decorate
