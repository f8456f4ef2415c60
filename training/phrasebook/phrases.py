"""The noun phrases that stand as subjects, objects and owners.

Subjects, possessives and numbers rotate from one pairing to the next, so that all of them meet all
verbs while the number of sentences stays within reason.
"""

from functools import cache

from training.phrasebook.adjectives import Adjective, adjectives
from training.phrasebook.families import stable_hash
from training.phrasebook.nouns import Noun, select
from training.phrasebook.sentences import NAMES, PRONOUNS, Name, NounPhrase, Subject
from training.phrasebook.tables import rows
from training.phrasebook.verbs import Verb

Determined = tuple[str, bool]  # determiner, plural


def determiners(kind: str) -> tuple[str, ...]:
    """The English determiners of a kind, "possessive" or "number"."""
    return tuple(row["english"] for row in rows("determiners") if row["kind"] == kind)


POSSESSIVES = determiners("possessive")
NUMBERS = determiners("number")
# Nobody's own: no "my bus", "his lake".
UNOWNED = frozenset(
    select(
        "building outdoors nature wild_animal ruler bus train plane man woman boy girl child "
        "farmer waiter actor singer engineer policeman soldier"
    )
)


@cache
def noun_subjects() -> tuple[Subject, ...]:
    """Names and people, as subjects."""
    people = select("person -kin -baby")
    singular = [NounPhrase(noun, "the") for noun in people]
    plural = [NounPhrase(noun, "the", True) for noun in people if "ruler" not in noun.categories]
    kin = [
        NounPhrase(noun, POSSESSIVES[(i + shift) % 5])
        for i, noun in enumerate(select("kin"))
        for shift in (0, 2)
    ]
    these = [
        NounPhrase(noun, "this", plural)
        for noun in select("man woman boy girl")
        for plural in (False, True)
    ]
    return (*NAMES, *singular, *plural, *kin, *these)


def subjects(*key: str, count: int = 3, excluded: Noun | None = None) -> tuple[Subject, ...]:
    """The pronouns and a few nouns and names that change with the key."""
    others = noun_subjects()
    start = stable_hash("subjects", *key)
    chosen = dict.fromkeys(others[(start + 17 * i) % len(others)] for i in range(count))
    nouns = (s for s in chosen if not (isinstance(s, NounPhrase) and s.noun is excluded))
    return (*PRONOUNS, *nouns)


@cache
def adjectives_of(noun: Noun) -> tuple[Adjective, ...]:
    """The adjectives that go with a noun."""
    return tuple(adjective for adjective in adjectives().values() if noun in adjective.nouns)


def owned(noun: Noun) -> bool:
    """Whether "my" goes with the noun."""
    return noun not in UNOWNED


def sayable(noun: Noun, found: list[Determined]) -> list[Determined]:
    """Without plurals of mass nouns or singulars of paired ones, or plurals that do not show."""
    categories = noun.categories
    if noun.mass:
        return [(word, plural) for word, plural in found if not plural and word != "a"]
    if "paired" in categories:
        return [(word, plural) for word, plural in found if plural]
    if "ruler" in categories:
        return [(word, plural) for word, plural in found if not plural]
    if noun.english_plural == noun.english:
        return [(word, p) for word, p in found if not p or word == "this" or word in NUMBERS]
    return found


def number(*key: str) -> str:
    """A number from two to ten that changes with the key."""
    return NUMBERS[stable_hash("number", *key) % len(NUMBERS)]


@cache
def object_determiners(verb: Verb, noun: Noun, tense: str, mode: str) -> tuple[Determined, ...]:
    """Determiner and number that the object of a verb may have."""
    turn = stable_hash(verb.lemma, noun.english)
    first, second = POSSESSIVES[turn % 5], POSSESSIVES[(turn + 3) % 5]
    generic = [("", noun.mass is False)]
    if noun.categories & {"language", "sport"} or (noun.mass and verb.english == "teach"):
        return (("", False),)
    if "generic" in verb.marks:
        return (("the", False),)
    if "kin" in noun.categories:
        return ((first, False), (second, False))
    if tense == "h":
        return tuple(sayable(noun, generic))
    if "taste" in verb.marks:
        if verb.english == "prefer" and mode == "negative":
            return ()
        this = [] if noun.mass else [("this", False), ("this", True)]
        return tuple(sayable(noun, generic + this))
    several = [(number(verb.lemma, noun.english), True)]
    if "owning" in verb.marks:
        if noun.mass:
            return (("some" if mode == "statement" else "any", False),)
        return tuple(sayable(noun, [("a", False), *([] if mode == "negative" else several)]))
    definite = [("the", False), ("this", False), ("the", True), ("this", True)]
    if owned(noun):
        definite += [(first, False), (second, True)]
    if "known" in verb.marks or verb.tenses == "s":
        return tuple(sayable(noun, definite))
    found = [("a", False)]
    if mode == "statement":
        found += [("some", noun.mass is False), *several]
    else:
        found += [("any", noun.mass is False)]
    # "They read books" would be past and present.
    ambiguous = tense == "p" and verb.english_past == verb.english
    if (noun.mass or "h" in verb.tenses) and not ambiguous:
        found += generic
    return tuple(sayable(noun, found + definite))


def definite_phrases(noun: Noun, adjective: Adjective | None, *key: str) -> list[NounPhrase]:
    """ "The cat", "the cats", "my cat", "Paul's cat"."""
    turn = stable_hash("owner", noun.english, *key)
    if "kin" in noun.categories:
        return [NounPhrase(noun, POSSESSIVES[(turn + i) % 5], False, adjective) for i in (0, 2, 4)]
    found = [("the", False), ("the", True)]
    owners: list[Name] = []
    if owned(noun) and "person" not in noun.categories:
        plural = "paired" in noun.categories
        found += [(POSSESSIVES[(turn + i) % 5], plural) for i in (0, 2)]
        found.append((POSSESSIVES[(turn + 4) % 5], True))
        owners = [NAMES[(turn + i) % len(NAMES)] for i in (0, 5)]
    phrases = [NounPhrase(noun, word, p, adjective) for word, p in sayable(noun, found)]
    plural = "paired" in noun.categories
    return phrases + [NounPhrase(noun, "", plural, adjective, owner) for owner in owners]
