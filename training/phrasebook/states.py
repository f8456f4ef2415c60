"""Families of sentences with "be": how things are, where they are, what there is."""

from collections.abc import Iterator
from functools import partial

from training.phrasebook.adjectives import Adjective, adjectives, states
from training.phrasebook.families import Family, stable_hash
from training.phrasebook.nouns import Noun, nouns, select
from training.phrasebook.phrases import (
    adjectives_of,
    definite_phrases,
    noun_subjects,
    number,
    sayable,
)
from training.phrasebook.sentences import (
    NAMES,
    PREPOSITIONS,
    PRONOUNS,
    Existence,
    Identity,
    Location,
    Mode,
    NounPhrase,
    Place,
    Predication,
    Subject,
    degrees,
)
from training.phrasebook.tables import rows

MODES = ("statement", "negative", "question")


def _be(adjective: Adjective, subject: Subject, how) -> Predication:
    mode, degree = how
    return Predication(subject, adjective, mode, degree)


def _modes_and_degrees(adjective: Adjective) -> list:
    plain = [(mode, None) for mode in MODES]
    return plain + [("statement", degrees()[degree]) for degree in adjective.degrees]


def predications() -> Iterator[Family]:
    """The apple is green. Anna's apples are very sweet."""
    for adjective in adjectives().values():
        for noun in adjective.nouns if adjective.predicate else ():
            if adjective.classifying and "person" in noun.categories:
                continue  # Chinese says "an Italian person" instead
            phrases = definite_phrases(noun, None, adjective.english)
            if "kin" not in noun.categories:
                this = sayable(noun, [("this", False), ("this", True)])
                phrases += [NounPhrase(noun, word, plural) for word, plural in this]
            options = (phrases, _modes_and_degrees(adjective))
            pairings = ((adjective.english, noun.english),)
            yield Family(adjective.english, pairings, partial(_be, adjective), options)


def states_of_people() -> Iterator[Family]:
    """She is tired. The teacher isn't happy."""
    woman = nouns()["woman"]
    characters = [a for a in adjectives().values() if woman in a.nouns and not a.classifying]
    # "I am tired": fatigué or fatiguée?
    plain = (*PRONOUNS[1:], *NAMES)
    phrases = [subject for subject in noun_subjects() if isinstance(subject, NounPhrase)]
    for adjective in (*states().values(), *characters):
        build, modes = partial(_be, adjective), _modes_and_degrees(adjective)
        yield Family(adjective.english, (), build, (plain, modes))
        for subject in phrases if adjective.english in states() else ():
            pairings = ((adjective.english, subject.noun.english),)
            # Groups are drawn evenly: as many women as men.
            group = f"{adjective.english} {subject.feminine}"
            yield Family(group, pairings, build, ([subject], modes))


def _identity(job: Noun, subject: Subject, mode: Mode) -> Identity:
    return Identity(subject, job, mode)


def identities() -> Iterator[Family]:
    """She is a doctor."""
    kin = [s for s in noun_subjects() if isinstance(s, NounPhrase) and "kin" in s.noun.categories]
    for job in select("job"):
        who = (*PRONOUNS[1:], *NAMES, *kin)
        yield Family(job.english, (), partial(_identity, job), (who, MODES))


def _scenes() -> Iterator[tuple[Place, Noun]]:
    """Places, and the things and beings found there."""
    for row in rows("scenes"):
        for place in select(row["places"]):
            for thing in select(row["things"]):
                yield Place(PREPOSITIONS[row["preposition"]], place), thing


def _existence(noun: Noun, adjective: Adjective | None, place: Place, form) -> Existence:
    determiner, plural, mode = form
    return Existence(NounPhrase(noun, determiner, plural, adjective), place, mode)


def existences() -> Iterator[Family]:
    """There is a green apple on the table."""
    for place, noun in _scenes():
        several = (number(place.noun.english, noun.english), True)
        forms = [
            (determiner, plural, mode)
            for mode in MODES
            for determiner, plural in sayable(
                noun,
                [
                    ("a", False),
                    ("some" if mode == "statement" else "any", not noun.mass),
                    *([several] if mode == "statement" else []),
                ],
            )
        ]
        for adjective in (None, *adjectives_of(noun)):
            pairings = ((adjective.english, noun.english),) if adjective else ()
            build = partial(_existence, noun, adjective, place)
            yield Family(noun.english, pairings, build, (forms,))


def _location(place: Place, subject: NounPhrase, mode: Mode) -> Location:
    return Location(subject, place, mode)


def locations() -> Iterator[Family]:
    """The cat is under the table."""
    for place, noun in _scenes():
        build = partial(_location, place)
        described = adjectives_of(noun)
        turn = stable_hash("location", place.noun.english, noun.english)
        adjective = described[turn % len(described)] if described else None
        for choice in dict.fromkeys((None, adjective)):
            pairings = ((choice.english, noun.english),) if choice else ()
            phrases = definite_phrases(noun, choice, place.noun.english)
            yield Family(noun.english, pairings, build, (phrases, MODES))


def where_questions() -> Iterator[Family]:
    """Where is Anna's cat?"""
    for noun in nouns().values():
        if not noun.categories & {"language", "sport", "music", "idea", "work", "kin"}:
            build = partial(_location, Place(PREPOSITIONS["in"], noun))
            phrases = definite_phrases(noun, None, "where")
            yield Family(noun.english, (), build, (phrases, ("where",)))
