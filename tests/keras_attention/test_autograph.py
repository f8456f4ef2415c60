"""Within a `tf.function` TensorFlow rewrites the library's functions: it can, without a warning."""

import importlib
import inspect
import pkgutil

import pytest

from keras_attention import fast

FAST = [module.name for module in pkgutil.iter_modules(fast.__path__, "keras_attention.fast.")]


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["keras_attention.scores", *FAST])
def test_functions_are_converted(name):
    import tensorflow as tf

    for function in vars(importlib.import_module(name)).values():
        own = inspect.isfunction(function) and function.__module__ == name
        if own and not inspect.isgeneratorfunction(function):  # which run as they are
            tf.autograph.to_graph(function)
