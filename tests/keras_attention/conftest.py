import keras
import pytest


@pytest.fixture
def set_policy():
    """A function that sets the global precision for the length of a test."""
    before = keras.config.dtype_policy()
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy(before)
