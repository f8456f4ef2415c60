import json
import math
import re
import shutil
from contextlib import contextmanager

import pytest
import tensorflow as tf

from tests.training.conftest import TINY, tiny_config, without_steps
from training import evaluate
from training import train as script
from training.command.errors import UserError
from training.fit._train import DevSet, resume, train
from training.runs._card import draw_curves
from training.runs.files import RunFiles
from training.runs.run import RunError, load_ensemble, load_run

draw = DevSet.draw


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
    first, second = json.loads((tiny_run.path / "history.json").read_text())
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--preset", "phrasebook-en-fr", "--resume"],
            "A resumed run keeps its settings. Remove --preset",
        ),
        (["--data", "tsv:\udcff.tsv"], r"--data needs text in Unicode, but it is 'tsv:\udcff"),
        (["--preset", "phrasebook-en-fr", "--dev", "0.1"], "phrasebook-en-fr has its own dev set"),
        (
            ["--resume", "--init", "/nowhere"],
            "A resumed run keeps its own tokenizers and weights. Remove --init",
        ),
        (["--resume", "--data", "tsv:a"], "A resumed run keeps its own data. Remove --data"),
        (["--preset", "phrasebook-en-fr", "--set", "source_vocab_size=3"], "source_vocab_size=3"),
        (["--preset", "phrasebook-en-fr", "--set", "max_source_length=1"], "are too long or empty"),
    ],
)
def test_bad_input_is_one_clear_line(arguments, said, tmp_path):
    if "phrasebook-en-fr" in arguments:  # of which all is read before some of it is refused
        arguments = [*arguments, "--set", "train_limit=97"]
    with pytest.raises(UserError, match=re.escape(said)):
        script.main([*arguments, "--output", str(tmp_path / "new" / "run")])
    assert not (tmp_path / "new").exists()


def test_own_files_are_trained_on_scored_and_given_more_epochs(tmp_path, monkeypatch, capsys):
    """By relative paths, from another directory than the run goes on in."""
    lines = [f"word{i} other{i % 7}\tmot{i} autre{i % 7}" for i in range(100)] + ["no target\t"]
    for folder in ("data", "elsewhere"):
        (tmp_path / folder).mkdir()
    (tmp_path / "data" / "pairs.tsv").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path / "data")
    tiny = [text for text in TINY if not text.startswith(("epochs", "train_limit"))]
    chosen = [word for text in [*tiny, "epochs=1"] for word in ("--set", text)]
    with without_steps():
        script.main(["--data", "tsv:pairs.tsv", "--test", "0.2", *chosen])
    said = capsys.readouterr().out
    assert said.count("100 pairs") == 1
    assert "treated as sentences; settings of" in said
    assert said.count("1 lines without a pair") == 1
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


def test_a_loss_that_is_not_finite_ends_training_and_nothing_of_it_is_kept(tmp_path):
    """Nor does what is left of it stand in the way of the corrected command."""
    output = tmp_path / "run"
    with (
        without_steps(loss=math.nan),
        pytest.raises(RunError, match=r"diverged in epoch 1 \(loss is nan\)"),
    ):
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
    histories = tmp_path / "whole" / "history.json", output / "history.json"
    whole, stopped = (json.loads(path.read_text()) for path in histories)
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
