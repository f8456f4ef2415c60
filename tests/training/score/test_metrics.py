import functools
import random

import numpy as np
import pytest
import sacrebleu

from training import metrics
from training.config.schema import Config, override
from training.data.read._sentences import Split
from training.metrics import METRICS, bleu_of, bootstrap_interval, lowered, percent, ratio, score
from training.runs.files import best
from training.score import _links as links
from training.score._links import THRESHOLD, WordWeights, alignment_errors

HYPOTHESES = ["Elle mange une pomme verte.", "il n'aime pas les pommes .", "Je sais", "Où est-il ?"]
REFERENCES = [
    ["Elle mange une pomme verte."],
    ["Il n'aime pas les pommes.", "Il n'aime point les pommes."],
    ["Je le sais.", "Je sais.", "Je suis au courant."],
    ["Où est-il ?"],
]
STREAMS = [  # the same, as sacrebleu takes them
    [texts[0] for texts in REFERENCES],
    [None, REFERENCES[1][1], REFERENCES[2][1], None],
    [None, None, REFERENCES[2][2], None],
]
BLEU, CHINESE, CHRF = (METRICS[name] for name in ("bleu", "bleu-zh", "chrf"))


# Repeating a reference gives every sentence as many, and changes no best match of chrF.
REPEATED = [[texts[min(i, len(texts) - 1)] for texts in REFERENCES] for i in range(3)]
ZH = ["我喜欢吃绿苹果。"], [["我喜欢绿苹果。"]]


@pytest.mark.parametrize(
    ("metric", "texts", "expected"),
    [
        ("bleu", (HYPOTHESES, REFERENCES), sacrebleu.corpus_bleu(HYPOTHESES, STREAMS)),
        ("bleu-zh", ZH, sacrebleu.corpus_bleu(ZH[0], ZH[1], tokenize="zh")),
        ("chrf", (HYPOTHESES, REFERENCES), sacrebleu.corpus_chrf(HYPOTHESES, REPEATED)),
    ],
)
def test_scores_are_those_of_sacrebleu(metric, texts, expected):
    assert METRICS[metric].score(*texts) == pytest.approx(expected.score)
    assert score(metric, *texts)[metric.removesuffix("-zh")] == pytest.approx(expected.score)
    assert score("bleu-zh", *ZH)["bleu"] > score("bleu", *ZH)["bleu"]


def test_scores_of_small_letters_are_those_of_sacrebleu():
    lower = score("bleu", *lowered(HYPOTHESES, REFERENCES))
    expected = sacrebleu.corpus_bleu(HYPOTHESES, STREAMS, lowercase=True)
    assert lower["bleu"] == pytest.approx(expected.score)
    plain = score("bleu", HYPOTHESES, REFERENCES)
    assert lower["bleu"] > plain["bleu"]
    assert lower["chrf"] > plain["chrf"]


def test_capitals_of_turkish_are_small_as_its_alphabet_has_them():
    references = [["ışık İSTANBUL'da", "IŞIK"], ["Iğdır ilı I\u0307ZMİR"]]
    small = [["ışık istanbul'da", "ışık"], ["ığdır ilı izmir"]]
    assert lowered(["IŞIK İstanbul'da"], references) == (["ışık istanbul'da"], small)
    english = [["In ISPARTA it is his inn, his kitchen is fine, I think: Işık"]]
    assert lowered(["I"], english) == (["i"], [[english[0][0].lower()]])
    assert lowered(["ΟΔΟΣ"], [["Straße"]]) == (["οδος"], [["straße"]])


@pytest.mark.parametrize("metric", [BLEU, CHINESE])
def test_summed_sentence_statistics_give_the_bleu_of_the_corpus(metric):
    statistics = np.array(metric.statistics(HYPOTHESES, REFERENCES))
    assert statistics.shape == (4, 10)
    assert bleu_of(statistics.sum(axis=0)) == pytest.approx(metric.score(HYPOTHESES, REFERENCES))
    expected = metric.score(HYPOTHESES[1:3], REFERENCES[1:3])
    assert bleu_of(statistics[1:3].sum(axis=0)) == pytest.approx(expected)


def test_a_figure_is_one_entry_of_the_table(monkeypatch):
    """A run may be scored by it, and its epochs are compared by it."""

    def longest(hypotheses, references):
        return float(max(map(len, hypotheses)))

    monkeypatch.setitem(METRICS, "longest", metrics.Metric(longest, "lower", "longest", "words"))
    assert score("longest", ["abc", "d"], [["a"], ["b"]]) == {"longest": 3.0}
    history = [{"epoch": 1, "longest": 5.0}, {"epoch": 2, "longest": 3.0}]
    assert best(history)["epoch"] == 2


@pytest.mark.parametrize("metric", sorted(METRICS.keys() - {"auc", "auprc"}))
def test_a_configuration_takes_each_figure(metric):
    assert override(Config(), [f"metric={metric}"]).metric == metric
    assert METRICS[metric].better in ("higher", "lower")
    right, wrong = ["a b c d e"], ["a b x d y"]
    key = METRICS[metric].key
    values = [METRICS[metric].score(texts, [right]) for texts in (right, wrong)]
    assert key(values[0]) > key(values[1])


@pytest.mark.parametrize(("metric", "name"), [("per", "per"), ("characters", "cer")])
def test_an_answer_that_repeats_itself_does_not_decide_which_epoch_is_best(metric, name):
    references = [["a b c d e f g h"]] * 10
    runaway = metrics.score_epoch(metric, ["a b c d e f g h"] * 9 + ["a b " * 40], references)
    worse = metrics.score_epoch(metric, ["a b c d e f x y"] * 10, references)
    assert runaway[name] > worse[name]
    each = enumerate((worse, runaway), 1)
    history = [{"epoch": n, "val_perplexity": 2.0, **scores} for n, scores in each]
    assert best(history, "best_score")["epoch"] == 2
    assert runaway[f"{name}_capped"] == 10
    old = [{"epoch": record["epoch"], name: record[name]} for record in history]
    assert best(old)["epoch"] == 1


@functools.cache
def recursive_distance(a, b):
    if not a or not b:
        return len(a) + len(b)
    return min(
        recursive_distance(a[1:], b) + 1,
        recursive_distance(a, b[1:]) + 1,
        recursive_distance(a[1:], b[1:]) + (a[0] != b[0]),
    )


def test_edits_are_those_of_the_recursive_definition():
    rng = random.Random(2)
    for _ in range(50):
        a, b = (tuple(rng.choices("xyz", k=rng.randint(0, 7))) for _ in range(2))
        assert metrics.character_errors([a], [[b]]) == [(recursive_distance(a, b), len(b))]


def test_pronunciations_count_against_the_closest_reference():
    hypotheses = ["AH B", "K AE T", "D AO", ""]
    references = [["EY B IY", "AH B"], ["K AA T S", "K AE T S"], ["D AO G"], ["T UW"]]
    # 0 of 2 phones, 1 of 4, 1 of 3, 2 of 2; one word of four matches
    assert metrics.symbol_errors(hypotheses, references) == [(0, 2), (1, 4), (1, 3), (2, 2)]
    scores = score("symbols", hypotheses, references)
    assert scores["per"] == pytest.approx(100 * 4 / 11)
    assert metrics.word_errors(hypotheses, references) == [(0, 1), (1, 1), (1, 1), (1, 1)]
    assert scores["wer"] == pytest.approx(75)


@pytest.mark.parametrize(
    ("metric", "wanted"),
    [
        ("exact", {"exact": 50}),
        ("characters", {"exact": 50, "cer": 25}),
        ("symbols", {"per": 50, "wer": 50}),
    ],
)
def test_rates_in_lower_case_ignore_case(metric, wanted):
    texts = ["Ab", "cX"], [["aB"], ["q q", "CD"]]  # of the second one letter of two is wrong
    found = score(metric, *lowered(*texts))
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)
    assert score(metric, *texts) != pytest.approx(found)


def alignment_error_rate(*links):
    return ratio(alignment_errors(*links).sum(axis=0))


def test_alignment_error_rate_of_a_worked_example():
    predicted = [{(0, 0), (1, 2), (2, 1), (3, 3)}, {(0, 1)}]
    sure = [{(0, 0), (2, 1), (3, 2)}, set()]
    possible = [{(0, 0), (2, 1), (3, 2), (1, 2)}, {(0, 0)}]
    # A∩S: 2 and 0; A∩P: 3 and 0; |A| + |S|: 4 + 3 and 1 + 0
    assert alignment_errors(predicted, sure, possible).tolist() == [[2, 7], [1, 1]]
    assert alignment_error_rate(predicted, sure, possible) == pytest.approx(1 - 5 / 8)
    assert alignment_error_rate(sure, sure, possible) == 0
    assert alignment_error_rate([{(0, 0)}], [{(0, 0)}], [set()]) == 0  # sure links are possible
    assert alignment_error_rate([set()], [{(0, 0)}], [{(0, 0)}]) == 1
    assert alignment_error_rate([set()], [set()], [{(0, 0)}]) == 0


def test_the_bootstrap_interval_is_that_of_the_normal_approximation():
    rng = np.random.default_rng(3)
    wrong = rng.random(2000) < 0.3
    statistics = np.stack([wrong, np.ones(2000)], axis=1)
    low, high = bootstrap_interval(statistics, ratio)
    half = 1.96 * np.sqrt(wrong.mean() * (1 - wrong.mean()) / 2000)
    assert low == pytest.approx(wrong.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(wrong.mean() + half, abs=0.1 * half)
    assert bootstrap_interval(statistics, ratio) == (low, high)


@pytest.mark.parametrize("count", [7, 107])
def test_the_interval_of_nothing_or_all_is_open_to_the_exact_bound(count):
    """The probability of none among so many is 2.5 % at the bound."""
    none = np.stack([np.zeros(count), np.ones(count)], axis=1)
    low, high = bootstrap_interval(none, percent)
    assert low == 0
    assert (1 - high / 100) ** count == pytest.approx(0.025)
    assert high == pytest.approx({7: 40.96, 107: 3.39}[count], abs=0.01)
    assert bootstrap_interval(np.ones((count, 2)), ratio) == pytest.approx((1 - high / 100, 1))


def test_unequal_or_no_sentences_are_refused():
    for call in (
        lambda: BLEU.score(["a"], []),
        lambda: CHRF.score([], []),
        lambda: METRICS["per"].score(["a"], [["a"], ["b"]]),
        lambda: alignment_errors([set()], [], [set()]),
    ):
        with pytest.raises(ValueError, match="as many predictions as sentences"):
            call()
    with pytest.raises(ValueError, match="at least one sentence"):
        bootstrap_interval(np.zeros((0, 2)), ratio)


def test_links_are_read_of_words_as_in_a_loop(rng):
    weights = rng.dirichlet(np.full(11, 0.2), size=8)  # the last row is that of the end
    source, target = rng.integers(-1, 4, 11), rng.integers(-1, 3, 7)
    expected = set()
    for word in set(target.tolist()) - {-1}:
        for other in set(source.tolist()) - {-1}:
            rows = [t for t in range(7) if target[t] == word]
            columns = [s for s in range(11) if source[s] == other]
            if sum(weights[t, s] for t in rows for s in columns) / len(rows) >= THRESHOLD:
                expected.add((other, word))
    assert 0 < len(expected) < 12
    assert links.read(WordWeights(weights, source, target)) == expected
    assert links.read(WordWeights(weights, [-1] * 11, target)) == set()
    assert links.read(WordWeights(weights[:1], source, [])) == set()


def test_the_diagonal_runs_from_the_first_words_to_the_last():
    sources, targets = ["a b c", "a", ""], ["x y z u v", "x y", "x"]
    words = ([text.split() for text in side] for side in (sources, targets))
    split = Split(sources, [[text] for text in targets], *words)
    first, second, third = links.diagonal(split)
    assert {(0, 0), (1, 2), (2, 4)} <= first
    assert len(first) == 5
    assert second == {(0, 0), (0, 1)}
    assert third == set()
