"""Which path runs: the switch, in code and in the environment."""

import runpy
from types import SimpleNamespace

import pytest
from keras import ops

from keras_attention import backend, fast_paths
from keras_attention.fast import switch
from keras_attention.fast.top_k import top_k
from tests.keras_attention.helpers import array

SHAPES = (64, 90, 512), (64, 90, 512), (512,)  # large enough for fast paths in every mode


def path():
    return switch.additive(*(ops.ones(shape) for shape in SHAPES))


def test_the_switch_turns_fast_paths_off_and_on_again():
    fast = path()
    assert fast != "formula"
    with fast_paths(False):
        assert path() == "formula"
        with fast_paths(True):
            assert path() == fast
        assert path() == "formula"
    assert path() == fast
    with pytest.raises(ZeroDivisionError), fast_paths(False):
        raise ZeroDivisionError
    assert path() == fast


def test_the_switch_is_asked_for_rows_and_for_sentences(monkeypatch):
    rows = ops.reshape(ops.arange(4001.0), (1, 4001))
    taken, gather = [], backend.gather_in_rows
    monkeypatch.setattr(backend, "gather_in_rows", lambda *x: taken.append(1) or gather(*x))
    for fast in (True, False):
        del taken[:]
        with fast_paths(fast):
            _, index = top_k(rows, 3)
            assert switch.lets_leave(()) == (fast and not backend.under_xla())
        assert bool(taken) == fast
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


@pytest.mark.parametrize("value", ["0", "1", "yes"])
def test_the_environment_sets_the_switch(value, monkeypatch):
    monkeypatch.setenv("KERAS_ATTENTION_FAST_PATHS", value)
    if value == "yes":
        said = "^KERAS_ATTENTION_FAST_PATHS expected 0 or 1. Received: 'yes'$"
        with pytest.raises(ValueError, match=said):
            runpy.run_path(switch.__file__)
    else:
        assert runpy.run_path(switch.__file__)["enabled"]() == (value == "1")


@pytest.mark.parametrize(
    ("mode", "formula", "fast"),
    [
        ({"under_dynamo": True}, (64, 20, 20, 64), (32, 48, 48, 256)),
        ({"under_xla": True, "fuses_sums": False}, (32, 30, 30, 128), (32, 40, 40, 128)),
        ({"under_xla": True, "fuses_sums": True}, (32, 48, 48, 512), (64, 128, 128, 512)),
        ({"under_xla": True, "is_tensorflow": True}, (64, 20, 20, 64), (32, 30, 30, 128)),
        ({"is_eager": True}, (32, 48, 48, 256), (64, 100, 100, 256)),
    ],
    ids=["torch.compile", "JAX on a CPU", "JAX on a GPU", "TensorFlow under XLA", "eager"],
)
def test_the_formula_runs_where_it_is_the_faster(monkeypatch, mode, formula, fast):
    everything = ("under_dynamo", "under_xla", "fuses_sums", "is_eager", "is_tensorflow")
    for name in everything:
        monkeypatch.setattr(switch.backend, name, lambda name=name: mode.get(name, False))
    monkeypatch.setattr(switch.backend, "writes_in_place", lambda *tensors: False)

    def path(batch, queries, keys, units):
        shapes = (batch, queries, units), (batch, keys, units), (units,)
        return switch.additive(*(SimpleNamespace(shape=shape) for shape in shapes))

    assert path(*formula) == "formula"
    assert path(*fast) != "formula"
