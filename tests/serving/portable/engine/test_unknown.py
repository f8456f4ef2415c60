"""Unknown words as they were typed, in the page's script, for models of words and of letters."""

import random
import unicodedata

from tests.serving.javascript import call, needs_node

pytestmark = needs_node
MARKS = ".,!?'’-…。"
LETTERS = "abé3ñ★給の😀한" + MARKS


def typed(given):
    return call("static/unknown.js", "typed", given)


def drawn_words(rng):
    """Words of which no other begins with one, and marks, with single spaces or none between."""
    words = [
        f"{rng.choice('aéñ給')}{rng.randrange(10**6, 10**7)}" for _ in range(rng.randrange(1, 9))
    ]
    return [word if rng.random() < 0.8 else rng.choice(MARKS) for word in words]


def test_unknown_words_are_what_stands_between_the_known_ones():
    rng, given, wanted = random.Random(3), [], []
    for _ in range(2000):
        words = drawn_words(rng)
        hidden = list(words)
        for n, word in enumerate(words):
            alone = n == 0 or hidden[n - 1] == words[n - 1]
            if rng.random() < 0.3 and alone and word not in MARKS:
                hidden[n] = rng.choice(["<unk>", "⁇"])
        given.append([hidden, " ".join(words)])
        wanted.append(words)
    found = typed(given)
    clear = [n for n, words in enumerate(wanted) if not set(words) & set(MARKS)]
    assert len(clear) > 100
    assert [found[n] for n in clear] == [wanted[n] for n in clear]
    assert [len(words) for words in found] == [len(words) for words in wanted]


def test_words_are_shown_as_they_were_typed():
    cases = [
        ("She eats a zorblax.", "She|eats|a|<unk>|.", "She|eats|a|zorblax|."),
        ("Foo bar: a Zan a", "<unk>|<unk>|:|a|<unk>", "Foo|bar|:|a|Zan a"),
        ("naïve 𝔘, ok", "<unk>|<unk>|,|ok", "naïve|𝔘|,|ok"),
        ("abzz,", "ab<unk>|,", "abzz|,"),
        ("x", "<unk>|<unk>", "x|<unk>"),
        ("She is", "she|<unk>", "she|<unk>"),  # a tokenizer that writes small letters
    ]
    found = typed([[words.split("|"), text] for text, words, _ in cases])
    assert ["|".join(words) for words in found] == [shown for *_, shown in cases]


def test_letters_and_spaces_are_those_of_the_text():
    rng, given, wanted = random.Random(5), [], []
    for _ in range(2000):
        text = "".join(rng.choice(LETTERS + "    \u00a0") for _ in range(rng.randrange(1, 25)))
        letters = [*unicodedata.normalize(rng.choice(["NFC", "NFD"]), text)]
        wanted.append([letter.strip() for letter in letters])
        words = ["<unk>" if rng.random() < 0.2 else letter for letter in wanted[-1]]
        given.append([words, text])
    assert typed(given) == wanted


def test_every_list_of_words_is_answered():
    """Whatever a model's words are: empty ones, marks, those that the text has not."""
    rng = random.Random(7)
    draw = ["", " ", "<unk>", "⁇", *LETTERS, "ab", "12", "March"]
    given = [
        [
            [rng.choice(draw) for _ in range(rng.randrange(12))],
            "".join(rng.choice([*draw, "12 March 2024"]) for _ in range(rng.randrange(9))),
        ]
        for _ in range(5000)
    ]
    date = ["1", "2", "", "M", "a", "r", "c", "h", "", "2", "0", "2", "4"]
    given += [[date, "12 March 2024"], [[*date[:-1], "<unk>"], "12 March 2024"]]
    found = typed(given)
    for (words, _), answer in zip(given[:-2], found, strict=False):
        assert len(answer) == len(words)
        known = [n for n, word in enumerate(words) if "<unk>" not in word and "⁇" not in word]
        assert [answer[n] for n in known] == [words[n] for n in known]
    assert found[-2:] == [date, date]
