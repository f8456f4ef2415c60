"""Fixtures that the tests of all three packages share."""

import fcntl
import gc
import os
import zlib

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Graphs are many objects that live long: to look for garbage among them is slow.
gc.set_threshold(50_000, 20, 100)


def pytest_configure(config):
    config.addinivalue_line("markers", "tensorflow: asks for the TensorFlow backend")


def pytest_collection_modifyitems(items):
    # Files of slow tests first: workers take whole files, and the last one decides when all end.
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        return
    for item in items:
        if item.get_closest_marker("tensorflow"):
            item.add_marker(pytest.mark.skip(reason="needs the TensorFlow backend"))


def made_once(tmp_path_factory, name, make):
    """Return the folder that `make(folder)` fills: one worker does, and all of them read it."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root
    folder, done = root / name, root / f"{name}.done"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make(folder)
            done.touch()
    return folder


@pytest.fixture
def rng(request):
    """A random generator of its own for each test, the same in every run."""
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))


@pytest.fixture
def untraced(monkeypatch):
    """Models fit and predict eagerly on TensorFlow: a graph of few steps takes seconds to trace."""
    import keras

    if keras.backend.backend() == "tensorflow":
        eager = property(lambda model: True, lambda model, value: None)
        monkeypatch.setattr(keras.Model, "run_eagerly", eager)


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled_functions():
    """JAX's programs stay mapped in memory: Linux ends a process of 65,530 mappings."""
    yield
    if os.environ.get("KERAS_BACKEND") == "jax":
        import jax

        jax.clear_caches()
        gc.collect()
