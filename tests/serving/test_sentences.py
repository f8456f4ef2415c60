"""Texts are cut into sentences in time that grows with their length, in Python and in the page."""

import random
import re

import pytest

from serving.api._results import TRANSLATE_LINES, are_sentences, join_sentences, split_sentences
from serving.client import Translation
from tests.attack.conftest import within
from tests.serving.javascript import call, needs_node

# What ends a sentence, said without regard to time.
SLOW = re.compile(
    r"""((?<=[.!?…])\s+|(?<=[.!?…]["'”’»)\]])\s+"""
    r"""|(?<=[。！？])(?![。！？”’」』）])\s*|(?<=[。！？][”’」』）])\s*|\s*\n\s*)"""
)
ORDINAL = re.compile(r"""(?:^|[^0-9,])[0-9]{1,2}\.["'”’»)\]]?$""")
LONG = 300_000
SPACES = " " * LONG
LONG_TEXTS = {
    "spaces": "a" + SPACES + "b",
    "after a mark": "a." + SPACES + "b",
    "lines": "a" + SPACES + "\n" + SPACES + "b",
    "many lines": "a" + "\n " * LONG + "b",
    "wide": "好。" + "\u3000" * LONG + "b",
}


def by_python(texts, sentences=True):
    signatures = () if sentences else (TRANSLATE_LINES,)
    return [[list(pair) for pair in split_sentences(text, signatures)] for text in texts]


def by_javascript(texts, sentences=True):
    return call("engine/sentences.js", "splitSentences", [[text, sentences] for text in texts])


both = pytest.mark.parametrize("split", [by_python, pytest.param(by_javascript, marks=needs_node)])


@both
def test_random_texts_are_cut_where_the_rule_says(split):
    rng, wanted = random.Random(8), []
    signs = "ab07,.. !?…\"'”’»)]。！？」』）  \n\n\t\u3000\x1c\x85\ufeff"
    texts = ["".join(rng.choices(signs, k=rng.randrange(16))) for _ in range(20_000)]
    for text in texts:
        text, pairs, start = text.strip(), [], 0
        for end in SLOW.finditer(text):
            before, after = text[: end.start()], text[end.end() : end.end() + 1]
            later = re.search(r"[0-9]\.$", before) and after.islower()  # 1848. március
            if "\n" in end[0] or not (ORDINAL.search(before) or later):
                pairs.append([text[start : end.start()], end[0]])
                start = end.end()
        wanted.append([pair for pair in [*pairs, [text[start:], ""]] if pair[0]])
    assert sum(len(sentences) > 1 for sentences in wanted) > 3000
    assert split(texts) == wanted


ORDINALS = [
    *(
        "Freitag, den 3. Mai 2024",
        "12. Juli 2001",
        "am 12. und 13. Juni",
        "vom 12.05. bis 3.6. neu",
    ),
    *("3. května", "1. Open the door", "am „3.“ Mai", "(3.) Mai"),
    *("am 100. Tag", "Der 125. Geburtstag", "zum 1000. Mal", "»im 365.« Jahr", "unser 200. Spiel"),
    *("1848. március 15.", "2001.  július", "a 150. évben", "1990. gada 5. maijs", "в 1812. году"),
]
ENDS = [
    "Es war 1999. Er ging.",
    "12 Eier. 3 Äpfel.",
    "Für 3,50. Dann",
    "Room 100. Next",
    "I am 100. You are not.",
    "im Jahr 1999. Dann",
    "Adam 100. Next",
    "am 3.\nMai",
]


@both
def test_ordinals_end_no_sentence(split):
    assert [len(parts) for parts in split(ORDINALS + ENDS)] == [1] * len(ORDINALS) + [2] * len(ENDS)


@both
def test_texts_that_are_no_sentences_are_split_at_line_ends_only(split):
    text = "z. Hd. Frau Müller! \n\n am 3. Mai.  Danach"
    lines = [["z. Hd. Frau Müller!", " \n\n "], ["am 3. Mai.  Danach", ""]]
    assert split([text], False) == [lines]


def test_sources_are_sentences_by_their_ends():
    sentences = ["He sleeps.", "Does he?", "“Go!”", "他睡觉。", "A title"]
    dates = ["12. Juli 2001", "Fr. 3.5.", "Mai 2024", "am 12.", "heute. Oder morgen"]
    plain = ["he sleeps", "does he"]  # a corpus without signs
    found = [[are_sentences(x, y) for y in (False, True)] for x in (sentences, dates, plain, [])]
    assert found == [[True, True], [False, False], [True, False], [True, False]]


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
