import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.training.conftest import TINY, tiny_config
from training import train as script
from training.corpus import CorpusError
from training.errors import UserError
from training.inference import make_translator
from training.recorder import Recorder
from training.run import RunError, load_ensemble, load_run
from training.train import train


def settings(*more):
    return [word for setting in [*TINY, *more] for word in ("--set", setting)]


def test_a_run_holds_what_is_needed_to_use_it(tiny_run):
    names = {path.name for path in tiny_run.path.iterdir()}
    assert {
        "config.toml",
        "source.tokenizer",
        "target.tokenizer",
        "best.weights.h5",
        "checkpoints",
        "history.json",
        "tensorboard",
    } <= names
    history = json.loads((tiny_run.path / "history.json").read_text())
    assert [record["epoch"] for record in history] == [1, 2]
    assert history[1]["val_perplexity"] < history[0]["val_perplexity"] < 300
    assert {
        "loss",
        "bleu",
        "learning_rate",
        "seconds",
        "target_tokens_per_second",
        "gradient_norm",
    } <= set(history[0])
    assert [p.name for p in (tiny_run.path / "checkpoints").iterdir()] == ["epoch-002"]


def test_tensorboard_shows_the_curves_and_a_heat_map_an_epoch(tiny_run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    steps = {}
    for folder in ("train", "validation", "alignments"):
        events = EventAccumulator(str(tiny_run.path / "tensorboard" / folder), {"tensors": 0})
        events.Reload()
        for tag in events.Tags()["tensors"]:
            steps[folder, tag] = [(e.step, e.tensor_proto) for e in events.Tensors(tag)]
    history = json.loads((tiny_run.path / "history.json").read_text())
    for key in ("loss", "bleu", "gradient_norm", "target_tokens_per_second"):
        found = steps["train", f"epoch_{key}"]
        assert [float(tf.make_ndarray(value)) for _, value in found] == pytest.approx(
            [record[key] for record in history], rel=1e-5
        )
    assert len(steps["validation", "epoch_perplexity"]) == 2
    for number in range(3):
        (first, before), (second, after) = steps["alignments", f"alignment/{number}"]
        assert (first, second) == (0, 1)
        width, height, *_ = tf.make_ndarray(before)
        assert min(int(width), int(height)) > 100
        assert before != after
    assert all(0 < record["gradient_norm"] < 100 for record in history)


def test_training_killed_in_mid_epoch_goes_on_where_the_last_epoch_ended(tmp_path):
    """kill -9, then --resume: every epoch stands in the history once."""
    output = tmp_path / "run"
    command = [
        *(sys.executable, "-m", "training.train", "--preset", "phrasebook-en-fr"),
        *("--output", str(output), *settings("epochs=200", "train_limit=200")),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.time() + 300
    while not list((output / "checkpoints").glob("epoch-*")):
        assert process.poll() is None, "training stopped before its first checkpoint"
        assert time.time() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    done = sorted((output / "checkpoints").glob("epoch-*"))[-1]
    before = json.loads((done / "progress.json").read_text())["history"]
    config = (output / "config.toml").read_text()
    last = len(before) + 1
    (output / "config.toml").write_text(config.replace("epochs = 200", f"epochs = {last}"))

    script.main(["--resume", "--output", str(output)])
    history = json.loads((output / "history.json").read_text())
    assert [record["epoch"] for record in history] == list(range(1, last + 1))
    assert history[:-1] == before
    # It went on, rather than began anew.
    assert history[-1]["val_perplexity"] < 1.2 * before[-1]["val_perplexity"]
    assert not list((output / "checkpoints").glob("writing-*"))


def test_resuming_a_finished_run_changes_nothing(tiny_run, capsys):
    weights = (tiny_run.path / "best.weights.h5").read_bytes()
    record = train(tiny_config(), tiny_run.path, resume=True)
    assert record["epoch"] == 2
    assert (tiny_run.path / "best.weights.h5").read_bytes() == weights


def test_fine_tuning_starts_from_the_weights_and_tokenizers_of_the_other_run(tiny_run, tmp_path):
    record = train(
        tiny_config("epochs=1", "learning_rate=1e-9"), tmp_path / "tuned", init=tiny_run.path
    )
    tuned = load_run(tmp_path / "tuned")
    for a, b in zip(tuned.model.weights, tiny_run.model.weights, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    history = json.loads((tiny_run.path / "history.json").read_text())
    assert record["val_perplexity"] == pytest.approx(
        min(r["val_perplexity"] for r in history), rel=0.2
    )


def test_training_stops_when_the_score_no_longer_gets_better(tmp_path):
    config = tiny_config("epochs=9", "patience=1", "learning_rate=1e-12", "train_limit=100")
    record = train(config, tmp_path / "run")
    assert record["epoch"] == 2


def test_a_resumed_run_goes_on_with_its_rate_and_its_average(tmp_path, monkeypatch):
    """Epochs score 5, 4 and 3, the average of 1 and 2 scores 4, that of 2 and 3 scores 9."""
    scores = iter([5.0, 4.0, 4.0, 3.0, 9.0])
    monkeypatch.setattr(Recorder, "score", lambda self: {"bleu": next(scores)})
    output = tmp_path / "run"
    settings = ["train_limit=100", "schedule=plateau", "plateau_patience=1", "warmup_steps=0"]
    config = tiny_config(*settings, "learning_rate=0.02", "average_epochs=2")
    train(config, output)
    history = json.loads((output / "history.json").read_text())
    average = json.loads((output / "average.json").read_text())
    assert average == {"epochs": [1, 2], "bleu": 4.0, "kept": False}
    best = load_run(output).model.get_weights()

    text = (output / "config.toml").read_text()
    (output / "config.toml").write_text(text.replace("epochs = 2\n", "epochs = 3\n", 1))
    record = train(config, output, resume=True)
    assert json.loads((output / "history.json").read_text()) == [*history, record]
    rates = [record["learning_rate"] for record in [*history, record]]
    assert rates == pytest.approx([0.02, 0.02, 0.01])
    average = json.loads((output / "average.json").read_text())
    assert average == {"epochs": [2, 3], "bleu": 9.0, "kept": True}
    run = load_run(output)
    kept = run.model.get_weights()
    epochs = []
    for file in sorted((output / "recent").iterdir()):
        run.model.load_weights(file)
        epochs.append(run.model.get_weights())
    assert len(epochs) == 2
    for mean, second, third in zip(kept, *epochs, strict=True):
        np.testing.assert_allclose(mean, (second + third) / 2, atol=1e-6)
    assert any(abs(a - b).max() > 1e-3 for a, b in zip(best, kept, strict=True))

    train(config, output, resume=True)  # all is done: nothing is scored again


def test_files_are_trained_on_and_a_dev_set_is_held_out(tmp_path):
    lines = [f"word{i} other{i % 7}\tmot{i} autre{i % 7}" for i in range(400)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines))
    config = tiny_config(f"data=tsv:{tmp_path / 'pairs.tsv'}", "epochs=1", "attention=none")
    assert train(config, tmp_path / "run")["epoch"] == 1
    translate = make_translator([load_run(tmp_path / "run")], beam_width=2)
    assert len(translate(["word3 other3", "", "unknown"])) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--preset", "nothing"], "unknown preset 'nothing'"),
        (["--preset", "tatoeba-en-fr", "--set", "epoch=1"], "unknown key 'epoch'"),
        (["--preset", "phrasebook-en-fr", "--data", "klingon-en"], "Unknown corpus 'klingon-en'"),
        (["--preset", "phrasebook-en-fr", "--data", "tsv:/nowhere/a.tsv"], "/nowhere/a.tsv"),
        (["--preset", "phrasebook-en-fr", "--init", "/nowhere"], "--init expected a trained run"),
        (["--preset", "phrasebook-en-fr", "--resume"], "nothing to resume"),
        (["--resume"], "nothing to resume"),
        ([], "what to train with --preset"),
        (["--resume", "--set", "epochs=3"], "what to train with --preset"),
    ],
)
def test_bad_input_is_one_clear_line(arguments, said, tmp_path):
    with pytest.raises(UserError) as caught:
        script.main([*arguments, "--output", str(tmp_path / "run")])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"), [("one column\n" * 9, "line 1"), ("", "empty"), ("a\tb\n", "too few")]
)
def test_a_bad_tsv_is_one_clear_line(content, said, tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text(content)
    with pytest.raises(CorpusError, match=f"(?i){said}"):
        train(tiny_config(f"data=tsv:{file}"), tmp_path / "run")


def test_an_output_that_cannot_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="cannot write to"):
        train(tiny_config(), tmp_path / "file" / "run")


def test_a_run_is_never_overwritten(tiny_run):
    with pytest.raises(RunError, match=r"holds a run already: go on with it by .* --resume"):
        train(tiny_config(), tiny_run.path)


def test_a_directory_that_is_no_run_is_one_clear_line(tmp_path):
    with pytest.raises(RunError, match="is not a run"):
        load_run(tmp_path)


def test_runs_of_different_tokenizers_make_no_ensemble(tiny_run, tmp_path):
    import shutil

    other = tmp_path / "other"
    shutil.copytree(tiny_run.path, other)
    content = (other / "target.tokenizer").read_text()
    (other / "target.tokenizer").write_text(content + "\n")
    with pytest.raises(RunError, match="different target tokenizers"):
        load_ensemble([tiny_run.path, other])


def test_a_script_ends_with_one_line_and_no_trace():
    command = [sys.executable, "-m", "training.train", "--preset", "nothing"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: unknown preset 'nothing'")
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""
