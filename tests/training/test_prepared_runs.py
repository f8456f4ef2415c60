"""Training a run that was prepared before, with TensorFlow's tokenizers and without."""

import json
import shutil

import pytest

from tests.training.conftest import TINY, tiny_config, without_steps
from training import prepare, train_arrays
from training.command.errors import UserError
from training.fit._prepared import train_prepared
from training.fit._train import resume, train
from training.fit.devices._processes import Processes
from training.runs.checkpoints import save_checkpoint

NO_DROPOUT = ["dropout=0.0", "epochs=2"]  # which draws other numbers in another process


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    path = tmp_path_factory.mktemp("prepared") / "run"
    settings = [word for setting in [*TINY, *NO_DROPOUT] for word in ("--set", setting)]
    prepare.main(["--preset", "phrasebook-en-fr", "--output", str(path), *settings])
    return path


def read_history(path):
    return json.loads((path / "history.json").read_text())


@pytest.fixture(scope="module")
def history(prepared, tmp_path_factory):
    """The records of a training without tokenizers that is not stopped."""
    path = shutil.copytree(prepared, tmp_path_factory.mktemp("arrays") / "run")
    train_prepared(path)
    return read_history(path)


@pytest.mark.slow
def test_the_old_command_trains_what_training_from_texts_does(prepared, tmp_path, capsys):
    run = shutil.copytree(prepared, tmp_path / "run")
    train_arrays.main([str(run)])
    assert f"note: the new command is python -m training.train --resume --output {run}" in (
        capsys.readouterr().err
    )
    train(tiny_config(*NO_DROPOUT), tmp_path / "texts")
    for record, other in zip(read_history(run), read_history(tmp_path / "texts"), strict=True):
        for key in ("epoch", "loss", "val_perplexity", "learning_rate", "bleu", "chrf"):
            assert record[key] == other[key], key


@pytest.mark.slow
def test_stopped_between_epochs_it_goes_on(prepared, history, tmp_path, monkeypatch):
    assert "bleu" not in history[0]
    path = shutil.copytree(prepared, tmp_path / "run")

    def save_and_stop(*args):
        save_checkpoint(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr("training.fit._recorder.save_checkpoint", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        train_prepared(path)
    monkeypatch.undo()
    # With the tokenizers there, epochs are still compared by perplexity, as before.
    last = resume(path)
    assert last["epoch"] == history[-1]["epoch"] == 2
    assert "bleu" not in last
    for key in ("loss", "val_perplexity"):
        assert last[key] == pytest.approx(history[-1][key], rel=1e-4)
    assert train_prepared(path) == last  # all is done


def test_epochs_that_have_scores_need_the_tokenizers(prepared, tmp_path):
    path = shutil.copytree(prepared, tmp_path / "run")
    with without_steps():
        resume(path)
    with pytest.raises(UserError, match="scores of translations, which need TensorFlow"):
        train_prepared(path)


def test_a_run_is_not_prepared_twice(prepared):
    with pytest.raises(UserError, match="already has a run"):
        prepare.main(["--preset", "phrasebook-en-fr", "--output", str(prepared)])


def test_a_batch_that_devices_cannot_share_is_refused():
    five = Processes(devices=5)
    five.check_batch_size(tiny_config("batch_size=35"))
    five.check_batch_size(tiny_config("batch_size=36", "batch_tokens=77"))  # of any size
    wanted = r"batch_size is 36, but 5 devices .* a multiple of 5, .* --set batch_size=35$"
    with pytest.raises(UserError, match=wanted):
        five.check_batch_size(tiny_config("batch_size=36"))
