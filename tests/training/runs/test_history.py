import pytest

from training.config.schema import Config
from training.fit.optimizer import make_schedule
from training.runs.files import best, reason_to_stop


def records(*scores, key="bleu"):
    return [{"epoch": epoch, key: score} for epoch, score in enumerate(scores, 1)]


def test_the_best_epoch_is_the_first_with_the_most_bleu_or_the_least_wer():
    assert best(records(3.0, 5.0, 4.0, 5.0))["epoch"] == 2
    assert best(records(30.0, 50.0, 30.0, 40.0, key="wer"))["epoch"] == 1


def test_the_best_epoch_is_the_one_of_least_perplexity_where_nothing_is_translated():
    assert best(records(9.0, 5.0, 7.0, 5.0, key="val_perplexity"))["epoch"] == 2


@pytest.mark.parametrize(("key", "score"), [("exact", 100.0), ("wer", 0.0), ("bleu", 100.0)])
def test_of_several_epochs_with_the_best_score_the_least_perplexity_decides(key, score):
    history = [
        {"epoch": epoch, key: score, "val_perplexity": perplexity}
        for epoch, perplexity in enumerate((1.5, 1.02, 1.2), 1)
    ]
    assert best(history)["epoch"] == 2


def test_perplexity_decides_where_it_is_asked_for():
    bleu_and_perplexity = [(5.0, 36.0), (4.0, 25.0), (3.0, 30.0)]
    history = [
        {"epoch": epoch, "bleu": bleu, "val_perplexity": perplexity}
        for epoch, (bleu, perplexity) in enumerate(bleu_and_perplexity, 1)
    ]
    assert [best(history, by)["epoch"] for by in ("auto", "score", "perplexity")] == [1, 1, 2]


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
    assert reason_to_stop(history, Config(epochs=150, keep_by="last")) is None
    perplexity = records(*[1.0] * 9, key="val_perplexity")
    assert reason_to_stop(perplexity, config) is None


@pytest.mark.parametrize(("epochs", "patience"), [(150, 75), (28, 20)])
def test_training_stops_when_no_epoch_has_been_better_for_half_of_all(epochs, patience):
    config = Config(epochs=epochs)
    history = records(*[90.0, 95.0, 99.5, *[99.0] * patience])
    assert reason_to_stop(history[:-1], config) is None
    stopped = reason_to_stop(history, config)
    assert stopped == f"No epoch has been better than epoch 3 for {patience} epochs"
    assert reason_to_stop(history, Config(epochs=epochs, keep_by="last")) is None
    better = [*history[:-1], {"epoch": len(history), "bleu": 99.6}]
    assert reason_to_stop(better, config) is None


def test_the_last_epoch_or_mean_is_kept_whatever_dev_says():
    history = [{"epoch": epoch, "wer": wer} for epoch, wer in enumerate((20.0, 5.0, 30.0), 1)]
    assert best(history, "last")["epoch"] == 3
    mean = {"epochs": [2, 3], "wer": 40.0}
    assert best([mean, *history], "last") == mean
