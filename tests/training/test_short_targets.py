"""Sums in words: targets of one word, and a word of the source that is in all lines."""

import random

import pytest

from tests.training.data.files import train_tokenizer
from training.data.pieces import FEW_WORDS, train_sentencepiece
from training.data.splits import fitting_metric

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
    for text, size, model_type in [
        (lines, 1500, "unigram"),
        (few, 22, "unigram"),
        (few, 300, "bpe"),
    ]:
        model = train_sentencepiece(text, size)
        assert model == train_sentencepiece(text, size, model_type=model_type)


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
