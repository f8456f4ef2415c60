"""Who takes part in a training: what the environment says, and who gets which rows."""

import numpy as np
import pytest

from training.command.errors import UserError
from training.fit.distributed import Asked, Processes, asked_for

KERAS = {
    "KERAS_DISTRIBUTION_JOB_ADDRESSES": "10.0.0.1:1234,10.0.0.2:2345,10.0.0.3:3456",
    "KERAS_DISTRIBUTION_NUM_PROCESSES": "3",
    "KERAS_DISTRIBUTION_PROCESS_ID": "2",
}
# https://github.com/kubeflow/trainer/blob/master/pkg/runtime/framework/plugins/jax/jax.go
KUBEFLOW = {
    "JAX_NUM_PROCESSES": "2",
    "JAX_PROCESS_ID": "0",
    "JAX_COORDINATOR_ADDRESS": "en-fr-node-0-0.en-fr:29500",
    "JAX_COORDINATOR_PORT": "29500",
    "JAX_DISTRIBUTED_BACKEND": "gloo",
}


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, None),
        ({"PATH": "/bin"}, None),
        (KERAS, Asked("10.0.0.1:1234", 3, 2)),
        (KERAS | {"KERAS_DISTRIBUTION_JOB_ADDRESSES": "first:99"}, Asked("first:99", 3, 2)),
        (KUBEFLOW, Asked("en-fr-node-0-0.en-fr:29500", 2, 0)),
        (KUBEFLOW | {"JAX_COORDINATOR_ADDRESS": "first"}, Asked("first:29500", 2, 0)),
        (KUBEFLOW | KERAS, Asked("10.0.0.1:1234", 3, 2)),  # Keras's own names go first
        (KUBEFLOW | {"JAX_NUM_PROCESSES": "1"}, None),
        (KERAS | {"KERAS_DISTRIBUTION_JOB_ADDRESSES": "[::1]:99"}, Asked("[::1]:99", 3, 2)),
    ],
)
def test_the_environment_says_who_takes_part(environment, asked):
    assert asked_for(environment) == asked


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("NUM_PROCESSES", "0", "NUM_PROCESSES expected a whole number, at least 1. Received: 0"),
        ("NUM_PROCESSES", "two", "NUM_PROCESSES expected a whole number, at least 1. Received: tw"),
        ("PROCESS_ID", "3", "PROCESS_ID expected a whole number, 0 to 2. Received: 3"),
        ("PROCESS_ID", "-1", "PROCESS_ID expected a whole number, 0 to 2. Received: -1"),
        ("PROCESS_ID", "", "NUM_PROCESSES=3 expected KERAS_DISTRIBUTION_PROCESS_ID"),
        ("JOB_ADDRESSES", "", "NUM_PROCESSES=3 expected KERAS_DISTRIBUTION_JOB_ADDR"),
        ("JOB_ADDRESSES", "a:1,b:1", "expected one address, or one for each of 3 processes"),
        ("JOB_ADDRESSES", "first", "JOB_ADDRESSES expected HOST:PORT. Received: first"),
        ("JOB_ADDRESSES", "first:http", "expected HOST:PORT. Received: first:http"),
    ],
)
def test_an_environment_that_does_not_fit_is_one_clear_line(name, value, error):
    with pytest.raises(UserError) as raised:
        asked_for(KERAS | {f"KERAS_DISTRIBUTION_{name}": value})
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_processes_share_a_batch_in_order_and_fill_it_with_padding(rng):
    source, target, labels = (rng.integers(4, 99, (7, width)) for width in (5, 3, 3))
    batches = [({"source": source, "target": target}, labels)]
    shares = [
        list(Processes(number, count=3, devices=6).share(iter(batches))) for number in range(3)
    ]
    for name, rows in (("source", source), ("target", target)):
        parts = [inputs[name] for ((inputs, _),) in shares]
        assert [part.shape[0] for part in parts] == [4, 4, 4]
        np.testing.assert_array_equal(np.concatenate(parts)[:7], rows)
        np.testing.assert_array_equal(np.concatenate(parts)[7:], 0)
    np.testing.assert_array_equal(np.concatenate([part for ((_, part),) in shares])[:7], labels)


def test_one_device_takes_batches_as_they_are():
    batch = {"source": np.ones((7, 2))}, np.ones((7, 3))
    (alone,) = Processes().share(iter([batch]))
    assert alone is batch


def test_a_batch_that_devices_cannot_share_is_refused():
    Processes(devices=5).check_batch_size(35)
    with pytest.raises(UserError, match=r"multiple of the 5 devices\. Received: 36$"):
        Processes(devices=5).check_batch_size(36)
