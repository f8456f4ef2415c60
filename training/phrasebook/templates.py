"""Which sentences there are: templates, made of families of sentences.

A family holds the sentences that share their pairings (verb and object, adjective and noun), which
decide its split: the product of independent options. Noun and name subjects rotate from family to
family, so that all of them meet all verbs while the number of sentences stays within reason.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import product
from math import prod
from typing import NamedTuple

from training.phrasebook.adjectives import Adjective, adjectives, states
from training.phrasebook.nouns import Noun, nouns, select
from training.phrasebook.sentences import (
    FIRST_PLURAL,
    FIRST_SINGULAR,
    NAMES,
    PREPOSITIONS,
    PRONOUNS,
    WHO,
    Clause,
    Existence,
    Identity,
    Location,
    NounPhrase,
    Place,
    Predication,
    Sentence,
    Subject,
    degrees,
    frequencies,
    times,
)
from training.phrasebook.verbs import Verb, giving, intransitive, motion, transitive

POSSESSIVES = ("my", "his", "her", "our", "their")
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
MODES = ("statement", "negative", "question")
# Likes and dislikes: their objects are whole kinds.
TASTE = {"aimer", "adorer", "détester", "préférer"}
OWNING = {"avoir", "vouloir"}
UNOWNED = {
    "bus",
    "train",
    "plane",
    "king",
    "queen",
    "man",
    "woman",
    "boy",
    "girl",
    "child",
    "tourist",
}

Pairing = tuple[str, str]


class Family(NamedTuple):
    """Sentences `build(*choice)` for each choice of one option from each of `options`."""

    group: str
    pairings: tuple[Pairing, ...]
    build: Callable[..., Sentence]
    options: tuple[tuple, ...]

    @property
    def size(self) -> int:
        return prod(len(choices) for choices in self.options)


class Template(NamedTuple):
    """Families of one kind and the share of sentences drawn from them."""

    name: str
    weight: int
    families: Callable[[], Iterator[Family]]


def stable_hash(*parts: str) -> int:
    """The same number on every machine and in every run."""
    return zlib.crc32("|".join(parts).encode())


@cache
def noun_subjects() -> tuple[Subject, ...]:
    """Names and people, as subjects."""
    people = [n for n in select("person job -baby") if "kin" not in n.categories]
    kin = select("kin")
    phrases = [NounPhrase(noun, "the") for noun in people]
    phrases += [
        NounPhrase(noun, "the", True) for noun in people if noun.english not in ("king", "queen")
    ]
    phrases += [
        NounPhrase(noun, determiner)
        for i, noun in enumerate(kin)
        for determiner in (POSSESSIVES[i % 5], POSSESSIVES[(i + 2) % 5])
    ]
    return (*NAMES, *phrases)


def some(options: Sequence, count: int, *key: str) -> tuple:
    """The first option and others that change with the key, `count` in all, in order."""
    others = len(options) - 1
    if others < count:
        return tuple(options)
    start = stable_hash(*key)
    chosen = {(start + i * others // (count - 1)) % others + 1 for i in range(count - 1)}
    return tuple(options[i] for i in (0, *sorted(chosen)))


def subjects(*key: str, count: int = 3, excluded: Noun | None = None) -> tuple[Subject, ...]:
    """The pronouns and a few nouns and names that change with the key."""
    others = noun_subjects()
    start = stable_hash("subjects", *key)
    chosen = [others[(start + 17 * i) % len(others)] for i in range(count)]
    chosen = [s for s in chosen if not (isinstance(s, NounPhrase) and s.noun is excluded)]
    return (*PRONOUNS, *chosen)


@cache
def adjectives_of(noun: Noun) -> list[Adjective]:
    return [adjective for adjective in adjectives().values() if noun in adjective.nouns]


def _several(noun: Noun) -> bool:
    """Whether the plural shows: not in "the sheep"."""
    return not noun.mass and noun.english_plural != noun.english


def object_determiners(verb: Verb, noun: Noun, mode: str) -> list[tuple[str, bool]]:
    """Determiner and number that the object of a verb may have."""
    turn = stable_hash("determiner", verb.lemma, noun.english)
    first, second = POSSESSIVES[turn % 5], POSSESSIVES[(turn + 3) % 5]
    number = NUMBERS[turn // 5 % 9]
    categories = noun.categories
    if categories & {"language", "sport"}:
        return [("", False)]
    if verb.french == "jouer_de":
        return [("the", False)]
    if "kin" in categories:
        return [(first, False), (second, False)]
    if verb.french in TASTE:
        if noun.mass:
            return [("", False)]
        bare = [("", True)] if _several(noun) else []
        return [*bare, ("this", False), ("this", True)]
    owned = not (
        noun.english in UNOWNED or categories & {"building", "outdoors", "nature", "wild_animal"}
    )
    if verb.french in OWNING:
        found = [("", False)] if noun.mass else [("a", False)]
        if mode != "negative":
            found += [("some", False)] if noun.mass and mode == "statement" else [(number, True)]
        return [item for item in found if item != (number, True) or not noun.mass]
    if noun.mass:
        found = [("", False), ("the", False), ("this", False)]
        return [*found, ("some", False)] if mode == "statement" else found
    found = [("a", False), ("the", False), ("this", False), ("this", True)]
    if _several(noun):
        found += [("", True), ("the", True)]
        if owned:
            found.append((second, True))
    if mode == "statement":
        found += [(number, True), ("some", True)]
    if owned:
        found.append((first, False))
    return found


@cache
def forms(verb: Verb, noun: Noun) -> list[tuple[str, str, str, bool]]:
    """Tense, mode, and the object's determiner and number, of clauses without adverbs."""
    found = []
    for tense, mode in product(verb.tenses, MODES):
        for determiner, plural in object_determiners(verb, noun, mode):
            generic = determiner == "" or verb.french == "jouer_de"
            if tense == "h" and not generic:
                continue
            if tense == "p" and determiner == "" and verb.english_past == verb.english:
                continue  # "They read books" would be past and present
            if verb.french == "collectionner" and not generic:
                continue
            found.append((tense, mode, determiner, plural))
    return found


def _pairings(verb: Verb, noun: Noun, adjective: Adjective | None = None) -> tuple[Pairing, ...]:
    pair = (verb.lemma, noun.english)
    return (pair, (adjective.lemma, noun.english)) if adjective else (pair,)


def _action(verb: Verb, noun: Noun, adjective: Adjective | None, subject: Subject, form) -> Clause:
    tense, mode, determiner, plural = form
    return Clause(subject, verb, tense, mode, NounPhrase(noun, determiner, plural, adjective))


def actions() -> Iterator[Family]:
    for verb in transitive().values():
        for noun in verb.objects:
            who = subjects(verb.lemma, noun.english, excluded=noun)
            options = (who, some(forms(verb, noun), 40, verb.lemma, noun.english))
            build = partial(_action, verb, noun, None)
            yield Family(verb.french, _pairings(verb, noun), build, options)


def actions_on_described_things() -> Iterator[Family]:
    for verb in transitive().values():
        for noun in verb.objects:
            chosen = tuple(
                form
                for form in forms(verb, noun)
                if form[0] in "cpshw" and form[2] not in POSSESSIVES
            )
            if not chosen:
                continue
            for adjective in adjectives_of(noun):
                key = (verb.lemma, noun.english, adjective.lemma)
                who = subjects(*key, count=2, excluded=noun)
                build = partial(_action, verb, noun, adjective)
                options = (who, some(chosen, 6, *key))
                yield Family(adjective.english, _pairings(verb, noun, adjective), build, options)


def _timed(verb: Verb, noun: Noun, subject: Subject, determiner, timed) -> Clause:
    phrase = NounPhrase(noun, *determiner)
    tense, mode, time = timed
    return Clause(subject, verb, tense, mode, phrase, time=time)


def timed_actions() -> Iterator[Family]:
    for verb in transitive().values():
        timed = tuple(
            (tense, mode, time)
            for time in times().values()
            for tense in time.tenses
            for mode in ("statement", "question")
            if tense in verb.tenses and tense != "h"
        )
        for noun in verb.objects:
            found = object_determiners(verb, noun, "question")
            found = tuple(item for item in found if item[0] != "this" and item != ("the", True))
            if verb.english_past == verb.english:
                found = tuple(item for item in found if item[0])
            if not (timed and found):
                continue
            who = subjects("timed", verb.lemma, noun.english, count=2, excluded=noun)
            build = partial(_timed, verb, noun)
            options = (who, some(found, 3, noun.english), some(timed, 8, verb.lemma, noun.english))
            yield Family(verb.french, _pairings(verb, noun), build, options)


def _habit(verb: Verb, noun: Noun, subject: Subject, adverb) -> Clause:
    determiner = "the" if verb.french == "jouer_de" else ""
    phrase = NounPhrase(noun, determiner, not noun.mass and not determiner)
    frequency, time = adverb
    return Clause(subject, verb, "h", "statement", phrase, time=time, frequency=frequency)


def habit_adverbs() -> tuple:
    often = [(adverb, None) for adverb in frequencies().values()]
    return (*often, *((None, time) for time in times().values() if "h" in time.tenses))


def habits() -> Iterator[Family]:
    for verb in transitive().values():
        if "h" not in verb.tenses:
            continue
        for noun in verb.objects:
            if not (noun.mass or _several(noun)):
                continue
            who = subjects("habit", verb.lemma, noun.english, excluded=noun)
            build = partial(_habit, verb, noun)
            yield Family(verb.french, _pairings(verb, noun), build, (who, habit_adverbs()))


def _question(verb: Verb, subject: Subject, tense: str) -> Clause:
    return Clause(subject, verb, tense, "what")


def what_questions() -> Iterator[Family]:
    without = {"connaître", "respecter", "aider", "inviter", "rencontrer", "remercier", "embrasser"}
    without |= {"jouer_de", "jouer_à", "avoir"}
    for verb in transitive().values():
        tenses = tuple(tense for tense in verb.tenses if tense in "cpfs")
        if verb.french not in without and tenses:
            who = subjects("what", verb.lemma, count=20)
            yield Family(verb.french, (), partial(_question, verb), (who, tenses))


def _who(verb: Verb, noun: Noun, form) -> Clause:
    return _action(verb, noun, None, WHO, form)


def who_questions() -> Iterator[Family]:
    for verb in transitive().values():
        for noun in verb.objects:
            chosen = tuple(form for form in forms(verb, noun) if form[1] == "statement")
            yield Family(verb.french, _pairings(verb, noun), partial(_who, verb, noun), (chosen,))


def _with_pronoun(verb: Verb, choice) -> Clause:
    subject, tense, mode, pronoun = choice
    return Clause(subject, verb, tense, mode, pronoun)


def pronoun_objects() -> Iterator[Family]:
    first = {FIRST_SINGULAR, FIRST_PLURAL}
    for verb in transitive().values():
        if not any("person" in noun.categories for noun in verb.objects):
            continue
        for pronoun in PRONOUNS:
            choices = tuple(
                (subject, tense, mode, pronoun)
                for subject in subjects("pronoun", verb.lemma, pronoun.english, count=8)
                for tense in verb.tenses
                for mode in MODES
                if tense in "cpfs"
                and not {subject.person, pronoun.person} <= first
                # "He saw me": vu or vue?
                and not (tense == "p" and pronoun.person == FIRST_SINGULAR)
            )
            pairing = (verb.lemma, pronoun.english_object)
            yield Family(verb.french, (pairing,), partial(_with_pronoun, verb), (choices,))


def _giving(verb: Verb, noun: Noun, subject, determiner, tense_and_mode, recipient) -> Clause:
    phrase = NounPhrase(noun, *determiner)
    return Clause(subject, verb, *tense_and_mode, object=phrase, recipient=recipient)


def gifts() -> Iterator[Family]:
    others = noun_subjects()
    for verb in giving().values():
        for noun in verb.objects:
            turn = stable_hash("gift", verb.lemma, noun.english)
            recipients = tuple(others[(turn + 11 * i) % len(others)] for i in range(6))
            who = PRONOUNS + tuple(s for s in NAMES if s not in recipients)[:3]
            tenses = tuple(product("pfw", ("statement", "question")))
            determiners = (("a", False), (NUMBERS[turn % 3], True))
            options = (who, determiners, tenses, recipients)
            yield Family(verb.french, _pairings(verb, noun), partial(_giving, verb, noun), options)


def _predication(noun: Noun, adjective: Adjective, determiner, mode_and_degree) -> Predication:
    word, plural, owner = determiner
    return Predication(NounPhrase(noun, word, plural, None, owner), adjective, *mode_and_degree)


def _modes_and_degrees(adjective: Adjective) -> tuple:
    modes = tuple((mode, None) for mode in MODES)
    if adjective.classifying:
        return modes
    return (*modes, *(("statement", degree) for degree in degrees().values()))


def predications() -> Iterator[Family]:
    for adjective in adjectives().values():
        for noun in adjective.nouns:
            turn = stable_hash("predication", adjective.lemma, noun.english)
            determiners = [("the", False, None), ("this", False, None)]
            if not noun.mass:
                determiners += [("the", True, None), ("this", True, None)]
            if not noun.categories & {"person", "wild_animal", "building", "outdoors", "nature"}:
                determiners += [(POSSESSIVES[(turn + i) % 5], False, None) for i in range(2)]
                determiners += [("", False, NAMES[(turn + i) % len(NAMES)]) for i in range(2)]
            options = (tuple(determiners), _modes_and_degrees(adjective))
            pairings = ((adjective.lemma, noun.english),)
            build = partial(_predication, noun, adjective)
            yield Family(adjective.english, pairings, build, options)


def _state(adjective: Adjective, subject: Subject, mode_and_degree) -> Predication:
    return Predication(subject, adjective, *mode_and_degree)


def states_of_people() -> Iterator[Family]:
    man = nouns()["man"]
    characters = [a for a in adjectives().values() if man in a.nouns and not a.classifying]
    # "I am tired": fatigué or fatiguée?
    plain = (*PRONOUNS[1:], *NAMES)
    phrases = [s for s in noun_subjects() if isinstance(s, NounPhrase)]
    for adjective in (*states().values(), *characters):
        build, modes = partial(_state, adjective), _modes_and_degrees(adjective)
        yield Family(adjective.english, (), build, (plain, modes))
        for subject in phrases if adjective.english in states() else ():
            pairings = ((adjective.lemma, subject.noun.english),)
            yield Family(adjective.english, pairings, build, ((subject,), modes))


def _identity(job: Noun, subject: Subject, mode: str) -> Identity:
    return Identity(subject, job, mode)


def identities() -> Iterator[Family]:
    kin = [s for s in noun_subjects() if isinstance(s, NounPhrase) and "kin" in s.noun.categories]
    for job in select("job"):
        who = (*PRONOUNS[1:], *NAMES, *kin)
        yield Family(job.english, (), partial(_identity, job), (who, MODES))


# Where things and beings are found: preposition, places, what is there.
SCENES = (
    (
        "on",
        "table chair",
        "fruit dish text tableware stationery container toy key hat umbrella candle",
    ),
    ("on", "desk", "text stationery lamp computer phone photo key map"),
    ("on", "bed sofa", "text clothes towel blanket pet doll hat bag toy guitar"),
    ("in", "box bag", "fruit cookie text stationery toy key candle glove photo ring watch ball"),
    ("in", "basket", "fruit vegetable egg bread flower cat"),
    ("in", "suitcase wardrobe", "clothes towel blanket hat scarf book gift"),
    ("in", "fridge", "fruit vegetable dish staple drink -sugar -honey -coffee -tea -soup"),
    ("in", "kitchen", "tableware bottle table chair fridge lamp basket clock radio"),
    ("in", "bedroom", "bed wardrobe lamp mirror chair desk radio television clock guitar"),
    (
        "in",
        "garden",
        "pet tree flower bird butterfly table chair child horse duck goose snake bicycle",
    ),
    ("in", "park", "dog tree flower bird butterfly child boy girl tourist"),
    ("in", "forest", "tree bear wolf bird horse rabbit snake house castle lake monkey"),
    ("in", "street", "car bus truck bicycle motorcycle dog policeman tourist tree"),
    ("in", "village", "church school house shop restaurant hotel library bank castle bridge"),
    (
        "in",
        "city",
        "church school museum hotel library hospital theatre cinema bridge park factory",
    ),
    ("under", "table chair bed tree", "pet shoe ball toy bag box"),
    ("behind", "house school church tree door", "dog cat child car bicycle horse"),
    (
        "in front of",
        "house school church hotel theatre",
        "car bus bicycle tree policeman dog horse tourist",
    ),
    ("near", "river lake", "house tree farm horse cow sheep hotel restaurant bird castle"),
    ("near", "station hospital park", "hotel restaurant shop library cinema bank museum school"),
)


def _scenes() -> Iterator[tuple[Place, Noun]]:
    for preposition, places, things in SCENES:
        for place in select(places):
            for thing in select(things):
                yield Place(PREPOSITIONS[preposition], place), thing


def _existence(noun: Noun, adjective: Adjective | None, place: Place, form) -> Existence:
    determiner, plural, mode = form
    return Existence(NounPhrase(noun, determiner, plural, adjective), place, mode)


def existences() -> Iterator[Family]:
    for place, noun in _scenes():
        turn = stable_hash("existence", place.noun.english, noun.english)
        if noun.mass:
            forms = (
                ("some", False, "statement"),
                ("any", False, "negative"),
                ("any", False, "question"),
            )
        else:
            forms = (
                ("a", False, "statement"),
                ("a", False, "negative"),
                ("a", False, "question"),
                ("some", True, "statement"),
                (NUMBERS[turn % 9], True, "statement"),
                ("any", True, "negative"),
                ("any", True, "question"),
            )
        for adjective in (None, *adjectives_of(noun)):
            pairings = ((adjective.lemma, noun.english),) if adjective else ()
            build = partial(_existence, noun, adjective, place)
            yield Family(noun.english, pairings, build, (forms,))


def _location(noun: Noun, adjective: Adjective | None, place: Place, determiner, mode) -> Location:
    word, plural, owner = determiner
    return Location(NounPhrase(noun, word, plural, adjective, owner), place, mode)


def locations() -> Iterator[Family]:
    for place, noun in _scenes():
        turn = stable_hash("location", place.noun.english, noun.english)
        determiners = [("the", False, None)]
        if _several(noun):
            determiners.append(("the", True, None))
        if not noun.categories & {"person", "wild_animal", "building", "outdoors", "nature"}:
            determiners.append((POSSESSIVES[turn % 5], False, None))
            determiners.append(("", False, NAMES[turn % len(NAMES)]))
        chosen = adjectives_of(noun)
        described = chosen[turn % len(chosen)] if chosen else None
        for adjective in {None, described}:
            pairings = ((adjective.lemma, noun.english),) if adjective else ()
            build = partial(_location, noun, adjective, place)
            yield Family(noun.english, pairings, build, (tuple(determiners), MODES))


def _whereabouts(noun: Noun, determiner) -> Location:
    word, plural, owner = determiner
    place = Place(PREPOSITIONS["in"], noun)
    return Location(NounPhrase(noun, word, plural, None, owner), place, "where")


def where_questions() -> Iterator[Family]:
    for noun in nouns().values():
        if noun.categories & {"language", "sport", "music", "idea", "work", "kin"}:
            continue
        turn = stable_hash("where", noun.english)
        determiners = [("the", False, None)]
        if _several(noun):
            determiners.append(("the", True, None))
        if not noun.categories & {"person", "wild_animal", "building", "outdoors", "nature"}:
            determiners += [(word, False, None) for word in POSSESSIVES]
            determiners += [("", False, NAMES[(turn + i) % len(NAMES)]) for i in range(4)]
        yield Family(noun.english, (), partial(_whereabouts, noun), (tuple(determiners),))


ANIMALS_THAT = {
    "dormir": "pet farmed bear lion -horse",
    "courir": "dog cat rabbit horse wolf mouse bear elephant",
    "nager": "dog duck fish goose bear elephant",
    "sauter": "pet monkey horse",
    "jouer": "dog cat monkey bear",
}
AT = "school hospital restaurant hotel bank shop farm factory library museum theatre cinema station church"


def place_of(noun: Noun) -> Place:
    if noun in select(AT):
        return Place(PREPOSITIONS["at"], noun)
    return Place(PREPOSITIONS["on" if noun.english == "beach" else "in"], noun)


def _activity(verb: Verb, place: Place | None, subject: Subject, form) -> Clause:
    tense, mode, frequency, time = form
    return Clause(subject, verb, tense, mode, place=place, frequency=frequency, time=time)


def _activity_forms(verb: Verb, tenses: str) -> tuple:
    plain = [(tense, mode, None, None) for tense in tenses for mode in MODES]
    timed = [
        (tense, mode, None, time)
        for time in times().values()
        for tense in time.tenses
        for mode in ("statement", "question")
        if tense in tenses and (tense != "h" or mode == "statement")
    ]
    often = [("h", "statement", adverb, None) for adverb in frequencies().values()]
    return (*plain, *timed, *(often if "h" in tenses else ()))


def activities() -> Iterator[Family]:
    for verb in intransitive().values():
        animals = [NounPhrase(noun, "the") for noun in select(ANIMALS_THAT.get(verb.french, ""))]
        who = (*subjects("activity", verb.french, count=14), *animals)
        build = partial(_activity, verb, None)
        yield Family(verb.french, (), build, (who, _activity_forms(verb, verb.tenses)))


def activities_somewhere() -> Iterator[Family]:
    for verb in intransitive().values():
        animals = [NounPhrase(noun, "the") for noun in select(ANIMALS_THAT.get(verb.french, ""))]
        forms = _activity_forms(verb, verb.tenses.replace("p", ""))
        for noun in verb.objects:
            who = (*subjects(verb.french, noun.english, count=6), *animals[:2])
            build = partial(_activity, verb, place_of(noun))
            yield Family(verb.french, _pairings(verb, noun), build, (who, forms))


def _journey(verb: Verb, noun: Noun, choice) -> Clause:
    subject, (tense, mode, frequency, time) = choice
    phrase = NounPhrase(noun, "the")
    return Clause(subject, verb, tense, mode, phrase, frequency=frequency, time=time)


def journeys() -> Iterator[Family]:
    for verb in motion().values():
        forms = _activity_forms(verb, verb.tenses)
        for noun in verb.objects:
            choices = tuple(
                (subject, form)
                for subject in subjects(verb.french, noun.english, count=6)
                for form in forms
                # "I went": allé or allée?
                if not (form[0] == "p" and subject.person == FIRST_SINGULAR)
            )
            build = partial(_journey, verb, noun)
            yield Family(verb.french, _pairings(verb, noun), build, (choices,))


TEMPLATES = (
    Template("actions", 18, actions),
    Template("actions_on_described_things", 20, actions_on_described_things),
    Template("timed_actions", 8, timed_actions),
    Template("habits", 7, habits),
    Template("what_questions", 2, what_questions),
    Template("who_questions", 3, who_questions),
    Template("pronoun_objects", 5, pronoun_objects),
    Template("gifts", 3, gifts),
    Template("predications", 9, predications),
    Template("states_of_people", 4, states_of_people),
    Template("identities", 2, identities),
    Template("existences", 6, existences),
    Template("locations", 4, locations),
    Template("where_questions", 1, where_questions),
    Template("activities", 2, activities),
    Template("activities_somewhere", 4, activities_somewhere),
    Template("journeys", 4, journeys),
)
