"""Pairs of short strings are told from sentences."""

import argparse
import datetime
import random

import pytest

from tests.training.data.files import write
from training.presets._arguments import default_output
from training.presets._choose import choose
from training.presets._options import configuration
from training.presets._recognise import CHANGES, recognise, reordered

RNG, NO_SPLITS = random.Random(7), {"dev": None, "test": None}


def word(letters, most=11):
    return "".join(RNG.choice(letters) for _ in range(RNG.randrange(2, most)))


WORDS = [word("abcdefghéç") for _ in range(307)]
SYLLABLES = [word([chr(code) for code in range(0xAC00, 0xD700)], 5) for _ in WORDS]  # of 24 letters
FEW_IDEOGRAPHS = [word([chr(code) for code in range(0x4E00, 0x4F90)], 5) for _ in WORDS]
IDEOGRAPHS = [word([chr(code) for code in range(0x4E00, 0x9000)], 5) for _ in WORDS]
SOUNDS = dict(zip("abcdefghéç", ["a", "b", "t͡ʃ", "d", "ɑ", "f", "g", "h", "e", "ʃ"], strict=True))
PHONES = [" ".join(SOUNDS[letter] for letter in text) for text in WORDS]
OTHER_PHONES = [" ".join([*word("abcdeɑ"), "t͡ʃ"]) for _ in WORDS]
BACKWARDS = [text[::-1] for text in WORDS]
LETTERS = ["target_tokenizer=letters", "metric=characters", "label_smoothing=0.1"]
ADDITIVE = ["attention=additive"]
TRIED = [*ADDITIVE, "other_attention=hard_monotonic"]  # the order does not decide
LOW = ["epochs=100", "batch_size=16", "keep_epoch=best_score", "learning_rate=2e-3"]
DAYS = [datetime.date.fromordinal(RNG.randrange(712_000, 754_000)) for _ in WORDS]
DATES = [d.strftime("%A, the %dth of %B %Y" if n % 7 else "%d.%m.%Y") for n, d in enumerate(DAYS)]
ISO = [day.isoformat() for day in DAYS]
SENTENCES = [" ".join(word("abcdefgh") for _ in range(7)) for _ in WORDS]
CODES = [(RNG.randrange(100, 10**6), RNG.choice("ABCDEF"), RNG.randrange(10, 99)) for _ in WORDS]
DIGITS = ["nought", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
NUMBERS = [str(n) for n in RNG.sample(range(100, 1000), len(WORDS))]
GERMAN = [f"{DIGITS[int(a)]}hundert{DIGITS[int(c)]}und{DIGITS[int(b)]}zig" for a, b, c in NUMBERS]
RIGHT = [" ".join(RNG.choices(WORDS[:41], k=4)) for _ in WORDS]
NOISY = [text.replace(RNG.choice("abcde"), RNG.choice("fgh"), 1) for text in RIGHT]
LABELS = [text[:1] for text in WORDS]
THAI = [chr(0xE01) * len(sentence) for sentence in SENTENCES]  # which has no spaces
TAGS = [" ".join(RNG.choice(["DET", "NOUN", "VERB"]) for _ in range(7)) for _ in WORDS]


def chosen(sources, targets):
    """The preset and the settings of pairs."""
    return choose(recognise(list(zip(sources, targets, strict=True))), len(sources))[1:3]


@pytest.mark.parametrize(
    ("sources", "targets", "found"),
    [
        (WORDS, PHONES, ("g2p-low", [])),
        (WORDS * 7, PHONES * 7, ("g2p-medium", LOW)),
        (WORDS * 10, PHONES * 10, ("g2p-medium", [])),
        (SYLLABLES, OTHER_PHONES, ("g2p-medium", [*LOW, *TRIED])),  # nothing is explained
        (FEW_IDEOGRAPHS, OTHER_PHONES, ("g2p-medium", [*LOW, *TRIED])),
        (WORDS, BACKWARDS, ("g2p-medium", [*LETTERS, *LOW, *ADDITIVE])),
        (WORDS, WORDS, ("g2p-medium", [*LETTERS, *LOW])),
        (DATES, ISO, ("g2p-medium", [*LETTERS, *LOW, *ADDITIVE])),
        (PHONES, WORDS, ("g2p-medium", [*LETTERS, *LOW])),
        (NUMBERS, GERMAN, ("g2p-medium", [*LETTERS, *LOW, *ADDITIVE])),  # crossed within words
        (NOISY, RIGHT, ("g2p-low", [])),  # as many words, but letters tell them
        (WORDS, LABELS, ("g2p-medium", [*LETTERS, *LOW, *TRIED])),
        (WORDS * 66, WORDS * 66, ("g2p-high", [*LETTERS, "epochs=30"])),
        (WORDS * 66, BACKWARDS * 66, ("g2p-high", [*LETTERS, "epochs=30", *ADDITIVE])),
        (SENTENCES, TAGS, (None, ["target_tokenizer=symbols", "metric=symbols"])),
        # Sentences, large alphabets and few pairs
        (WORDS, SENTENCES, (None, [])),
        (IDEOGRAPHS, WORDS, (None, [])),
        (WORDS, IDEOGRAPHS, (None, [])),
        (WORDS[:59], PHONES[:59], (None, [])),
        (DATES, SENTENCES, (None, [])),
        (SENTENCES, THAI, (None, [])),
    ],
)
def test_words_are_short_strings_and_sentences_are_not(sources, targets, found):
    assert chosen(sources, targets) == found


@pytest.mark.parametrize("count", [60, 151])
def test_few_words_with_their_phones_are_a_pronouncer_and_other_few_pairs_are_not(count):
    rare = {f"{text} ɣ{n}" if n % 13 == 0 else text: n for n, text in enumerate(PHONES[:count])}
    phones = list(rare)  # some phones occur in one word
    words = WORDS[: len(phones)]
    pairs = list(zip(words, phones, strict=True))
    assert choose(recognise(pairs), count).preset == "g2p-low"
    assert choose(recognise(pairs), 59).preset is None
    assert choose(recognise(pairs), count, "letters").preset is None
    turned = [" ".join(reversed(text.split())) for text in phones]
    others = (words, turned), (words, BACKWARDS), (words, RIGHT), (NUMBERS, GERMAN)
    others += (SENTENCES, SENTENCES[1:]), (SENTENCES, PHONES), (WORDS, TAGS), (WORDS, LABELS)
    for sources, targets in others:
        pairs = list(zip(sources, targets, strict=False))[:count]
        assert choose(recognise(pairs), count).preset is None, pairs[0]


def test_codes_in_a_template_are_spelled_though_its_words_are_few():
    """As numbers that no pair has are asked for, too."""
    sources = [f"{a}-{b}{c}" for a, b, c in CODES]
    targets = [f"part {c} of kind {b}, from the store of number {a % 50}" for a, b, c in CODES]
    assert chosen(sources, targets) == ("g2p-medium", [*LETTERS, *LOW, *ADDITIVE])
    names = [f"the one with the name {b} is in the list" for _, b, _ in CODES]
    assert chosen(sources, names)[1][0] != LETTERS[0]


AMOUNTS = [f"{n % 10}x{n},{n % 7}" for n in (RNG.randrange(100, 10**4) for _ in WORDS)]
SPOKEN = [(DIGITS[int(a[0])], "".join(DIGITS[int(n)] for n in a[2:-2]), a[-1]) for a in AMOUNTS]


@pytest.mark.parametrize(
    ("sources", "targets", "settings"),
    [
        (AMOUNTS, [f"{a} times {b} and {c} cents" for a, b, c in SPOKEN], LETTERS),
        (AMOUNTS, SENTENCES, []),  # nothing of which is explained
        ([" ".join(word) for word in WORDS], ["-".join(word * 9) for word in WORDS], LETTERS),
    ],
)
def test_long_targets_are_spelled_where_one_side_is_no_sentence(sources, targets, settings):
    assert chosen(sources, targets)[1][:3] == settings


def test_sentences_with_names_and_numbers_stay_sentences():
    """Of whose new words some are the language's own, no copies."""
    rng = random.Random(3)
    rows = [("".join(rng.choices("abcdefg", k=6)), rng.randrange(100)) for _ in range(600)]
    sources = [f"in {n} the man {a} went on to see" for a, n in rows]
    targets = [f"im jahr {n} ging herr {a} weiter zur" for a, n in rows]
    others = [f"{text} {a[::-1]}ung" for text, (a, _) in zip(targets, rows, strict=True)]
    assert chosen(sources, others)[0] is None
    assert chosen(sources, targets)[0] == "g2p-medium"


def test_words_on_both_sides_tell_the_order_though_each_is_new():
    names = [(f"{word('abcdefgh', 7)}lin", RNG.choice(["Ann", "Bob", "Cy"])) for _ in WORDS]
    pairs = [(f"{last}, {first}", f"{first} {last}") for last, first in names]
    assert reordered(pairs, str.split) == (1.0, 2.0)
    assert chosen(*zip(*pairs, strict=True))[1][-1:] == ADDITIVE
    assert reordered([(a, a.replace(",", " -")) for a, _ in pairs], str.split)[0] == 0


def test_words_in_another_form_are_spelled_not_subwords():
    """As identifiers to phrases, and keys that are made of two words of the source."""
    names = [[word("abcdefgh", 6) + "xyz" for _ in range(5)] for _ in WORDS]
    sources = [row[0] + "".join(map(str.title, row[1:])) for row in names]
    assert chosen(sources, [" ".join(row) + "." for row in names])[1][:3] == LETTERS
    sources = [f"{a.title()}, {b}, {c} {d} ({n})" for n, (a, b, c, d, _) in enumerate(names)]
    targets = [f"{row[0]}{row[1]}: {row[2]} {row[3]}, all of this was said" for row in names]
    assert chosen(sources, targets)[1][:3] == LETTERS
    other = [text.replace("xyz", "uvw") for text in targets]
    assert chosen(sources, other)[1][:3] == LETTERS  # they follow their sources
    turned = [" ".join(text.split()[::-1]) for text in other]
    assert chosen(sources, turned) == (None, [])


def test_names_that_come_again_are_copied_too():
    """Each comes some three times, so that few are new in a tenth held out."""
    names = [RNG.sample(WORDS[:193], 2) for _ in WORDS]
    pairs = [(f"who told {a} of {b}", f"asked: a person of whom {a} has {b}") for a, b in names]
    traits = recognise(pairs)
    assert traits.target.new < 0.05
    assert traits.copies
    assert choose(traits, len(pairs)).settings[:3] == LETTERS
    months = ["Mai", "Juni", "Juli", "August", "Lenz", "Herbst", "Ostern", "Advent"]
    days = [(f"{n}-19{n}", f"am {n} im {months[n % 8]} des Jahres 19{n}") for n in range(10, 70)]
    assert recognise(days).copies  # months are as rare, and are no copies
    other = [(a, b.translate(str.maketrans("abcdefgh", "stuvwxyz"))) for a, b in pairs]
    assert not recognise(other).copies


def test_words_of_sources_that_mean_a_letter_each_are_read_whole():
    """As of Morse: no dash tells a letter."""
    signs = [".-", "-...", "-.-.", "-..", ".", "..-.", "--.", "...."]
    texts = [word("abcdefgh") for _ in range(900)]
    coded = [" ".join(signs["abcdefgh".index(letter)] for letter in text) for text in texts]
    for targets, attention in ((texts, []), ([text[::-1] for text in texts], ADDITIVE)):
        settings = choose(recognise([*zip(coded, targets, strict=True)]), 900).settings
        assert settings == [*LETTERS, *LOW, "source_tokenizer=symbols", *attention]


@pytest.mark.parametrize(
    ("targets", "parts", "share"),
    [(PHONES, str.split, 0), (BACKWARDS, list, 1), (map(" ".join, BACKWARDS), str.split, 1)],
)
def test_places_that_are_crossed_are_counted(targets, parts, share):
    found, points = reordered(list(zip(WORDS, targets, strict=True)), parts)
    assert found == share
    assert points > 1


def configured(tmp_path, sources, targets, *settings):
    """The configuration that training chooses for a file of pairs."""
    data = f"tsv:{write(tmp_path / 'words.tsv', zip(sources, targets, strict=True))}"
    return configuration(argparse.Namespace(preset=None, data=data, **NO_SPLITS, settings=settings))


CHARACTERS, SYMBOLS = {"metric": "characters"}, {"metric": "symbols"}


@pytest.mark.parametrize(
    ("targets", "settings", "said", "expected"),
    [
        (PHONES, "", " as strings to symbols;", {"source_tokenizer": "letters"}),
        (BACKWARDS, "epochs=3", "--set keep_epoch=best_score", {**CHARACTERS, "epochs": 3}),
        (PHONES, "target_tokenizer=words", " as strings to words;", SYMBOLS),
        (PHONES, "target_tokenizer=letters", ", letter by letter;", CHARACTERS),
        (WORDS, "target_tokenizer=sentencepiece", " as strings;", {}),
        (SENTENCES, "", " as sentences;", {"target_tokenizer": "sentencepiece"}),
        (SENTENCES, "target_tokenizer=words", " as sentences to words;", {}),
        (SENTENCES, "target_tokenizer=letters", "s, letter by letter;", CHARACTERS),
    ],
)
def test_the_kind_and_the_settings_follow_a_tokenizer_that_is_set(
    tmp_path, capsys, targets, settings, said, expected
):
    """No target is too long to be learned, and no setting is named that is set already."""
    config = configured(tmp_path, WORDS, targets, *settings.split())
    assert config.data == f"tsv:{tmp_path}/words.tsv"
    block = " ".join(capsys.readouterr().out.split())
    assert said in block
    assert not settings or f"--set {settings.partition('=')[0]}=" not in block
    assert {key: getattr(config, key) for key in expected} == expected
    if config.target_tokenizer == "letters":
        assert config.max_target_length >= max(map(len, targets))


@pytest.mark.parametrize(
    ("settings", "count"),
    [(["epochs=8"], 2), (["epochs=5"], 0), ([], 8), (["epochs=8", "average_epochs=5"], 5)],
)
def test_the_mean_of_the_last_epochs_is_of_a_third_at_most(settings, count):
    options = argparse.Namespace(preset="g2p-low", data=None, **NO_SPLITS, settings=settings)
    assert configuration(options).average_epochs == count


@pytest.mark.parametrize(
    "row",
    [
        *("events:a/visits.csv -> visits", "events:visits.csv.gz -> visits", "own.toml -> own"),
        *("tsv:pairs.tsv.zst -> pairs", "tsv:list.txt.gz -> list", "parallel:a.en,a.fr -> a.en"),
        "images:a/lines.v2 -> lines.v2",
    ],
)
def test_a_run_is_called_after_its_data(row):
    data, run = row.split(" -> ")
    assert default_output(argparse.Namespace(preset=None, data=data)).as_posix() == f"runs/{run}"


def test_what_is_nearly_the_same_on_both_sides_is_spelled():
    """As sentences whose digits and letters are to be repaired, each with a number of its own."""
    rng = random.Random(5)
    right = [f"order {rng.randrange(10_000, 10**6)} of {rng.choice(WORDS)} sold" for _ in WORDS]
    wrong = ["".join({"0": "O", "1": "l", "5": "S"}.get(c, c) for c in text) for text in right]
    assert chosen(wrong, right) == ("g2p-medium", [*LETTERS, *LOW])


def test_the_order_of_digits_that_most_pairs_have_is_unknown_and_so_tried():
    rng = random.Random(6)
    sources = ["".join(rng.choices("0123456789", k=rng.randrange(9, 14))) for _ in range(600)]
    targets = [" ".join(DIGITS[int(digit)] for digit in text) for text in sources]
    assert chosen(sources, targets) == ("g2p-medium", [*LOW, *TRIED])


@pytest.mark.parametrize(("skipped", "tried"), [(3, []), (30, ["other_attention=additive"])])
def test_both_attentions_are_tried_where_most_of_a_source_is_skipped(skipped, tried):
    rng = random.Random(8)
    rest = ["".join(rng.choices("nopqrst", k=skipped)) for _ in WORDS]
    sources = [f"{text} {more}" for text, more in zip(WORDS, rest, strict=True)]
    assert chosen(sources, WORDS) == ("g2p-medium", [*LETTERS, *LOW, *tried])


@pytest.mark.parametrize("name", ["get_{}", "get{}", "GET_{}"])
def test_parts_of_names_count_as_copied(name):
    """As in code that is translated; the order of its long lines is not known."""
    parts = [RNG.sample(WORDS, 3) for _ in WORDS]
    sources = [f"{name.format(a.title())} of {b} and {c}" for a, b, c in parts]
    for kind in ("u8", "i64"):  # a word with a digit, which is no number
        targets = [f"fetch{a.title()} : {kind} , {c} , {b} ;" for a, b, c in parts]
        assert recognise(list(zip(sources, targets, strict=True))).copies


def test_pairs_that_come_again_change_no_choice():
    """Each with a run of letters of its own, which would predict the whole of its target."""
    once, again = (recognise(list(zip(WORDS * n, PHONES * n, strict=True))) for n in (1, 8))
    assert once == again


def test_a_label_of_two_words_has_no_order():
    """Both of its words are told by the same word of the source."""
    told = {"xyz": "very high", "uvw": "quite low", "rst": "not known"}
    words = [RNG.choice(list(told)) for _ in WORDS]
    pairs = [(f"the {a} was {b}", told[b]) for a, b in zip(WORDS, words, strict=True)]
    assert recognise(pairs).reordered is None


@pytest.mark.parametrize("tail", [0, 3, 12])
def test_one_change_of_order_counts_however_long_the_rest_is(tail):
    rng = random.Random(8)
    pairs = []
    for text in WORDS:
        a, b, *rest = ("".join(rng.choices("abcdefgh", k=6)) for _ in range(2 + tail))
        kept = " ".join([text, *rest])
        pairs.append((f"{a}, {b}: {kept}", f"{b} {a}: {kept}"))
    traits = recognise(pairs)
    assert traits.reordered > CHANGES
    assert not traits.follows


@pytest.mark.parametrize(("turned", "doubtful"), [(0, False), (10, True), (100, False)])
def test_the_order_is_doubtful_where_few_pairs_change_it(turned, doubtful):
    rng, pairs = random.Random(9), []
    for number in range(600):
        a, b = ("".join(rng.choices("abcdefgh", k=7)) for _ in "ab")
        pairs.append((f"{a} {b}", f"{b} {a}" if number % 100 < turned else f"{a} {b}"))
    traits = recognise(pairs)
    assert traits.reordered == pytest.approx(turned / 100, abs=0.01)
    assert traits.doubtful == doubtful
    assert traits.follows == (turned == 0)


def test_many_words_that_come_again_are_symbols_in_their_order():
    """Also of sources longer than 60 letters."""
    rng = random.Random(10)
    words = list({"".join(rng.choices("abcdefgh", k=rng.randrange(4, 9))) for _ in range(400)})
    said = [rng.choices(words, k=9) for _ in range(1500)]
    right = [" ".join(text) for text in said]
    wrong = [text.replace("ab", "ba").replace("cd", "dc", 1) for text in right]
    traits = recognise(list(zip(wrong, right, strict=True)))
    assert traits.target.vocabulary > 250
    assert traits.source.letters > 60
    chosen = choose(traits, len(right))
    assert chosen.preset == "g2p-medium"
    assert "target_tokenizer=letters" not in chosen.settings
    turned = [" ".join(text[::-1]) for text in said]
    assert choose(recognise(list(zip(wrong, turned, strict=True))), 1500).preset is None


def test_the_row_of_a_side_has_nearly_all_lengths_and_the_longest():
    """Also if the longest is none of the pairs that are measured."""
    rng, places = random.Random(10), {3, 19_999}
    words = ["".join(rng.choices("abcdefgh", k=k % 12 + 3)) for k in range(20_000)]
    long = [f"{word:e<22}" if n in places else word for n, word in enumerate(words)]
    lengths = "95% have up to 14 letters, the longest 22 ("
    for sources, wanted in ((long, lengths), (words, "up to 14")):
        traits = recognise([(word, " ".join(word)) for word in sources])
        assert str(traits.source).startswith(wanted)
