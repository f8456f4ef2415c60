"""What a run keeps, its weights, and when it stops, however often it goes on."""

from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from training.config.schema import Config, override
from training.data.batches._plan import Statistics
from training.data.batches._shapes import PredictedSeconds
from training.fit import _recorder as recorder
from training.fit._optimizer import make_schedule
from training.fit._recorder import Recorder, train_epochs
from training.runs._card import write_card
from training.runs.files import RunFiles, best, reason_to_stop, summary
from training.runs.run import load_best


@pytest.fixture(autouse=True)
def no_checkpoints(monkeypatch):
    """Nothing here goes on from a checkpoint, and writing them takes a third of the time."""
    monkeypatch.setattr(recorder, "save_checkpoint", lambda *args: None)


class Scripted:
    """A run whose perplexities are told beforehand; after epoch n all its weights are n."""

    def __init__(self, path):
        self.files, self.history, self.seen = RunFiles(path), [], []
        inputs = keras.Input((2,))
        self.model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
        self.model.compile("adam", "mse")
        self.model.optimizer.build(self.model.trainable_variables)

    def go_on(self, epochs, mean=None, most=2):
        """Train an epoch for each perplexity, and have the mean scored where it has one."""
        done = len(self.history) + len(epochs)
        settings = [f"epochs={done}", f"average_epochs={most}", "keep_epoch=best_perplexity"]
        config = override(Config(), settings)
        config.save(self.files.config)
        scores = iter([*epochs, *([] if mean is None else [mean])])

        def score():
            value = next(scores)
            self.seen.append((value, float(self.weights()[0])))
            return {"val_perplexity": value}

        statistics = Statistics(1, 0, 1, 1, 1)
        recorder = Recorder(self.files, config, self.model, statistics, self.history, score)
        for _ in epochs:
            for weight in self.model.weights:
                weight.assign(np.full(weight.shape, len(self.history) + 1.0))
            recorder.finish(loss=1.0, seconds=1.0)
            self.agrees()
        if most:
            recorder.try_average()
        self.agrees()
        assert next(scores, None) is None

    def weights(self):
        return np.ravel(keras.ops.convert_to_numpy(self.model.weights[0]))

    def agrees(self):
        """Weights, summary and card are those of the best that was scored, the first of several."""
        least, value = min(self.seen, key=lambda each: each[0])
        said = summary(self.files)
        assert said["val_perplexity"] == least
        assert np.mean(said.get("epochs", said.get("epoch"))) == value
        mean = said.get("epochs")
        which = f"mean of {mean[0]} to {mean[-1]}" if mean else said["epoch"]
        assert f"| **{which}** |" in self.files.card.read_text()
        before = self.model.get_weights()
        load_best(self.files, self.model)
        np.testing.assert_array_equal(self.weights(), [value, value])
        self.model.set_weights(before)


@pytest.mark.parametrize(
    "later",
    [
        [([9.5], 9.2)],
        [([8.9], None, 0)],
        [([7.0], 7.5)],
        [([9.5], 7.5)],
        [([9.5], 9.2), ([8.5], 8.7), ([7.9], 7.9), ([7.8], 7.6)],
        [([8.0], 8.0)],
    ],
    ids=str,
)
def test_a_mean_that_is_kept_stays_until_something_is_better(tmp_path, later):
    run = Scripted(tmp_path)
    run.go_on([10.0, 9.0], 8.0)
    for each in later:
        run.go_on(*each)


@pytest.mark.parametrize(("had", "asked"), [(0, 3), (2, 3)])
def test_a_mean_of_epochs_whose_weights_are_gone_is_said(tmp_path, capsys, had, asked):
    run = Scripted(tmp_path)
    run.go_on([10.0, 9.0, 8.5], 8.0 if had else None, had)
    capsys.readouterr()
    run.go_on([], None, asked)
    assert f"of the last 3 epochs, but the run has kept only {had}\n" in capsys.readouterr().out


def test_a_mean_of_fewer_epochs_is_tried_of_a_finished_run(tmp_path, capsys):
    run = Scripted(tmp_path)
    run.go_on([10.0, 9.0, 8.5], 8.0, most=3)
    run.go_on([], 7.0, most=2)
    assert summary(run.files)["epochs"] == [2, 3]


def test_weights_of_epochs_long_ago_are_no_part_of_the_mean(tmp_path):
    run = Scripted(tmp_path)
    run.go_on([10.0, 9.0], 8.0)
    run.go_on([9.5, 9.4], None, 0)
    run.go_on([7.5], 7.4)
    assert summary(run.files)["epochs"] == [5]


def test_a_card_names_data_that_have_no_splits(tmp_path):
    run = Scripted(tmp_path)
    run.go_on([9.0], most=0)
    assert "--split dev " in run.files.card.read_text()
    write_card(run.files, Config(source="events", data="events:/a.csv"), run.model)
    assert f"training.evaluate --run {tmp_path} --data events:PATH\n" in run.files.card.read_text()


def test_a_log_tells_steps_and_the_second_epochs_speed(capsys, monkeypatch):
    """The steps' lines are for errors; the speed stands beside the one that was reckoned."""
    history, clock = [], iter(range(0, 1000, 20))
    monkeypatch.setattr("training.command.progress.time.monotonic", lambda: next(clock))

    def fit(*args, callbacks, **kwargs):
        for step in range(3):
            callbacks[0].on_train_batch_end(step, {"loss": np.float32(1 / (step + 1))})
        return SimpleNamespace(history={"loss": [1.0]})

    def finish(loss, seconds):
        record = {"epoch": len(history) + 1, "val_perplexity": 2.0, "bleu": 1.0}
        history.append({**record, "target_tokens_per_second": 1000 + len(history)})
        return history[-1]

    fake = SimpleNamespace(
        config=override(Config(), ["epochs=3"]),
        history=history,
        finish=finish,
        model=SimpleNamespace(fit=fit),
        statistics=Statistics(3, 0, 9, 1200, 3),
        draw_pictures=None,
        write=lambda function: None,
    )
    train_epochs(
        fake, lambda epoch: None, PredictedSeconds(1, 20.0, 1.8)
    )  # 3 epochs of 1,200 tokens
    said, told = capsys.readouterr()
    steps = [f"2 of 3 steps of epoch {n}, loss 0.5, 0:00:20 left" for n in (1, 2, 3)]
    assert told.splitlines() == steps  # 20 and 40 seconds after the beginning
    (line,) = (x for x in said.splitlines() if "Expected on" in x)
    assert line.startswith("1,001 target tokens per second. Expected on an H200: 2,000. If")


@pytest.mark.parametrize(
    ("driver", "device", "visible", "said"),
    [
        (True, "", "0,1", True),
        (True, "gpu", "0", False),
        (False, "", "0", False),
        *((True, "", hidden, False) for hidden in ("", " ", "-1", "-1,0")),
    ],
)
def test_a_gpu_that_is_not_found_is_told(monkeypatch, driver, device, visible, said):
    monkeypatch.setattr(Path, "glob", lambda path, pattern: ["/dev/nvidia0"] if driver else [])
    monkeypatch.setenv("KERAS_ATTENTION_DEVICE", device)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(keras.distribution, "list_devices", lambda kind=None: [])
    assert ("a GPU that it does not find" in recorder._device()) is said


def records(*scores, key="bleu", perplexities=()):
    history = [{"epoch": epoch, key: score} for epoch, score in enumerate(scores, 1)]
    for record, perplexity in zip(history, perplexities, strict=False):
        record["val_perplexity"] = perplexity
    return history


TIED = {"perplexities": (1.5, 1.02, 1.2)}
OPPOSED = records(5.0, 4.0, 3.0, perplexities=(36.0, 25.0, 30.0))


@pytest.mark.parametrize(
    ("history", "by", "epoch"),
    [
        (records(3.0, 5.0, 4.0, 5.0), "auto", 2),  # the first with the most BLEU
        (records(30.0, 50.0, 30.0, 40.0, key="wer"), "auto", 1),  # the least WER
        (records(9.0, 5.0, 7.0, 5.0, key="val_perplexity"), "auto", 2),
        (records(100.0, 100.0, 100.0, key="exact", **TIED), "auto", 2),
        (records(0.0, 0.0, 0.0, key="wer", **TIED), "auto", 2),
        (records(100.0, 100.0, 100.0, **TIED), "auto", 2),
        (OPPOSED, "auto", 1),
        (OPPOSED, "score", 1),
        (OPPOSED, "best_perplexity", 2),
        (records(20.0, 5.0, 30.0, key="wer"), "last", 3),
    ],
)
def test_the_best_epoch_has_the_best_score_and_of_equal_ones_the_least_perplexity(
    history, by, epoch
):
    assert best(history, by)["epoch"] == epoch


def test_the_last_mean_is_kept_whatever_dev_says():
    mean = {"epochs": [2, 3], "wer": 40.0}
    assert best([mean, *records(20.0, 5.0, 30.0, key="wer")], "last") == mean


def test_a_schedule_falls_to_a_hundredth():
    cosine = make_schedule(0.8, warmup_steps=5, steps=50)
    rates = [float(cosine(step)) for step in (0, 5, 28, 50)]
    assert rates == pytest.approx([0.0, 0.8, 0.4, 0.008], abs=0.02)


@pytest.mark.parametrize(("key", "perfect"), [("exact", 100.0), ("wer", 0.0), ("bleu", 100.0)])
def test_training_stops_when_dev_has_been_right_for_five_epochs(key, perfect):
    other = perfect - 0.5 if perfect else 0.5
    scores = [perfect, other, *[perfect] * 5]
    history = records(*scores, key=key)
    config = Config(epochs=150)
    stopped = [reason_to_stop(history[:count], config) for count in range(8)]
    assert stopped == [*[None] * 7, "All of dev has been right for 5 epochs"]
    assert reason_to_stop(history[:2], Config(epochs=2)) == ""
    assert reason_to_stop(history, Config(epochs=150, keep_epoch="last")) is None
    perplexity = records(*[1.0] * 9, key="val_perplexity")
    assert reason_to_stop(perplexity, config) is None


@pytest.mark.parametrize(("epochs", "patience"), [(150, 75), (28, 20)])
def test_training_stops_when_no_epoch_has_been_better_for_half_of_all(epochs, patience):
    config = Config(epochs=epochs)
    history = records(*[90.0, 95.0, 99.5, *[99.0] * patience])
    assert reason_to_stop(history[:-1], config) is None
    stopped = reason_to_stop(history, config)
    assert stopped == f"No epoch has been better than epoch 3 for {patience} epochs"
    assert reason_to_stop(history, Config(epochs=epochs, keep_epoch="last")) is None
    better = [*history[:-1], {"epoch": len(history), "bleu": 99.6}]
    assert reason_to_stop(better, config) is None
