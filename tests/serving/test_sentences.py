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


def pieces(text):
    return [list(pair) for pair in split_sentences(text)]


def test_random_texts_are_cut_where_the_rule_says():
    rng = random.Random(8)
    signs = "ab. !?…\"'”’»)]。！？」』）  \n\n\t\u3000\x1c\x85\ufeff"
    several = 0
    for _ in range(20_000):
        text = "".join(rng.choices(signs, k=rng.randrange(16)))
        parts = SLOW.split(text.strip())
        pairs = zip(parts[::2], [*parts[1::2], ""], strict=True)
        wanted = [(sentence, gap) for sentence, gap in pairs if sentence]
        assert split_sentences(text) == wanted, repr(text)
        several += len(wanted) > 1
    assert several > 3000


@pytest.mark.parametrize("what", LONG_TEXTS)
def test_long_white_space_takes_no_long_time(what):
    text = LONG_TEXTS[what]
    gap = re.search(r"\s+", text)[0]
    with within(5):
        found = split_sentences(text)
    wanted = [(text, "")] if what == "spaces" else [(text.split(gap)[0], gap), ("b", "")]
    assert found == wanted


@needs_node
def test_long_white_space_takes_the_page_no_long_time():
    texts = list(LONG_TEXTS.values())
    with within(20):  # Node's start included; of squares it would be minutes
        found = call("engine/sentences.js", "splitSentences", [[text] for text in texts])
    assert found == [pieces(text) for text in texts]


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
