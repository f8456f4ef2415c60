"""Sums in words: targets of one word, and a word of the source that is in all lines."""

import json
import random

import pytest

from training import evaluate, train
from training.data.pieces import FEW_WORDS, train_sentencepiece
from training.data.splits import fitting_metric
from training.data.tokenizers import train_tokenizer

NAMES = "zero one two three four five six seven eight nine ten eleven twelve"
WORDS = NAMES.split()
SUMS = [(f"{WORDS[a]} plus {WORDS[b]}", WORDS[a + b]) for a in range(7) for b in range(7)]


def pieces(tokenizer, text):
    return [token.decode() for token in tokenizer.tokens(tokenizer.tokenize([text])).numpy()[0]]


@pytest.mark.parametrize("size", [200, 1500, 8000])
def test_words_of_a_small_vocabulary_are_one_piece(size):
    made = train_tokenizer("sentencepiece", [source for source, _ in SUMS], size)
    assert pieces(made, "two plus three") == ["▁two", "▁plus", "▁three"]
    assert pieces(made, "two plush")[1] == "▁plus"  # what is not known is spelled


def test_a_larger_vocabulary_is_a_unigram_model_and_one_of_no_room_too():
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghij", k=5)) for _ in range(FEW_WORDS + 1)]
    lines = [" ".join(rng.choices(words, k=8)) for _ in range(2 * FEW_WORDS)]
    few = [source for source, _ in SUMS]
    for text, size, model_type in (
        (lines, 1500, "unigram"),
        (few, 22, "unigram"),
        (few, 300, "bpe"),
    ):
        model = train_sentencepiece(lambda text=text: text, size)
        assert model == train_sentencepiece(lambda text=text: text, size, model_type=model_type)


@pytest.mark.parametrize(
    ("references", "metric"),
    [
        ([["five"], ["twenty one"], ["two thirds of"]], "exact"),
        ([["five"], ["a b c d"]], "bleu"),
        ([["five"], ["six"], ["a b c d"]], "exact"),
        ([["他在吃一个苹果。"]], "bleu"),
        ([["五"], ["二十"]], "exact"),
    ],
)
def test_the_metric_fits_most_references(references, metric):
    assert fitting_metric(references) == metric


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sums")
    data = folder / "sums.tsv"
    data.write_text("".join(f"{source}\t{target}\n" for source, target in SUMS))
    pairs = folder / "pairs.tsv"
    pairs.write_text(4 * data.read_text())
    settings = "epochs=12 warmup_steps=1 learning_rate=0.01 dropout=0 batch_size=12 seed=3 "
    settings += "encoder_units=8 decoder_units=16 embedding_size=16 readout_units=16 "
    settings += "attention_units=8 average_epochs=0 label_smoothing=0 schedule=constant"
    words = ["--data", f"tsv:{pairs}", "--dev", f"tsv:{data}", "--output", str(folder / "run")]
    words += [word for setting in settings.split() for word in ("--set", setting)]
    train.main(words)
    return folder / "run"


@pytest.mark.slow
def test_the_share_of_exact_answers_rises_from_the_first_epochs(run):
    history = json.loads((run / "history.json").read_text())
    exact = [record["exact"] for record in history]
    assert exact[0] < exact[-1]
    assert max(exact[:4]) > 0
    assert exact[-1] > 30
    assert all(0 <= record["chrf"] <= 100 for record in history)
    assert "bleu" not in history[0]
    assert "exact" in (run / "README.md").read_text()


@pytest.mark.slow
def test_evaluate_gives_the_share_and_its_interval(run, tmp_path):
    texts, output = tmp_path / "texts", tmp_path / "scores.json"
    options = ["--data", f"tsv:{run.parent / 'sums.tsv'}", "--hypotheses", str(texts)]
    options += ["--bootstrap", "--output", str(output), "--beam-width", "1"]
    evaluate.main(["--run", str(run), *options])
    found = json.loads(output.read_text())
    said = texts.read_text().splitlines()
    right = sum(text == target for text, (_, target) in zip(said, SUMS, strict=True))
    assert found["exact"] == pytest.approx(100 * right / len(SUMS))
    low, high = found["exact_interval"]
    assert low <= found["exact"] <= high
