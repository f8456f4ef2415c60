"""Who takes part in a training: what the environment says, and who gets which rows."""

import numpy as np
import pytest

from training.command.errors import UserError
from training.fit.distributed import Processes, joined


@pytest.mark.parametrize(
    ("count", "number", "error"),
    [
        ("0", "0", r"JAX_PROCESS_ID expected 0 to -1\. Received: 0"),
        ("two", "0", r"JAX_NUM_PROCESSES expected a whole number\. Received: two"),
        ("3", "3", r"JAX_PROCESS_ID expected 0 to 2\. Received: 3"),
        ("3", "-1", r"JAX_PROCESS_ID expected a whole number\. Received: -1"),
        ("2", "1", r"2 processes expected KERAS_BACKEND=jax: .* Received: tensorflow"),
    ],
)
def test_an_environment_that_does_not_fit_is_one_clear_line(monkeypatch, count, number, error):
    monkeypatch.setenv("JAX_NUM_PROCESSES", count)
    monkeypatch.setenv("JAX_PROCESS_ID", number)
    with pytest.raises(UserError, match=f"^{error}$"), joined():
        pass


def test_processes_share_a_batch_in_order_and_fill_it_with_padding(rng):
    source, target, labels = (rng.integers(4, 99, (7, width)) for width in (5, 3, 3))
    batches = [({"source": source, "target": target}, labels)]
    shares = [list(Processes(n, count=3, devices=6).share(iter(batches))) for n in range(3)]
    for name, rows in (("source", source), ("target", target)):
        parts = [inputs[name] for ((inputs, _),) in shares]
        assert [part.shape[0] for part in parts] == [4, 4, 4]
        np.testing.assert_array_equal(np.concatenate(parts)[:7], rows)
        np.testing.assert_array_equal(np.concatenate(parts)[7:], 0)
    np.testing.assert_array_equal(np.concatenate([part for ((_, part),) in shares])[:7], labels)


def test_a_batch_that_devices_cannot_share_is_refused():
    Processes(devices=5).check_batch_size(35)
    with pytest.raises(UserError, match=r"multiple of the 5 devices\. Received: 36$"):
        Processes(devices=5).check_batch_size(36)
