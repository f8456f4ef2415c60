"""Runs: what they hold, how they are begun, stopped and continued."""

import json
import math
import re
import shutil
from contextlib import contextmanager

import pytest
import tensorflow as tf

from tests.training.conftest import TINY, tiny_config, without_steps
from tests.training.data.files import write
from training import evaluate, prepare, train_arrays
from training import train as script
from training.command.errors import UserError
from training.fit._prepared import train_prepared
from training.fit._train import DevSet, resume, train
from training.fit.devices._processes import Processes
from training.runs._card import draw_curves
from training.runs.checkpoints import save_checkpoint
from training.runs.files import RunFiles
from training.runs.run import RunError, load_ensemble, load_run

draw = DevSet.draw


def read_history(path):
    return json.loads((path / "history.json").read_text())


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory):
    """A run with its pictures."""
    path = tmp_path_factory.mktemp("runs") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DevSet, "draw", draw)
        patch.setattr("training.fit._recorder.draw_curves", draw_curves)
        train(tiny_config("train_limit=200", "warmup_steps=0", "learning_rate=1e-2"), path)
    return load_run(path)


def test_a_run_holds_what_is_needed_to_use_it_and_pictures_of_its_training(tiny_run):
    names = {path.name for path in tiny_run.path.iterdir()}
    files = {"config.toml", "source.tokenizer", "target.tokenizer", "best.weights.h5", "tokens"}
    assert files <= names
    first, second = read_history(tiny_run.path)
    assert (first["epoch"], second["epoch"]) == (1, 2)
    assert second["val_perplexity"] < first["val_perplexity"] < 300
    assert {"loss", "bleu", "learning_rate", "seconds", "target_tokens_per_second"} <= {*first}
    checkpoints = (tiny_run.path / "checkpoints").iterdir()
    assert sorted(path.name for path in checkpoints) == ["epoch-001", "epoch-002"]
    for name in ("curves.png", "attention.png"):
        picture = tf.io.decode_png((tiny_run.path / name).read_bytes())
        assert min(picture.shape[:2]) > 100
        assert f"![{name}]({name})" in (tiny_run.path / "README.md").read_text()


def test_resuming_a_finished_run_changes_nothing(tiny_run, capsys):
    weights = (tiny_run.path / "best.weights.h5").read_bytes()
    record = resume(tiny_run.path)
    assert record["epoch"] == 2
    assert (tiny_run.path / "best.weights.h5").read_bytes() == weights


PRESET = "--preset phrasebook-en-fr"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (f"{PRESET} --resume", "A resumed run keeps its settings. Remove --preset"),
        ("--data tsv:\udcff.tsv", r"--data needs text in Unicode, but it is 'tsv:\udcff"),
        (f"{PRESET} --dev 0.1", "phrasebook-en-fr has its own dev set"),
        ("--resume --init /nowhere", "A resumed run keeps its own tokenizers and weights. Remove"),
        ("--resume --data tsv:a", "A resumed run keeps its own data. Remove --data"),
        (f"{PRESET} --set source_vocab_size=3", "source_vocab_size=3"),
        (f"{PRESET} --set max_source_length=1", "are too long or empty"),
    ],
)
def test_bad_input_is_one_clear_line(arguments, said, tmp_path):
    if PRESET in arguments:  # of which all is read before some of it is refused
        arguments += " --set train_limit=97"
    with pytest.raises(UserError, match=re.escape(said)):
        script.main([*arguments.split(), "--output", str(tmp_path / "new" / "run")])
    assert not (tmp_path / "new").exists()


def test_own_files_are_trained_on_scored_and_given_more_epochs(tmp_path, monkeypatch, capsys):
    """By relative paths, from another directory than the run goes on in."""
    rows = [(f"word{i} other{i % 7}", f"mot{i} autre{i % 7}") for i in range(100)]
    write(tmp_path / "data" / "pairs.tsv", [*rows, ("no target", "")])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    tiny = [text for text in TINY if not text.startswith(("epochs", "train_limit"))]
    chosen = [word for text in [*tiny, "epochs=1"] for word in ("--set", text)]
    with without_steps():
        script.main(["--data", "tsv:pairs.tsv", "--test", "0.2", *chosen])
    said = capsys.readouterr().out
    for each in ("100 pairs", "treated as sentences; settings of", "1 lines without a pair"):
        assert said.count(each) == 1
    assert "keeps the epoch with the best perplexity" in said  # as dev is so small
    run = tmp_path / "data" / "runs" / "pairs"
    monkeypatch.chdir(tmp_path / "elsewhere")
    with without_steps():
        script.main(["--resume", "--output", str(run), "--set", "epochs=2"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["epochs_done"] == 2
    assert 'keep_epoch = "best_perplexity"' in (run / "config.toml").read_text()
    evaluate.main(["--run", str(run)])
    scored = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert scored["data"] == f"tsv:{tmp_path}/data/pairs.tsv"
    assert scored["split"] == "test"
    assert 10 < scored["sentences"] < 30


def test_a_run_is_never_overwritten(tiny_run):
    with pytest.raises(RunError, match=r"already has a run. Continue it: .* --resume"):
        train(tiny_config(), tiny_run.path)
    with pytest.raises(UserError, match="already has a run"):
        prepare.main(["--preset", "phrasebook-en-fr", "--output", str(tiny_run.path)])


def test_a_loss_that_is_not_finite_ends_training_and_nothing_of_it_is_kept(tmp_path):
    """Nor does what is left of it stand in the way of the corrected command."""
    output = tmp_path / "run"
    said = r"diverged in epoch 1 \(loss is nan\)"
    with without_steps(loss=math.nan), pytest.raises(RunError, match=said):
        train(tiny_config(), output)
    assert not (output / "best.weights.h5").exists()
    assert [path.name for path in (output / "checkpoints").iterdir()] == ["epoch-000"]
    RunFiles(output).check_free()


@pytest.mark.slow
def test_a_run_that_was_stopped_twice_goes_on_as_if_it_had_not_been(
    tiny_run, tmp_path, monkeypatch
):
    """It starts from other weights, has dropout, and its losses agree to the last digit."""
    other = shutil.copytree(tiny_run.path, tmp_path / "other")
    config = tiny_config("dropout=0.3", "train_limit=300")
    train(config, tmp_path / "whole", init=other)

    def stop_in(epoch):
        @contextmanager
        def progress(steps, unit):
            counted = iter(range(steps))

            def advance(count, loss):
                if unit == f"steps of epoch {epoch + 1}" and next(counted) == 2:
                    raise KeyboardInterrupt

            yield advance

        monkeypatch.setattr("training.fit._recorder.progress", progress)

    output = tmp_path / "run"
    stop_in(epoch=0)
    with pytest.raises(KeyboardInterrupt):
        train(config, output, init=other)
    shutil.rmtree(other)  # what it starts from is its own
    stop_in(epoch=1)
    with pytest.raises(KeyboardInterrupt):
        resume(output)
    monkeypatch.undo()
    resume(output)
    whole, stopped = (read_history(tmp_path / name) for name in ("whole", "run"))
    keys = ("loss", "val_perplexity", "bleu", "learning_rate")
    for record, expected in zip(stopped, whole, strict=True):
        assert {key: record[key] for key in keys} == {key: expected[key] for key in keys}


def test_runs_of_different_tokenizers_make_no_ensemble(tiny_run, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(tiny_run.path, other)
    content = (other / "target.tokenizer").read_text()
    (other / "target.tokenizer").write_text(content + "\n")
    (other / "digests.json").unlink()
    with pytest.raises(RunError, match=r"different files target\.tokenizer"):
        load_ensemble([tiny_run.path, other])


NO_DROPOUT = ["dropout=0.0", "epochs=2"]  # which draws other numbers in another process


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    path = tmp_path_factory.mktemp("prepared") / "run"
    settings = [word for setting in [*TINY, *NO_DROPOUT] for word in ("--set", setting)]
    prepare.main(["--preset", "phrasebook-en-fr", "--output", str(path), *settings])
    return path


@pytest.mark.slow
def test_the_old_command_trains_what_training_from_texts_does(prepared, tmp_path, capsys):
    run = shutil.copytree(prepared, tmp_path / "run")
    train_arrays.main([str(run)])
    said = f"note: the new command is python -m training.train --resume --output {run}"
    assert said in capsys.readouterr().err
    train(tiny_config(*NO_DROPOUT), tmp_path / "texts")
    for record, other in zip(read_history(run), read_history(tmp_path / "texts"), strict=True):
        for key in ("epoch", "loss", "val_perplexity", "learning_rate", "bleu", "chrf"):
            assert record[key] == other[key], key


@pytest.mark.slow
def test_a_run_without_tokenizers_that_is_stopped_goes_on(prepared, tmp_path, monkeypatch):
    whole, path = (shutil.copytree(prepared, tmp_path / name) for name in ("whole", "run"))
    train_prepared(whole)
    expected = read_history(whole)
    assert "bleu" not in expected[0]

    def save_and_stop(*args):
        save_checkpoint(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr("training.fit._recorder.save_checkpoint", save_and_stop)
    with pytest.raises(KeyboardInterrupt):
        train_prepared(path)
    monkeypatch.undo()
    # With the tokenizers there, epochs are still compared by perplexity, as before.
    last = resume(path)
    assert last["epoch"] == expected[-1]["epoch"] == 2
    assert "bleu" not in last
    for key in ("loss", "val_perplexity"):
        assert last[key] == pytest.approx(expected[-1][key], rel=1e-4)
    assert train_prepared(path) == last  # all is done


def test_a_batch_that_devices_cannot_share_is_refused():
    five = Processes(devices=5)
    five.check_batch_size(tiny_config("batch_size=35"))
    five.check_batch_size(tiny_config("batch_size=36", "batch_tokens=77"))  # of any size
    wanted = r"batch_size is 36, but 5 devices .* a multiple of 5, .* --set batch_size=35$"
    with pytest.raises(UserError, match=wanted):
        five.check_batch_size(tiny_config("batch_size=36"))
