"""Texts are cut into sentences in time that grows with their length, in Python and in the page."""

import random
import re

import pytest

from serving.api.results import join_sentences, split_sentences
from serving.client import Translation
from tests.attack.conftest import within
from tests.serving.javascript import call, needs_node

# What ends a sentence, said without regard to time.
SLOW = re.compile(
    r"""((?<=[.!?…])\s+|(?<=[.!?…]["'”’»)\]])\s+"""
    r"""|(?<=[。！？])(?![。！？”’」』）])\s*|(?<=[。！？][”’」』）])\s*|\s*\n\s*)"""
)
LONG = 300_000
SPACES = " " * LONG
LONG_TEXTS = {
    "spaces": "a" + SPACES + "b",
    "after a mark": "a." + SPACES + "b",
    "lines": "a" + SPACES + "\n" + SPACES + "b",
    "many lines": "a" + "\n " * LONG + "b",
    "wide": "好。" + "\u3000" * LONG + "b",
}


def by_python(texts):
    return [[list(pair) for pair in split_sentences(text)] for text in texts]


def by_javascript(texts):
    return call("engine/sentences.js", "splitSentences", [[text] for text in texts])


both = pytest.mark.parametrize("split", [by_python, pytest.param(by_javascript, marks=needs_node)])


@both
def test_random_texts_are_cut_where_the_rule_says(split):
    rng, wanted = random.Random(8), []
    signs = "ab. !?…\"'”’»)]。！？」』）  \n\n\t\u3000\x1c\x85\ufeff"
    texts = ["".join(rng.choices(signs, k=rng.randrange(16))) for _ in range(20_000)]
    for text in texts:
        parts = SLOW.split(text.strip())
        pairs = zip(parts[::2], [*parts[1::2], ""], strict=True)
        wanted.append([[sentence, gap] for sentence, gap in pairs if sentence])
    assert sum(len(sentences) > 1 for sentences in wanted) > 3000
    assert split(texts) == wanted


@both
def test_long_white_space_takes_no_long_time(split):
    gaps = {what: re.search(r"\s+", text)[0] for what, text in LONG_TEXTS.items()}
    wanted = [
        [[text.split(gaps[what])[0], gaps[what]], ["b", ""]] for what, text in LONG_TEXTS.items()
    ]
    wanted[0] = [[LONG_TEXTS["spaces"], ""]]
    with within(20):  # Node's start included; of squares it would be minutes
        assert split(LONG_TEXTS.values()) == wanted


@needs_node
def test_the_page_joins_translations_as_the_client_does():
    rng = random.Random(9)
    said = ["He sleeps.", "他睡觉。", "「走れ！」", "好。 x", "", "a\nb"]
    texts = [
        [(rng.choice(said), rng.choice(["", " ", "  ", "\n", " \n "])) for _ in range(n % 4)]
        for n in range(200)
    ]
    given = [[[{"text": text, "gap": gap} for text, gap in row]] for row in texts]
    wanted = [
        join_sentences([(Translation(text, 0.0), gap) for text, gap in row]).text for row in texts
    ]
    given.append([[{"text": "He sleeps.", "gap": ""}, {"text": "She eats.", "gap": ""}]])  # Chinese
    assert call("static/joined.js", "joined", given) == [*wanted, "He sleeps. She eats."]
