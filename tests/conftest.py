"""What the tests of all three packages share."""

import os
import zlib

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


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
