import pytest

from training.config.schema import Config
from training.fit._optimizer import make_schedule
from training.runs.files import best, reason_to_stop


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
