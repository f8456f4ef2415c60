"""What the tests of all three packages share."""

import gc
import os
import zlib

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Graphs are many objects that live long: to look for garbage among them is slow.
gc.set_threshold(50_000, 20, 100)
# JAX writes an entry in place, so that another process may read half of it and crash.
if "JAX_COMPILATION_CACHE_DIR" in os.environ and "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] += f"/{os.environ['PYTEST_XDIST_WORKER']}"


def pytest_configure(config):
    config.addinivalue_line("markers", "tensorflow: asks for the TensorFlow backend")


def pytest_collection_modifyitems(items):
    if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
        return
    for item in items:
        if item.get_closest_marker("tensorflow"):
            item.add_marker(pytest.mark.skip(reason="needs the TensorFlow backend"))


@pytest.fixture
def rng(request):
    """A random generator of its own for each test, the same in every run."""
    return np.random.default_rng(zlib.crc32(request.node.name.encode()))
