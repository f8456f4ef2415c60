"""Which path runs: the switch, in code and in the environment."""

import importlib
import inspect
import pkgutil

import pytest
from keras import ops

from keras_attention import backend, fast, fast_paths
from keras_attention.search.arguments import top_k
from tests.keras_attention.helpers import array


def test_the_switch_turns_fast_paths_off_and_on_again():
    assert backend.settings.get().fast
    with fast_paths(False):
        assert not backend.settings.get().fast
        with fast_paths(True):
            assert backend.settings.get().fast
        assert not backend.settings.get().fast
    with pytest.raises(ZeroDivisionError), fast_paths(False):
        raise ZeroDivisionError
    assert backend.settings.get().fast


def test_the_switch_is_asked_for_rows(monkeypatch):
    rows = ops.reshape(ops.arange(4001.0), (1, 4001))
    taken, gather = [], backend.gather_in_rows
    monkeypatch.setattr(backend, "gather_in_rows", lambda *x: taken.append(1) or gather(*x))
    for enabled in (True, False):
        del taken[:]
        with fast_paths(enabled):
            _, index = top_k(rows, 3)
        assert bool(taken) == enabled
        assert array(index).tolist() == [[4000, 3999, 3998]]


@pytest.mark.tensorflow
def test_what_xla_compiles_is_known():
    """TensorFlow says so by a private name alone."""
    import tensorflow as tf

    found = []

    def look(x):
        found.append(backend.under_xla())
        return tf.while_loop(
            lambda x: x < 3, lambda x: found.append(backend.under_xla()) or x + 1, [x]
        )

    for jit_compile in (False, True):
        tf.function(look, jit_compile=jit_compile, autograph=False)(tf.constant(0))
        assert set(found) == {jit_compile}
        del found[:]
    assert not backend.under_xla()


FAST = [module.name for module in pkgutil.iter_modules(fast.__path__, "keras_attention.fast.")]


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["keras_attention.mechanisms._additive", *FAST])
def test_functions_are_converted(name):
    import tensorflow as tf

    for function in vars(importlib.import_module(name)).values():
        own = inspect.isfunction(function) and function.__module__ == name
        if own and not inspect.isgeneratorfunction(function):  # which run as they are
            tf.autograph.to_graph(function)
