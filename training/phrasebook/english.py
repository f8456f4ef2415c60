"""Sentences in English."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from training.phrasebook.sentences import (
    THIRD_SINGULAR,
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

BE = ("am", "is", "are", "are")
BE_NOT = (("am", "not"), ("isn't",), ("aren't",), ("aren't",))
DOUBLING = {"cut", "run", "swim", "travel"}


def third_person(verb: str) -> str:
    """The present with he, she, it: does, washes, studies."""
    if verb == "have":
        return "has"
    if verb.endswith(("s", "sh", "ch", "x", "o")):
        return verb + "es"
    if verb[-1] == "y" and verb[-2] not in "aeou":
        return verb[:-1] + "ies"
    return verb + "s"


def participle(verb: str) -> str:
    """The form in -ing."""
    if verb in DOUBLING:
        return verb + verb[-1] + "ing"
    if verb.endswith("e") and not verb.endswith("ee"):
        return verb[:-1] + "ing"
    return verb + "ing"


def article(following: str) -> str:
    """ "A" or "an", by the next word."""
    return "an" if following[0] in "aeiouAEIOU" and following != "useful" else "a"


@cache
def noun_phrase(phrase: NounPhrase, roles: Sequence[str]) -> tuple[Word, ...]:
    """Words of a noun phrase; `roles` are the tags of determiner, adjective and noun."""
    noun = phrase.noun.english_plural if phrase.plural else phrase.noun.english
    words = [(noun, roles[2])]
    if phrase.adjective:
        words.insert(0, (phrase.adjective.english, roles[1]))
    if phrase.owner:
        words.insert(0, (f"{phrase.owner.text}'s", "o"))
    determiner = phrase.determiner
    if determiner == "a":
        determiner = article(words[0][0])
    elif determiner == "this" and phrase.plural:
        determiner = "these"
    if determiner:
        words.insert(0, (determiner, roles[0]))
    return tuple(words)


def _subject_words(subject: Subject) -> tuple[Word, ...]:
    if isinstance(subject, NounPhrase):
        return noun_phrase(subject, "das")
    if isinstance(subject, Name):
        return ((subject.text, "s"),)
    return ((subject.english, subject.tag),)


def _place_words(place: Place) -> list[Word]:
    return [*place.preposition.english, ("the", "e"), (place.noun.english, "P")]


def _be(subject: Subject, mode: str, tags: str) -> list[Word]:
    """Subject and "be" in the order that the mode asks for; `tags` are those of "be"."""
    words = _subject_words(subject)
    if mode in ("question", "what", "where"):
        return [(BE[subject.person], tags + "q"), *words]
    if mode == "negative":
        forms = BE_NOT[subject.person]
        if len(forms) == 2:
            return [*words, (forms[0], tags), (forms[1], "n")]
        return [*words, (forms[0], tags + "n")]
    return [*words, (BE[subject.person], tags)]


def _auxiliary(subject: Subject, mode: str, positive: str, negative: str, tags: str) -> list[Word]:
    words = _subject_words(subject)
    if mode in ("question", "what"):
        return [(positive, tags + "q"), *words]
    if mode == "negative":
        return [*words, (negative, tags + "n")]
    return [*words, (positive, tags)]


def _predicate(clause: Clause) -> list[Word]:
    """Subject, auxiliaries, adverb of frequency and verb."""
    subject, verb, tense, mode = clause.subject, clause.verb, clause.tense, clause.mode
    singular = subject.person == THIRD_SINGULAR
    frequency = clause.frequency.english if clause.frequency else ()
    if tense == "c":
        return [*_be(subject, mode, "x?"), (participle(verb.english), "v")]
    if tense == "f":
        return [*_auxiliary(subject, mode, "will", "won't", "x?"), (verb.english, "v")]
    if tense == "n":
        return [*_auxiliary(subject, mode, "can", "can't", "x"), (verb.english, "v")]
    if tense == "w" and mode == "statement":
        want = "wants" if singular else "want"
        return [*_subject_words(subject), (want, "x"), ("to", "v?"), (verb.english, "v")]
    if tense == "w":
        do = _do(subject, mode, "")
        return [*do, ("want", "x"), ("to", "v?"), (verb.english, "v")]
    if mode == "statement":
        if tense == "p":
            form = verb.english_past
        else:
            form = third_person(verb.english) if singular else verb.english
        return [*_subject_words(subject), *frequency, (form, "vx")]
    if tense == "p":
        return [*_auxiliary(subject, mode, "did", "didn't", "x?"), (verb.english, "v")]
    return [*_do(subject, mode, ""), *frequency, (verb.english, "v")]


def _do(subject: Subject, mode: str, tags: str) -> list[Word]:
    if subject.person == THIRD_SINGULAR:
        return _auxiliary(subject, mode, "does", "doesn't", tags)
    return _auxiliary(subject, mode, "do", "don't", tags)


def _clause(clause: Clause) -> list[Word]:
    words = _predicate(clause)
    if clause.mode == "what":
        words.insert(0, ("what", "w"))
    if clause.verb.particle and (clause.object or clause.mode == "what"):
        words.append((clause.verb.particle, "v?"))
    if isinstance(clause.object, Pronoun):
        words.append((clause.object.english_object, "S"))
    elif clause.object:
        words += noun_phrase(clause.object, "DAS")
    if clause.recipient:
        words.append(("to", "r"))
        if isinstance(clause.recipient, Name):
            words.append((clause.recipient.text, "I"))
        else:
            words += noun_phrase(clause.recipient, "RRI")
    if clause.place:
        words += _place_words(clause.place)
    if clause.time:
        words += clause.time.english
    question = clause.mode in ("question", "what") or clause.subject is WHO
    words.append(("?" if question else ".", "."))
    return words


def _mark(mode: str) -> Word:
    return ("?" if mode in ("question", "where") else ".", ".")


def _predication(sentence: Predication) -> list[Word]:
    words = _be(sentence.subject, sentence.mode, "x")
    if sentence.degree:
        words += sentence.degree.english
    return [*words, (sentence.adjective.english, "j"), _mark(sentence.mode)]


def _identity(sentence: Identity) -> list[Word]:
    words = _be(sentence.subject, sentence.mode, "x")
    plural = sentence.subject.person > THIRD_SINGULAR
    job = NounPhrase(sentence.job, "" if plural else "a", plural)
    return [*words, *noun_phrase(job, ("j?", "j", "j")), _mark(sentence.mode)]


def _existence(sentence: Existence) -> list[Word]:
    be = "are" if sentence.phrase.plural else "is"
    if sentence.mode == "question":
        words = [(be, "xq"), ("there", "x?")]
    elif sentence.mode == "negative":
        words = [("there", "x?"), (be + "n't", "xn")]
    else:
        words = [("there", "x?"), (be, "x")]
    words += noun_phrase(sentence.phrase, "DAS")
    return [*words, *_place_words(sentence.place), _mark(sentence.mode)]


def _location(sentence: Location) -> list[Word]:
    words = _be(sentence.subject, sentence.mode, "x")
    if sentence.mode == "where":
        return [("where", "w"), *words, ("?", ".")]
    return [*words, *_place_words(sentence.place), _mark(sentence.mode)]


_REALISERS: dict[type, Callable[[Any], list[Word]]] = {
    Clause: _clause,
    Predication: _predication,
    Identity: _identity,
    Existence: _existence,
    Location: _location,
}


def words(sentence: Sentence) -> list[Word]:
    """The sentence's words with their tags, in lower case but for names."""
    return _REALISERS[type(sentence)](sentence)


def text(words: list[str]) -> str:
    """The words as written: spaces between them, none before the final mark."""
    return " ".join(words[:-1]) + words[-1]
