"""The grammar's abstract syntax: sentences before they are put into a language.

A realised word is a pair (text, tags). Words of two languages are linked where they share a tag,
one letter for each part of the sentence. A link is sure where the words say the same; a tag with a
"?" after it marks a word that only helps, as "is" in "is eating", "ne" beside "pas" or an article
that the other language does without: its links are possible ones (Och and Ney 2003, section 5.1).

    d a o s   determiner, adjective, owner and noun of the subject
    D A S     determiner, adjective and noun of the object
    p e P     preposition, determiner and noun of a place
    r R I     preposition, determiner and noun of a recipient
    v x       verb, its auxiliary or tense
    n q w     negation, question, question word
    f g       adverb of frequency, of degree
    j         predicate
    1 2       words of a time phrase
    .         final mark
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from training.phrasebook.adjectives import Adjective
from training.phrasebook.nouns import Noun
from training.phrasebook.tables import rows
from training.phrasebook.verbs import Verb

Word = tuple[str, str]
Mode = Literal["statement", "negative", "question", "what", "where"]

FIRST_SINGULAR, THIRD_SINGULAR, FIRST_PLURAL, THIRD_PLURAL = range(4)


@dataclass(frozen=True, eq=False)
class Pronoun:
    """A personal pronoun or "who": subject and object forms, person, gender."""

    english: str
    english_object: str
    french: str
    french_object: str
    chinese: str
    person: int
    feminine: bool = False
    tag: str = "s"


@dataclass(frozen=True, eq=False)
class Name:
    """A first name, the same in English and French."""

    text: str
    chinese: str
    feminine: bool
    person: int = THIRD_SINGULAR


class NounPhrase(NamedTuple):
    """A noun with its determiner.

    Determiners are English words: "a", "the", "this" (also these), a possessive, a number, "some",
    "any", or "" for none.
    """

    noun: Noun
    determiner: str
    plural: bool = False
    adjective: Adjective | None = None
    owner: Name | None = None

    @property
    def person(self) -> int:
        """Always the third."""
        return THIRD_PLURAL if self.plural else THIRD_SINGULAR

    @property
    def feminine(self) -> bool:
        """The gender in French."""
        return self.noun.feminine


Subject = Pronoun | Name | NounPhrase


@dataclass(frozen=True, eq=False)
class Preposition:
    """A preposition of place; Chinese puts a word after the noun, or nothing ("at")."""

    english: tuple[Word, ...]
    french: tuple[Word, ...]
    chinese: str


class Place(NamedTuple):
    """ "In the garden"."""

    preposition: Preposition
    noun: Noun


@dataclass(frozen=True, eq=False)
class Adverbial:
    """A time phrase, or an adverb of frequency or degree: tagged words in each language."""

    english: tuple[Word, ...]
    french: tuple[Word, ...]
    chinese: tuple[Word, ...]
    tenses: str


class Clause(NamedTuple):
    """Somebody does something."""

    subject: Subject
    verb: Verb
    tense: str
    mode: Mode = "statement"
    object: NounPhrase | Pronoun | None = None
    place: Place | None = None
    time: Adverbial | None = None
    frequency: Adverbial | None = None
    recipient: NounPhrase | Name | None = None


class Predication(NamedTuple):
    """Something is green."""

    subject: Subject
    adjective: Adjective
    mode: Mode = "statement"
    degree: Adverbial | None = None


class Identity(NamedTuple):
    """Somebody is a doctor."""

    subject: Subject
    job: Noun
    mode: Mode = "statement"


class Existence(NamedTuple):
    """There is something somewhere."""

    phrase: NounPhrase
    place: Place
    mode: Mode = "statement"


class Location(NamedTuple):
    """Something is somewhere, or where is it."""

    subject: NounPhrase
    place: Place
    mode: Mode = "statement"


Sentence = Clause | Predication | Identity | Existence | Location


def _pronouns() -> tuple[Pronoun, ...]:
    return tuple(
        Pronoun(
            english=row["english"],
            english_object=row["object"],
            french=row["french"],
            french_object=row["french_object"],
            chinese=row["chinese"],
            person=("je", "il", "nous", "ils").index(row["person"]),
            feminine=row["gender"] == "f",
            tag=row["tag"],
        )
        for row in rows("pronouns")
    )


*PRONOUNS, WHO = _pronouns()
FIRST_PERSON = PRONOUNS[0]

NAMES = tuple(Name(row["name"], row["chinese"], row["gender"] == "f") for row in rows("names"))


def _tagged(text: str, tag: str) -> tuple[Word, ...]:
    """The words of a text; one that ends in "/" and tags has these, the others have `tag`."""
    pairs = (word.partition("/") for word in text.split())
    return tuple((word, tags or tag) for word, _, tags in pairs)


def _plain(words: tuple[Word, ...]) -> str:
    return " ".join(word for word, _ in words)


def _prepositions() -> Iterator[tuple[str, Preposition]]:
    for row in rows("prepositions"):
        english = _tagged(row["english"], "p")
        yield _plain(english), Preposition(english, _tagged(row["french"], "p"), row["chinese"])


PREPOSITIONS = dict(_prepositions())


def _adverbials(kind: str, tag: str) -> Iterator[tuple[str, Adverbial]]:
    """Words of a phrase that is not word for word carry the number of their partner."""
    for row in rows("adverbials"):
        if row["kind"] == kind:
            texts = (row[language] for language in ("english", "french", "chinese"))
            english, french, chinese = (_tagged(text, tag) for text in texts)
            yield _plain(english), Adverbial(english, french, chinese, row["tenses"])


@cache
def times() -> dict[str, Adverbial]:
    """The time phrases by their English words, with the tenses they go with."""
    return dict(_adverbials("time", "1"))


@cache
def frequencies() -> dict[str, Adverbial]:
    """The adverbs of frequency."""
    return dict(_adverbials("frequency", "f"))


@cache
def degrees() -> dict[str, Adverbial]:
    """The adverbs of degree."""
    return dict(_adverbials("degree", "g"))
