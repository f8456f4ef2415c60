"""Which path runs: the switch, in code and in the environment."""

import os
import subprocess
import sys

import pytest
from keras import ops

from keras_attention import fast_paths
from keras_attention.fast import choice

SHAPES = (32, 48, 512), (32, 48, 512), (512,)


def path():
    return choice.additive(*(ops.ones(shape) for shape in SHAPES))


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


@pytest.mark.parametrize("value", ["0", "1", "yes"])
def test_the_environment_sets_the_switch(value):
    program = "from keras_attention.fast import choice; print(choice.enabled())"
    environment = {**os.environ, choice.VARIABLE: value}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    if value == "yes":
        assert done.stderr.splitlines()[-1] == (
            "ValueError: KERAS_ATTENTION_FAST_PATHS expected 0 or 1. Received: 'yes'"
        )
    else:
        assert done.stdout.split() == [str(value == "1")]
