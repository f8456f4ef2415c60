"""What a sentence says, before any language says it: the grammar's abstract syntax.

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

from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple

from training.phrasebook.adjectives import Adjective
from training.phrasebook.nouns import Noun
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

FIRST_PERSON = Pronoun("I", "me", "je", "me", "我", FIRST_SINGULAR)
PRONOUNS = (
    FIRST_PERSON,
    Pronoun("he", "him", "il", "le", "他", THIRD_SINGULAR),
    Pronoun("she", "her", "elle", "la", "她", THIRD_SINGULAR, feminine=True),
    Pronoun("we", "us", "nous", "nous", "我们", FIRST_PLURAL),
    Pronoun("they", "them", "ils", "les", "他们", THIRD_PLURAL),
)
WHO = Pronoun("who", "whom", "qui", "qui", "谁", THIRD_SINGULAR, tag="w")

NAMES = (
    Name("Paul", "保罗", False),
    Name("Thomas", "托马斯", False),
    Name("Daniel", "丹尼尔", False),
    Name("Lucas", "卢卡斯", False),
    Name("Nicolas", "尼古拉", False),
    Name("Arthur", "亚瑟", False),
    Name("Anna", "安娜", True),
    Name("Emma", "艾玛", True),
    Name("Sophie", "苏菲", True),
    Name("Julie", "朱莉", True),
    Name("Alice", "爱丽丝", True),
    Name("Marie", "玛丽", True),
)


def _tagged(text: str, tag: str) -> tuple[Word, ...]:
    """The words of a text; one that ends in "/" and tags has these, the others have `tag`."""
    pairs = (word.partition("/") for word in text.split())
    return tuple((word, tags or tag) for word, _, tags in pairs)


def _preposition(english: str, french: str, chinese: str) -> Preposition:
    return Preposition(_tagged(english, "p"), _tagged(french, "p"), chinese)


PREPOSITIONS = {
    "in": _preposition("in", "dans", "里"),
    "on": _preposition("on", "sur", "上"),
    "at": _preposition("at", "à", ""),
    "under": _preposition("under", "sous", "下面"),
    "behind": _preposition("behind", "derrière", "后面"),
    "in front of": _preposition("in/p? front of/p?", "devant", "前面"),
    "near": _preposition("near", "près de/p?", "附近"),
}

# Words of a phrase that is not word for word carry the number of their partner.
_TIMES = """
yesterday | hier | 昨天 | p
last/1 week/2 | la/2? semaine/2 dernière/1 | 上周/12 | p
last/1 night/2 | hier/1 soir/2 | 昨晚/12 | p
this/1 morning/2 | ce/1 matin/2 | 今天/1 早上/2 | p
now | maintenant | 现在 | c
today | aujourd'hui | 今天 | pf
tomorrow | demain | 明天 | f
tonight | ce/1? soir/1 | 今晚 | f
next/1 week/2 | la/2? semaine/2 prochaine/1 | 下周/12 | f
next/1 month/2 | le/2? mois/2 prochain/1 | 下个/1 月/2 | f
on/1? Monday/1 | lundi | 星期一 | f
on/1? Saturday/1 | samedi | 星期六 | f
every/1 day/2 | tous/1 les/1? jours/2 | 每天/12 | h
every/1 morning/2 | tous/1 les/1? matins/2 | 每天/1 早上/2 | h
every/1 week/2 | toutes/1 les/1? semaines/2 | 每周/12 | h
on/1? Sundays/1 | le/1? dimanche/1 | 星期天 | h
in/1 summer/2 | en/1 été/2 | 夏天/12 | h
in/1 winter/2 | en/1 hiver/2 | 冬天/12 | h
"""
_FREQUENCIES = """
often | souvent | 经常 | h
always | toujours | 总是 | h
sometimes | parfois | 有时 | h
rarely | rarement | 很少 | h
never | jamais | 从来不 | h
"""
_DEGREES = """
very | très | 非常 |
too | trop | 太 |
"""


def _adverbials(table: str, tag: str) -> dict[str, Adverbial]:
    result = {}
    for line in table.strip().splitlines():
        english, french, chinese, tenses = line.split("|")
        adverbial = Adverbial(
            _tagged(english, tag), _tagged(french, tag), _tagged(chinese, tag), tenses.strip()
        )
        result[" ".join(word for word, _ in adverbial.english)] = adverbial
    return result


@cache
def times() -> dict[str, Adverbial]:
    """The time phrases by their English words, with the tenses they go with."""
    return _adverbials(_TIMES, "1")


@cache
def frequencies() -> dict[str, Adverbial]:
    """The adverbs of frequency."""
    return _adverbials(_FREQUENCIES, "f")


@cache
def degrees() -> dict[str, Adverbial]:
    """The adverbs of degree."""
    return _adverbials(_DEGREES, "g")
