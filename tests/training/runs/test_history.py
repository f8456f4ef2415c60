import pytest

from training.config.schema import Config
from training.fit.schedule import make_schedule
from training.runs.history import best, out_of_patience, rate_cuts


def records(*scores, key="bleu"):
    return [{"epoch": epoch, key: score} for epoch, score in enumerate(scores, 1)]


def test_the_best_epoch_is_the_first_with_the_most_bleu_or_the_least_wer():
    assert best(records(3.0, 5.0, 4.0, 5.0))["epoch"] == 2
    assert best(records(30.0, 50.0, 30.0, 40.0, key="wer"))["epoch"] == 1


def test_the_best_epoch_is_the_one_of_least_perplexity_where_nothing_is_translated():
    assert best(records(9.0, 5.0, 7.0, 5.0, key="val_perplexity"))["epoch"] == 2


def test_perplexity_decides_where_it_is_asked_for():
    bleu_and_perplexity = [(5.0, 36.0), (4.0, 25.0), (3.0, 30.0)]
    history = [
        {"epoch": epoch, "bleu": bleu, "val_perplexity": perplexity}
        for epoch, (bleu, perplexity) in enumerate(bleu_and_perplexity, 1)
    ]
    assert [best(history, by)["epoch"] for by in ("auto", "score", "perplexity")] == [1, 1, 2]
    assert out_of_patience(history, 2, "score")
    assert not out_of_patience(history, 2, "perplexity")
    assert rate_cuts(history, 1, "score") == 2
    assert rate_cuts(history, 1, "perplexity") == 1


@pytest.mark.parametrize(
    ("scores", "patience", "out"),
    [((), 1, False), ((1.0, 2.0), 1, False), ((2.0, 1.0), 1, True), ((2.0, 1.0), 0, False),
     ((2.0, 1.0, 1.0), 3, False), ((2.0, 1.0, 1.0, 2.0), 3, True)],
)  # fmt: skip
def test_patience_is_out_when_the_best_epoch_lies_too_far_back(scores, patience, out):
    assert out_of_patience(records(*scores), patience) is out


@pytest.mark.parametrize(
    ("scores", "patience", "cuts"),
    [
        ((), 1, 0),
        ((1.0,), 1, 0),
        ((5.0, 5.0), 1, 1),  # as good is not better
        ((1.0, 2.0, 3.0, 4.0), 1, 0),
        ((5.0, 4.0, 4.0), 2, 1),
        ((5.0, 4.0, 4.5, 4.9), 2, 1),  # waits anew after a cut
        ((5.0, 4.0, 4.5, 4.9, 4.9), 2, 2),
        ((5.0, 4.0, 6.0, 4.0, 4.0), 2, 1),  # a better score ends the wait
    ],
)
def test_the_rate_is_cut_each_time_the_score_stands_still(scores, patience, cuts):
    assert rate_cuts(records(*scores), patience) == cuts
    worse = records(*(-score for score in scores), key="wer")
    assert rate_cuts(worse, patience) == cuts


def test_on_a_plateau_the_rate_follows_from_the_history_alone():
    config = Config(
        schedule="plateau",
        learning_rate=0.8,
        warmup_steps=4,
        epochs=10,
        plateau_patience=1,
        plateau_factor=0.25,
    )
    rate = make_schedule(config, steps_per_epoch=5)
    rate.follow([])
    assert [float(rate(step)) for step in range(6)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8, 0.8])
    rate.follow(records(3.0, 2.0, 1.0))
    assert float(rate(40)) == pytest.approx(0.8 / 16)
    rate.follow(records(3.0, 2.0))
    assert float(rate(40)) == pytest.approx(0.8 / 4)


def test_the_other_schedules_fall_to_a_hundredth_or_stay():
    cosine = make_schedule(Config(learning_rate=0.8, warmup_steps=5, epochs=10), 5)
    rates = [float(cosine(step)) for step in (0, 5, 28, 50)]
    assert rates == pytest.approx([0.0, 0.8, 0.4, 0.008], abs=0.02)
    constant = Config(learning_rate=0.8, warmup_steps=5, epochs=10, schedule="constant")
    assert float(make_schedule(constant, 5)(50)) == pytest.approx(0.8)
