"""Words as the page's scripts show them: pieces are joined, unknown ones are as they were typed."""

import itertools
import random
import unicodedata

import numpy as np

from tests.serving.javascript import call, needs_node

pytestmark = needs_node
JOINED = [
    (["▁She", "▁is", "▁eat", "ing", "▁app", "les", "."], "She|is|eating|apples|."),
    (["▁", "Z", "oé", "▁l", "'", "aime"], "Zoé|l|'|aime"),
    (["▁她", "正在", "吃", "。"], "她|正在|吃|。"),
    (["▁한국", "어"], "한국어"),
    (["▁مر", "حبا"], "مرحبا"),
    (["K", "AE", "T"], "K|AE|T"),  # phones: no piece is marked
    (["▁", "▁a"], "a"),
    (["▁The", "<unk>", "▁and", "<unk>", "s"], "The|<unk>|and|<unk>|s"),
    ([], ""),
]


def test_pieces_are_joined_to_words():
    given = [{"source": tokens, "target": [], "weights": []} for tokens, _ in JOINED]
    joined = call("static/pieces.js", "join", [[each] for each in given])
    groups = call("static/pieces.js", "groups", [[tokens] for tokens, _ in JOINED])
    for (tokens, words), answer, group in zip(JOINED, joined, groups, strict=True):
        assert "|".join(answer["source"]) == words
        assert list(itertools.chain(*group)) == list(range(len(tokens)))


def test_weights_are_summed_over_what_is_looked_at_and_averaged_over_who_looks():
    weights = np.random.default_rng(3).dirichlet(np.ones(5), size=3)
    given = {"source": ["▁ab", "c", "▁d", "ef", "."], "target": ["▁x", "y", "▁z"]}
    (answer,) = call("static/pieces.js", "join", [[{**given, "weights": weights.tolist()}]])
    assert (answer["source"], answer["target"]) == (["abc", "def", "."], ["xy", "z"])
    columns = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]])
    rows = np.array([[0.5, 0.5, 0], [0, 0, 1]])
    np.testing.assert_allclose(answer["weights"], rows @ weights @ columns.T, atol=1e-12)


MARKS = ".,!?'’-…。"
LETTERS = "abé3ñ★給の😀한" + MARKS
TYPED = [
    ("She eats a zorblax.", "She|eats|a|<unk>|.", "She|eats|a|zorblax|."),
    ("Foo bar: a Zan a", "<unk>|<unk>|:|a|<unk>", "Foo|bar|:|a|Zan a"),
    ("naïve 𝔘, ok", "<unk>|<unk>|,|ok", "naïve|𝔘|,|ok"),
    ("abzz,", "ab<unk>|,", "abzz|,"),
    ("x", "<unk>|<unk>", "x|<unk>"),
    ("She is", "she|<unk>", "she|<unk>"),  # a tokenizer that writes small letters
    ("12 March 2024", "1|2||M|a|r|c|h||2|0|2|4", "1|2||M|a|r|c|h||2|0|2|4"),
    ("12 March 2024", "1|2||M|a|r|c|h||2|0|2|<unk>", "1|2||M|a|r|c|h||2|0|2|4"),
]


def sentence(rng):
    """Words of which no other begins with one, and marks, with single spaces between; some hidden.

    Of two words side by side one is hidden at most.
    """
    count = rng.randrange(1, 9)
    words = [f"{rng.choice('aéñ給')}{rng.randrange(10**6, 10**7)}" for _ in range(count)]
    words = [word if rng.random() < 0.8 else rng.choice(MARKS) for word in words]
    hidden = list(words)
    for n, word in enumerate(words):
        alone = n == 0 or hidden[n - 1] == words[n - 1]
        if rng.random() < 0.3 and alone and word not in MARKS:
            hidden[n] = rng.choice(["<unk>", "⁇"])
    return hidden, " ".join(words), words if not set(words) & set(MARKS) else None


def letters(rng):
    text = "".join(rng.choice(LETTERS + "    \u00a0") for _ in range(rng.randrange(1, 25)))
    each = [x.strip() for x in unicodedata.normalize(rng.choice(["NFC", "NFD"]), text)]
    return ["<unk>" if rng.random() < 0.2 else letter for letter in each], text, each


def anything(rng):
    """Whatever a model's words are: empty ones, marks, those that the text has not."""
    draw = ["", " ", "<unk>", "⁇", *LETTERS, "ab", "12", "March"]
    words = [rng.choice(draw) for _ in range(rng.randrange(12))]
    text = "".join(rng.choice([*draw, "12 March 2024"]) for _ in range(rng.randrange(9)))
    return words, text, None


def test_unknown_words_are_shown_as_they_were_typed():
    rng = random.Random(3)
    cases = [(words.split("|"), text, shown.split("|")) for text, words, shown in TYPED]
    cases += [draw(rng) for draw in (sentence, letters, anything) for _ in range(2000)]
    found = call("static/unknown.js", "typed", [case[:2] for case in cases])
    for (words, text, shown), answer in zip(cases, found, strict=True):
        assert answer == (shown or answer), text
        assert len(answer) == len(words)
        known = [n for n, word in enumerate(words) if "<unk>" not in word and "⁇" not in word]
        assert [answer[n] for n in known] == [words[n] for n in known]
    assert sum(shown is not None for *_, shown in cases[:2000]) > 100
