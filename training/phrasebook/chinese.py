"""Sentences in simplified Chinese, in the words of the grammar.

"The" has no word; 了 marks the past, 正在 what goes on, 会 the future, 吗 a question.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from training.phrasebook.adjectives import Adjective
from training.phrasebook.nouns import Noun
from training.phrasebook.sentences import (
    WHO,
    Clause,
    Existence,
    Identity,
    Location,
    Name,
    NounPhrase,
    Place,
    Predication,
    Pronoun,
    Sentence,
    Subject,
    Word,
)
from training.phrasebook.tables import rows


def _determiners(kind: str) -> dict[str, str]:
    return {row["english"]: row["chinese"] for row in rows("determiners") if row["kind"] == kind}


NUMBERS = {"a": "一"} | _determiners("number")
POSSESSIVES = _determiners("possessive")
# Worn and held things: 穿着 rather than 正在穿.
DURATIVE = {"穿", "戴", "拿"}
MODALS = {"f": "会", "w": "想", "n": "能"}


def _adjective_words(adjective: Adjective, noun: Noun, tag: str) -> list[Word]:
    words = [(adjective.chinese_by_noun.get(noun.english, adjective.chinese), tag)]
    return [*words, ("的", tag + "?")] if adjective.linked else words


def _determiner(phrase: NounPhrase, tag: str) -> list[Word]:
    determiner, noun = phrase.determiner, phrase.noun
    if determiner in NUMBERS:
        return [(NUMBERS[determiner], tag), (noun.measure, tag + "?")]
    if determiner == "this":
        several = phrase.plural or noun.mass
        return [("这", tag), ("些" if several else noun.measure, tag + "?")]
    linked = phrase.adjective is not None and phrase.adjective.linked
    if determiner in POSSESSIVES:
        owner = (POSSESSIVES[determiner], tag)
        kin = "kin" in noun.categories and not phrase.plural and phrase.adjective is None
        return [owner] if kin or linked else [owner, ("的", tag + "?")]
    if determiner == "some":
        return [("一些", tag)]
    if phrase.owner:
        owner = (phrase.owner.chinese, "o")
        return [owner] if linked else [owner, ("的", "o?")]
    return []


@cache
def noun_phrase(phrase: NounPhrase, roles: str, *, negated: bool = False) -> tuple[Word, ...]:
    """Words of a noun phrase; `roles` are the tags of determiner, adjective and noun.

    `negated` leaves 一 and its measure word out: 没有苹果.
    """
    noun = phrase.noun
    several = phrase.plural and (phrase.determiner in ("the", *POSSESSIVES) or phrase.owner)
    word = noun.chinese + ("们" if several and "person" in noun.categories else "")
    words = [] if negated and phrase.determiner == "a" else _determiner(phrase, roles[0])
    if phrase.adjective:
        words += _adjective_words(phrase.adjective, noun, roles[1])
    return (*words, (word, roles[2]))


def _subject_words(subject: Subject) -> tuple[Word, ...]:
    if isinstance(subject, NounPhrase):
        return noun_phrase(subject, "das")
    if isinstance(subject, Name):
        return ((subject.chinese, "s"),)
    return ((subject.chinese, subject.tag),)


def _place_words(place: Place) -> list[Word]:
    """The place without the 在 before it."""
    after = place.preposition.chinese
    if after == "里" and place.noun.english == "street":
        after = "上"
    return [(place.noun.chinese, "P"), *([(after, "p")] if after else [])]


def _verb(clause: Clause) -> tuple[list[Word], list[Word]]:
    """The words before a place and after it."""
    chinese = clause.verb.chinese
    if isinstance(clause.object, NounPhrase):
        chinese = clause.verb.chinese_by_object.get(clause.object.noun.english, chinese)
    verb, tense = (chinese, "vr" if clause.recipient else "v"), clause.tense
    negative = clause.mode == "negative"
    if tense in MODALS:
        modal = (MODALS[tense], "x")
        return ([("不", "n"), modal] if negative else [modal]), [verb]
    if tense == "p":
        return ([("没", "n")], [verb]) if negative else ([], [verb, ("了", "x?")])
    if tense == "c" and chinese in DURATIVE:
        return ([("没", "n")] if negative else []), [verb, ("着", "x?")]
    if tense == "c" and negative:
        return [("没", "n"), ("在", "x?")], [verb]
    if tense == "c":
        return [("正在", "x?")], [verb]
    if negative:
        return [("没" if chinese == "有" else "不", "n")], [verb]
    return [], [verb]


def _clause(clause: Clause) -> list[Word]:
    words = [*_subject_words(clause.subject)]
    if clause.time:
        words += clause.time.chinese
    if clause.frequency:
        words += clause.frequency.chinese
    before, after = _verb(clause)
    words += before
    if clause.place:
        # 正在 and 没在 hold the 在 of the place already.
        if clause.tense != "c":
            words.append(("在", "p?" if clause.place.preposition.chinese else "p"))
        words += _place_words(clause.place)
    words += after
    if clause.recipient:
        words += _recipient(clause)
    if clause.mode == "what":
        words.append(("什么", "w"))
    elif isinstance(clause.object, Pronoun):
        words.append((clause.object.chinese, "S"))
    elif clause.object:
        words += noun_phrase(clause.object, "DAS", negated=clause.mode == "negative")
    if clause.mode == "question":
        words.append(("吗", "q?"))
    question = clause.mode in ("question", "what") or clause.subject is WHO
    words.append(("？" if question else "。", "."))
    return words


def _recipient(clause: Clause) -> tuple[Word, ...]:
    if isinstance(clause.recipient, Name):
        return ((clause.recipient.chinese, "I"),)
    return noun_phrase(clause.recipient, "RRI")


def _end(mode: str) -> list[Word]:
    return [("吗", "q?"), ("？", ".")] if mode == "question" else [("。", ".")]


def _predication(sentence: Predication) -> list[Word]:
    subject, adjective, mode = sentence.subject, sentence.adjective, sentence.mode
    words = [*_subject_words(subject)]
    chinese = adjective.chinese
    if isinstance(subject, NounPhrase):
        chinese = adjective.chinese_by_noun.get(subject.noun.english, chinese)
    predicate = [(chinese, "j")]
    if mode == "negative":
        words.append(("没" if chinese.startswith("有") else "不", "n"))
    if adjective.classifying:
        predicate = [("是", "x"), *predicate, ("的", "j?")]
    elif sentence.degree:
        predicate = [*sentence.degree.chinese, *predicate]
        if sentence.degree.chinese[0][0] == "太":
            predicate.append(("了", "g?"))
    elif mode == "statement":
        predicate.insert(0, ("很", "x?"))
    return [*words, *predicate, *_end(mode)]


def _identity(sentence: Identity) -> list[Word]:
    words = [*_subject_words(sentence.subject)]
    if sentence.mode == "negative":
        words.append(("不", "n"))
    return [*words, ("是", "x"), (sentence.job.chinese, "j"), *_end(sentence.mode)]


def _existence(sentence: Existence) -> list[Word]:
    negative = sentence.mode == "negative"
    words = _place_words(sentence.place)
    words += [("没", "n"), ("有", "x")] if negative else [("有", "x")]
    words += noun_phrase(sentence.phrase, "DAS", negated=negative)
    return [*words, *_end(sentence.mode)]


def _location(sentence: Location) -> list[Word]:
    words = [*_subject_words(sentence.subject)]
    if sentence.mode == "where":
        return [*words, ("在", "x"), ("哪里", "w"), ("？", ".")]
    if sentence.mode == "negative":
        words.append(("不", "n"))
    return [*words, ("在", "x"), *_place_words(sentence.place), *_end(sentence.mode)]


_REALISERS: dict[type, Callable[[Any], list[Word]]] = {
    Clause: _clause,
    Predication: _predication,
    Identity: _identity,
    Existence: _existence,
    Location: _location,
}


def words(sentence: Sentence) -> list[Word]:
    """The sentence's words with their tags."""
    return _REALISERS[type(sentence)](sentence)


def text(words: list[str]) -> str:
    """The words as written, without spaces."""
    return "".join(words)
