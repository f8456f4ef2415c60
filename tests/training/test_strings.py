"""Pairs of short strings are told from sentences."""

import argparse
import datetime
import random

import pytest

from training.presets.options import configuration, default_output, survey

RNG = random.Random(7)


def word(letters, most=11):
    return "".join(RNG.choice(letters) for _ in range(RNG.randrange(2, most)))


WORDS = [word("abcdefghéç") for _ in range(307)]
SYLLABLES = [word([chr(code) for code in range(0xAC00, 0xD700)], 5) for _ in WORDS]  # of 24 letters
FEW_IDEOGRAPHS = [word([chr(code) for code in range(0x4E00, 0x4F90)], 5) for _ in WORDS]
IDEOGRAPHS = [word([chr(code) for code in range(0x4E00, 0x9000)], 5) for _ in WORDS]
PHONES = [" ".join([*word("abcdeɑ"), "t͡ʃ"]) for _ in WORDS]
LETTERS = ["target_tokenizer=letters", "metric=characters"]
LETTERS += ["attention=additive", "label_smoothing=0.1"]
DAYS = [datetime.date.fromordinal(RNG.randrange(712_000, 754_000)) for _ in WORDS]
DATES = [
    day.strftime("%A, the %dth of %B %Y" if n % 7 else "%d.%m.%Y") for n, day in enumerate(DAYS)
]
ISO = [day.isoformat() for day in DAYS]
LOW_LETTERS = ("g2p-medium", [*LETTERS, "epochs=150", "keep_by=score"])
SENTENCES = [" ".join(word("abcdefgh") for _ in range(7)) for _ in WORDS]


@pytest.mark.parametrize(
    ("sources", "targets", "found"),
    [
        (WORDS, PHONES, ("g2p-low", [])),
        (SYLLABLES, PHONES, ("g2p-low", [])),
        (FEW_IDEOGRAPHS, PHONES, ("g2p-low", [])),
        (WORDS, WORDS, LOW_LETTERS),
        (DATES, ISO, LOW_LETTERS),
        (PHONES, WORDS, LOW_LETTERS),
        (WORDS * 66, WORDS * 66, ("g2p-high", [*LETTERS, "epochs=30"])),
    ],
)
def test_words_are_short_strings(sources, targets, found):
    assert survey(zip(sources, targets, strict=True))[:2] == (len(sources), found)


@pytest.mark.parametrize("times", [1, 10, 66])
def test_letters_that_change_places_are_not_learned_in_order(tmp_path, times):
    file = tmp_path / "words.tsv"
    file.write_text("".join(f"{word}\t{word[::-1]}\n" for word in WORDS * times))
    options = argparse.Namespace(preset=None, data=f"tsv:{file}", dev=None, test=None, settings=[])
    assert configuration(options).attention == "additive"


@pytest.mark.parametrize(
    ("sources", "targets"),
    [
        (SENTENCES, PHONES),
        (WORDS, SENTENCES),
        (IDEOGRAPHS, PHONES),
        (WORDS, IDEOGRAPHS),
        (WORDS[:199], PHONES[:199]),
        (DATES, SENTENCES),
        (SENTENCES, [chr(0xE01) * len(sentence) for sentence in SENTENCES]),  # Thai has no spaces
    ],
)
def test_sentences_large_alphabets_and_few_pairs_are_not(sources, targets):
    assert survey(zip(sources, targets, strict=True)) == (len(sources), None, False)


def test_short_targets_of_long_sources_are_named(tmp_path, capsys):
    long = [f"{sentence} {sentence}" for sentence in SENTENCES]
    assert survey(zip(long, WORDS, strict=True)) == (len(long), None, True)
    file = tmp_path / "words.tsv"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in zip(long, WORDS, strict=True)))
    options = argparse.Namespace(preset=None, data=f"tsv:{file}", dev=None, test=None, settings=[])
    assert configuration(options).target_tokenizer == "sentencepiece"
    assert "--set target_tokenizer=letters would spell them" in capsys.readouterr().out


def test_a_file_of_words_is_found_by_training(tmp_path, capsys):
    file = tmp_path / "words.tsv"
    file.write_text("".join(f"{a}\t{b}\n" for a, b in zip(SYLLABLES, PHONES, strict=True)))
    options = argparse.Namespace(
        preset=None, data=f"tsv:{file}", dev=None, test=None, settings=["epochs=3"]
    )
    config = configuration(options)
    assert (config.source_tokenizer, config.target_tokenizer) == ("letters", "symbols")
    assert (config.data, config.epochs, config.metric) == (f"tsv:{file}", 3, "symbols")
    assert "307 pairs of short strings, so with the settings of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "run"),
    [
        ("events:a/visits.csv", "visits"),
        ("events:visits.csv.gz", "visits"),
        ("tsv:pairs.tsv.zst", "pairs"),
        ("tsv:list.txt.gz", "list"),
        ("parallel:a.en,a.fr", "a.en"),
        ("images:a/lines.v2", "lines.v2"),
        ("own.toml", "own"),
    ],
)
def test_a_run_is_called_after_its_data(data, run):
    assert default_output(argparse.Namespace(preset=None, data=data)).as_posix() == f"runs/{run}"
