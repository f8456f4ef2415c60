"""The built-in corpus: what it says, how it is split, and how it is linked."""

import hashlib
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import pairwise, product
from typing import get_args

import pytest

from tests.training.phrasebook_sample import sample
from training.command.errors import UserError
from training.phrasebook import PAIRS, SPLITS, __main__, families, generate, split_size
from training.phrasebook.adjectives import adjectives, states
from training.phrasebook.english import participle, third_person
from training.phrasebook.nouns import nouns
from training.phrasebook.pairs import realise
from training.phrasebook.verbs import Kind
from training.phrasebook.verbs import verbs as read_verbs

SHOWN = {
    "She is eating a green apple.": ("Elle mange une pomme verte.", "她正在吃一个绿色的苹果。"),
    "He doesn't like apples.": ("Il n'aime pas les pommes.", "他不喜欢苹果。"),
}


def verbs():
    return [verb for kind in get_args(Kind) for verb in read_verbs(kind)]


@cache
def apples(split):
    """Every sentence of a split that pairs an apple with a verb or adjective, by its English."""
    chosen = [f for f in families(split) if any(noun == "apple" for _, noun in f.pairings)]
    sentences = [f.build(*choice) for f in chosen for choice in product(*f.options)]
    return {realise(sentence, "en-fr").source: sentence for sentence in sentences}


def find(pair, source):
    return realise(apples("test")[source], pair)


# Size


def test_each_language_has_three_hundred_content_lemmas():
    described = [*adjectives().values(), *states().values()]
    english = {x.english for x in (*nouns().values(), *described)} | {v.lemma for v in verbs()}
    french = {x.french for x in nouns().values()} | {x.french[0] for x in described}
    french |= {verb.infinitive for verb in verbs()}
    chinese = {x.chinese for x in (*nouns().values(), *described, *verbs())}
    assert min(len(english), len(french), len(chinese)) >= 300


def test_splits_hold_more_than_200_000_pairs():
    assert sum(split_size(split) for split in SPLITS) >= 200_000
    assert split_size("train") > split_size("test") > 10_000


def test_a_whole_split_is_distinct_and_as_large_as_announced():
    dev = generate("en-fr", "dev")
    assert len(dev) == split_size("dev")
    assert len({p.source for p in dev}) == len(dev)
    kinds = Counter(p.source.split()[0] for p in dev[:1000])
    assert max(kinds.values()) < 500  # shuffled, not kind by kind


@pytest.mark.parametrize("pair", PAIRS)
def test_a_source_has_one_target_and_comes_once(pair):
    drawn = [p for split in SPLITS for p in sample(pair, split)]
    assert len({p.source for p in drawn}) == len(drawn)


# The split by combination


@pytest.mark.parametrize(("source", "targets"), SHOWN.items())
def test_shown_sentences_are_in_the_test_split_alone(source, targets):
    for pair, target in zip(PAIRS, targets, strict=True):
        assert find(pair, source).target == target
    for split in ("train", "dev"):
        assert len(apples(split)) > 100
        assert source not in apples(split)
        assert source not in {p.source for p in sample("en-fr", split)}


def test_no_pairing_occurs_in_two_splits():
    pairings = {
        split: {pairing for family in families(split) for pairing in family.pairings}
        for split in SPLITS
    }
    held_out = {
        split: {
            pairing
            for family in families(split)
            for pairing in family.pairings
            if pairing not in pairings["train"]
        }
        for split in ("dev", "test")
    }
    assert len(held_out["test"]) > 100
    assert not held_out["test"] & pairings["dev"]
    assert not held_out["dev"] & pairings["test"]
    for split in ("dev", "test"):
        for family in families(split):
            assert held_out[split] & set(family.pairings)


@cache
def lemmas():
    """Verb forms and noun forms, each with its lemma."""
    verb_forms, noun_forms = {}, {}
    for verb in verbs():
        base = verb.english
        for form in (base, third_person(base), participle(base), verb.english_past):
            verb_forms[form] = base
    for noun in nouns().values():
        noun_forms[noun.english] = noun_forms[noun.english_plural] = noun.english
    return verb_forms, noun_forms | {word: word for word in ("me", "him", "us", "them")}


def pairings_in(text_words):
    """Adjectives with their nouns and verbs with what follows, read from the words alone."""
    verb_forms, noun_forms = lemmas()
    described = {*adjectives(), *states()}
    words = [word.lower() if i == 0 else word for i, word in enumerate(text_words)]
    found = {
        (word, noun_forms[following])
        for word, following in pairwise(words)
        if word in described and following in noun_forms
    }
    subject = next((noun_forms[word] for word in words if word in noun_forms), None)
    if words[-2] in described and subject:
        found.add((words[-2], subject))
    for i, word in enumerate(words):
        if word in verb_forms and not (word.startswith("want") and words[i + 1] == "to"):
            following = [
                noun_forms[word]
                for word, after in pairwise(words[i + 1 :])
                if word in noun_forms and not (word in described and after in noun_forms)
            ]
            return found | ({(verb_forms[word], following[0])} if following else set())
    return found


def test_each_test_sentence_has_a_pairing_that_train_never_shows():
    in_train = set()
    for p in sample("en-fr", "train"):
        in_train |= pairings_in(p.source_words)
    assert {("green", "pear"), ("buy", "apple")} <= in_train
    assert not {("green", "apple"), ("eat", "apple"), ("like", "apple")} & in_train
    for p in sample("en-fr", "test"):
        if not {"watch", "watches"} & set(p.source_words):  # a noun or a verb
            assert not pairings_in(p.source_words) <= in_train, p.source


@pytest.mark.parametrize("pair", PAIRS)
def test_every_word_of_the_test_split_is_common_in_train(pair):
    train = Counter()
    for p in sample(pair, "train"):
        train.update(p.source_words)
        train.update(p.target_words)
    test = {word for p in sample(pair, "test") for word in (*p.source_words, *p.target_words)}
    rare = {word: train[word] for word in test if train[word] < 3}
    assert len(rare) < len(test) / 200, rare
    assert 0 not in rare.values()


# Words and links


@pytest.mark.parametrize("pair", PAIRS)
def test_words_occur_in_order_in_the_text(pair):
    for p in sample(pair, "test"):
        for text, words in ((p.source, p.source_words), (p.target, p.target_words)):
            start = 0
            for word in words:
                gap, found, _ = text[start:].partition(word)
                assert found
                assert gap in ("", " ")
                start += len(gap) + len(word)
            assert start == len(text)


@pytest.mark.parametrize("pair", PAIRS)
def test_links_cover_both_sides(pair):
    unlinked = Counter()
    for p in sample(pair, "test"):
        sources, targets = {i for i, _ in p.links}, {j for _, j in p.links}
        assert targets == set(range(len(p.target_words))), p
        assert sources <= set(range(len(p.source_words)))
        unlinked.update(p.source_words[i].lower() for i in {*range(len(p.source_words))} - sources)
    # Chinese has no articles, and no "be" with "very".
    assert set(unlinked) <= (set() if pair == "en-fr" else {"a", "an", "the", "any", "is", "are"})


def linked_words(p):
    return {(p.source_words[i], p.target_words[j]) for i, j in p.links}


def test_links_of_the_shown_sentences():
    eating, liking = (find("en-fr", source) for source in SHOWN)
    assert linked_words(eating) == {
        ("She", "Elle"),
        ("is", "mange"),
        ("eating", "mange"),
        ("a", "une"),
        ("green", "verte"),
        ("apple", "pomme"),
        (".", "."),
    }
    assert linked_words(liking) == {
        ("He", "Il"),
        ("doesn't", "n'"),
        ("doesn't", "pas"),
        ("like", "aime"),
        ("apples", "les"),
        ("apples", "pommes"),
        (".", "."),
    }
    assert linked_words(find("en-zh", "She is eating a green apple.")) == {
        ("She", "她"),
        ("is", "正在"),
        ("eating", "吃"),
        ("a", "一"),
        ("a", "个"),
        ("green", "绿色"),
        ("green", "的"),
        ("apple", "苹果"),
        (".", "。"),
    }


def possible_words(p):
    return {(p.source_words[i], p.target_words[j]) for i, j in p.links - p.sure}


def test_links_of_helping_words_are_possible_ones():
    assert possible_words(find("en-fr", "She is eating a green apple.")) == {("is", "mange")}
    assert possible_words(find("en-fr", "He doesn't like apples.")) == {
        ("doesn't", "n'"),
        ("apples", "les"),
    }
    assert possible_words(find("en-zh", "She is eating a green apple.")) == {
        ("is", "正在"),
        ("a", "个"),
        ("green", "的"),
    }


@pytest.mark.parametrize("pair", PAIRS)
def test_no_word_has_a_sure_link_through_a_helping_word(pair):
    helping = {
        "en-fr": {"ne", "n'", "Est-ce", "y"},
        "en-zh": {"的", "了", "着", "吗", "正在", "很"},
    }[pair]
    for p in sample(pair, "test"):
        assert p.sure <= p.links
        assert {i for i, _ in p.sure}, p
        for i, j in p.sure:
            assert p.target_words[j] not in helping, p
            assert p.source_words[i] not in {"will", "did", "Did", "Will"}, p


@pytest.mark.parametrize("pair", PAIRS)
def test_content_words_have_sure_links(pair):
    nouns_and_verbs = set().union(*lemmas())
    for p in sample(pair, "test")[:2000]:
        linked = {i for i, _ in p.sure}
        for i, word in enumerate(p.source_words):
            if word in nouns_and_verbs - {"do", "does", "did"}:
                assert i in linked, (p, word)


# Drawing


def digest(pairs):
    rows = "\n".join(f"{p.source}\t{p.target}\t{sorted(p.links)}" for p in pairs)
    return hashlib.sha256(rows.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("pair", "expected"), [("en-fr", "50dc96b50ed2702e"), ("en-zh", "4a5b9fc8dc7c0688")]
)
def test_a_seed_draws_the_same_pairs_everywhere(pair, expected):
    assert digest(generate(pair, "test", 100, seed=7)) == expected


def test_another_seed_draws_other_pairs():
    first, second = ({p.source for p in generate("en-fr", "test", 500, seed)} for seed in (1, 2))
    assert len(first & second) < 100


def test_both_languages_draw_the_same_english():
    french, chinese = (generate(pair, "train", 50, seed=3) for pair in PAIRS)
    assert [p.source for p in french] == [p.source for p in chinese]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("en-de", "test", 1), "en-fr, en-zh"),
        (("en-fr", "valid", 1), "train, dev, test"),
        (("en-fr", "dev", 10**9), "1000000000"),
        (("en-fr", "dev", -1), "-1"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message) as error:
        generate(*arguments)
    assert "\n" not in str(error.value)


# The command


def test_command_prints_tab_separated_pairs(capsys):
    arguments = ["--pair", "en-fr", "--split", "test", "--count", "20", "--seed", "7"]
    __main__.main(arguments)
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    expected = generate("en-fr", "test", 20, seed=7)
    assert [row[:2] for row in rows] == [[p.source, p.target] for p in expected]
    for row, p in zip(rows, expected, strict=True):
        links = {tuple(map(int, link.split("-"))) for link in row[2].split()}
        assert links == p.links
        sure = {tuple(map(int, link.split("-"))) for link in row[3].split()}
        assert sure == p.sure


def test_command_adds_the_words(capsys):
    __main__.main(["--pair", "en-zh", "--count", "3", "--words"])
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    for row, p in zip(rows, generate("en-zh", "test", 3), strict=True):
        assert row[4:] == [" ".join(p.source_words), " ".join(p.target_words)]


@pytest.mark.parametrize(
    "arguments",
    [["--pair", "en-de"], ["--split", "valid"], ["--count", "-3"], ["--count", "999999999"]],
)
def test_command_refuses_bad_arguments_in_one_line(arguments, capsys):
    with pytest.raises((UserError, SystemExit)) as error:
        __main__.main(arguments)
    said = capsys.readouterr()
    assert said.out == ""
    if isinstance(error.value, SystemExit):
        assert error.value.code == 2
        assert said.err.startswith("error: ")
        assert said.err.count("\n") == 1
    else:
        assert "\n" not in str(error.value)


def test_command_ends_quietly_when_its_reader_goes():
    command = [sys.executable, "-m", "training.phrasebook", "--count", "5000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1  # as every command
