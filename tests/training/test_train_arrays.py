"""Training from prepared token ids, held to training from texts; who takes part in it."""

import json
import shutil

import numpy as np
import pytest

from tests.training.conftest import TINY, tiny_config
from training import prepare, train_arrays
from training.command.errors import UserError
from training.fit import arrays
from training.fit.distributed import Processes, joined
from training.fit.train import train
from training.runs.checkpoints import save_checkpoint

NO_DROPOUT = ["dropout=0.0", "epochs=2"]  # which draws other numbers in another process


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    path = tmp_path_factory.mktemp("prepared") / "run"
    settings = [word for setting in [*TINY, *NO_DROPOUT] for word in ("--set", setting)]
    prepare.main(["--preset", "phrasebook-en-fr", "--output", str(path), *settings])
    return path


@pytest.fixture(scope="module")
def history(prepared, tmp_path_factory):
    """The records of a training that is not stopped."""
    path = shutil.copytree(prepared, tmp_path_factory.mktemp("arrays") / "run")
    train_arrays.main([str(path)])
    return json.loads((path / "history.json").read_text())


@pytest.mark.slow
def test_it_learns_what_training_from_texts_learns(history, tmp_path):
    train(tiny_config(*NO_DROPOUT), tmp_path / "texts")
    mine, theirs = history, json.loads((tmp_path / "texts" / "history.json").read_text())
    for record, other in zip(mine, theirs, strict=True):
        for key in ("epoch", "loss", "val_perplexity", "learning_rate"):
            assert record[key] == pytest.approx(other[key], rel=1e-4), key


@pytest.mark.slow
def test_stopped_between_epochs_it_goes_on(prepared, history, tmp_path, monkeypatch):
    path = shutil.copytree(prepared, tmp_path / "run")

    def save_and_stop(*args):
        save_checkpoint(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr("training.fit.recorder.save_checkpoint", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        arrays.train_arrays(path)
    monkeypatch.undo()
    last = arrays.train_arrays(path)
    assert last["epoch"] == history[-1]["epoch"] == 2
    for key in ("loss", "val_perplexity"):
        assert last[key] == pytest.approx(history[-1][key], rel=1e-4)
    assert arrays.train_arrays(path) == last  # all is done


def test_a_run_is_not_prepared_twice(prepared):
    with pytest.raises(UserError, match="already has a run"):
        prepare.main(["--preset", "phrasebook-en-fr", "--output", str(prepared)])


@pytest.mark.parametrize(
    ("count", "number", "error"),
    [
        ("0", "0", r"JAX_PROCESS_ID expected 0 to -1\. Received: 0"),
        ("two", "0", r"JAX_NUM_PROCESSES expected a whole number\. Received: two"),
        ("3", "3", r"JAX_PROCESS_ID expected 0 to 2\. Received: 3"),
        ("3", "-1", r"JAX_PROCESS_ID expected a whole number\. Received: -1"),
        ("2", "1", r"2 processes need KERAS_BACKEND=jax, but it is tensorflow"),
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
    with pytest.raises(UserError, match=r"multiple of the 5 devices, but it is 36$"):
        Processes(devices=5).check_batch_size(36)
