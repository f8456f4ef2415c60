"""The grammar of the built-in corpus: French, English and Chinese as they are written."""

import re
from collections import defaultdict
from functools import cache
from itertools import pairwise

import pytest

from tests.training.phrasebook_sample import sample
from training.phrasebook import SPLITS
from training.phrasebook.adjectives import adjectives
from training.phrasebook.french import noun_phrase
from training.phrasebook.french_verbs import conjugate
from training.phrasebook.nouns import nouns
from training.phrasebook.sentences import NounPhrase, frequencies, times

# French


def test_some_and_any_become_indefinite_articles():
    articles = {"de", "d'", "des", "du", "la", "l'"}
    for p in sample("en-fr", "train"):
        for i, j in p.links:
            if p.source_words[i] in ("some", "any"):
                assert p.target_words[j] in articles, p
                if p.target_words[j] in ("la", "l'"):
                    assert p.target_words[j - 1] == "de", p


@cache
def french_texts():
    return [p.target for split in SPLITS for p in sample("en-fr", split)]


@pytest.mark.parametrize(
    "wrong",
    [
        r"\b(le|la|je|me|ne|de|que|jusque) [aàâeéèêiîoôuœh]",  # no h of the corpus is aspirated
        r"\b(ce|ma|sa|beau|nouveau) [aàâeéèêiîoôuœh](?!t )",
        r"\b(le|un|ce) vieux [aàâeéèêiîoôuœh]",
        r"\b(de|à) les?\b(?! [a-zé]+(r|ra|rai|rons|ront)\b)",
        r"(?i)\b(l|n|j|d|m|qu)'(?![aàâeéèêiîoôuœhy])",
        r"\b(des|ces|mes|ses|nos|leurs|deux|trois|quatre|cinq|sept|huit|neuf) \w+[^sxz ]\b",
        r"\b(achète|achètent|voit|mange|lu|acheté) pas (du|des|un|une)\b",
        r"\b(elle|Elle) (est|n'est pas) (allé|arrivé|resté|entré|retourné)\b",
        r"\b(ils|Ils) (sont|ne sont pas) (allé|arrivé|resté|entré|retourné)\b",
        r"\bdes (beaux|belles|petits|petites|grands|grandes|vieux|vieilles|bons|bonnes|jeunes)\b",
        r"  | [.,]|[^ ]\?|[^.?]$",
    ],
)
def test_french_has_no_such_spelling(wrong):
    assert [text for text in french_texts() if re.search(wrong, text)][:5] == []


def test_french_nouns_keep_their_gender():
    determiners = defaultdict(set)
    for p in sample("en-fr", "train"):
        for word, following in pairwise(p.target_words):
            if word.lower() in ("un", "le", "du", "au"):
                determiners[following].add("m")
            elif word.lower() in ("une", "la", "cette"):
                determiners[following].add("f")
    either = {word for word, genders in determiners.items() if genders == {"m", "f"}}
    # Adjectives of one form, verbs after "le" and "la", and time phrases.
    nouns_of_both = either & {noun.french for noun in nouns().values()}
    assert nouns_of_both == set()
    assert len(determiners) > 150


@pytest.mark.parametrize(
    ("infinitive", "present", "future", "participle"),
    [
        ("manger", "mange mange mangeons mangent", "mangerai mangera mangerons mangeront", "mangé"),
        ("lancer", "lance lance lançons lancent", "lancerai lancera lancerons lanceront", "lancé"),
        (
            "acheter",
            "achète achète achetons achètent",
            "achèterai achètera achèterons achèteront",
            "acheté",
        ),
        (
            "préférer",
            "préfère préfère préférons préfèrent",
            "préférerai préférera préférerons préféreront",
            "préféré",
        ),
        (
            "nettoyer",
            "nettoie nettoie nettoyons nettoient",
            "nettoierai nettoiera nettoierons nettoieront",
            "nettoyé",
        ),
        (
            "choisir",
            "choisis choisit choisissons choisissent",
            "choisirai choisira choisirons choisiront",
            "choisi",
        ),
        ("voir", "vois voit voyons voient", "verrai verra verrons verront", "vu"),
        ("boire", "bois boit buvons boivent", "boirai boira boirons boiront", "bu"),
        (
            "prendre",
            "prends prend prenons prennent",
            "prendrai prendra prendrons prendront",
            "pris",
        ),
    ],
)
def test_french_conjugation(infinitive, present, future, participle):
    verb = conjugate(infinitive)
    assert verb.present == tuple(present.split())
    assert verb.future == tuple(future.split())
    assert verb.past_participle == participle


@pytest.mark.parametrize(
    ("determiner", "adjective", "noun", "plural", "expected"),
    [
        ("a", "beautiful", "tree", False, "un bel arbre"),
        ("a", "beautiful", "tree", True, "de beaux arbres"),
        ("the", "old", "tree", False, "le vieil arbre"),
        ("this", "new", "hotel", False, "ce nouvel hôtel"),
        ("this", None, "hotel", False, "cet hôtel"),
        ("my", None, "school", False, "mon école"),
        ("my", "old", "school", False, "ma vieille école"),
        ("this", "white", "horse", True, "ces chevaux blancs"),
        ("the", None, "newspaper", True, "les journaux"),
        ("some", None, "water", False, "de la eau"),  # elided with the sentence
        ("some", "good", "wine", False, "du bon vin"),
        ("", "special", "gift", True, "des cadeaux spéciaux"),
    ],
)
def test_french_noun_phrases(determiner, adjective, noun, plural, expected):
    chosen = adjectives()[adjective] if adjective else None
    phrase = NounPhrase(nouns()[noun], determiner or "some", plural, chosen)
    assert " ".join(word for word, _ in noun_phrase(phrase, "DAS")) == expected


# English and Chinese


def test_english_forms():
    text = " ".join(p.source for p in sample("en-fr", "train"))
    for word in (
        "an orange",
        "a useful",
        "mice",
        "geese",
        "knives",
        "watches",
        "studies",
        "bought",
    ):
        assert word in text
    for wrong in (r"\ba [aeio]", r"\ban [^aeiouI]", r"\b(mouses|gooses|childs|buyed|eated)\b"):
        assert re.findall(wrong, text) == []


def test_chinese_is_written_without_spaces_and_with_its_own_marks():
    for split in SPLITS:
        for p in sample("en-zh", split):
            assert re.fullmatch(r"[一-鿿]+[。？]", p.target), p.target
            assert (p.target[-1] == "？") == (p.source[-1] == "?")
            asks = p.source.split()[0] in ("What", "Where", "Who")
            assert p.target.endswith("吗？") == (p.source[-1] == "?" and not asks)


def test_chinese_measure_words_belong_to_their_nouns():
    wrong = {"只": "书", "本": "猫", "个": "汽车", "辆": "苹果", "条": "狗", "件": "裙子"}
    for p in sample("en-zh", "train"):
        for measure, noun in wrong.items():
            assert not re.search(f"[一两三四五六七八九十这]{measure}{noun}", p.target)
    text = "".join(p.target for p in sample("en-zh", "train"))
    assert all(word in text for word in ("一本书", "一辆汽车", "一个苹果", "一件衬衫"))


def test_time_and_frequency_stand_before_the_chinese_verb():
    adverbs = {word for a in (*times().values(), *frequencies().values()) for word, _ in a.chinese}
    for p in sample("en-zh", "test"):
        places = [i for i, word in enumerate(p.target_words) if word in adverbs]
        assert max(places, default=0) <= 4
