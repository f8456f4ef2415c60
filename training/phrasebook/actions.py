"""Families of clauses: somebody does something, somewhere, at some time."""

from collections.abc import Iterator
from functools import cache, partial

from training.phrasebook.adjectives import Adjective
from training.phrasebook.families import Family, Form, Pairing, SubjectsAndForms, some, stable_hash
from training.phrasebook.nouns import Noun, select
from training.phrasebook.phrases import (
    POSSESSIVES,
    adjectives_of,
    noun_subjects,
    number,
    object_determiners,
    subjects,
)
from training.phrasebook.sentences import (
    FIRST_PERSON,
    FIRST_PLURAL,
    FIRST_SINGULAR,
    NAMES,
    PREPOSITIONS,
    PRONOUNS,
    WHO,
    Clause,
    Mode,
    NounPhrase,
    Place,
    Pronoun,
    Subject,
    frequencies,
    times,
)
from training.phrasebook.verbs import Verb, verbs

ASKED: tuple[Mode, ...] = ("statement", "question")
MODES: tuple[Mode, ...] = ("statement", "negative", "question")


def _pairings(verb: Verb, noun: Noun, adjective: Adjective | None = None) -> tuple[Pairing, ...]:
    pair = (verb.lemma, noun.english)
    return (pair, (adjective.english, noun.english)) if adjective else (pair,)


def _clause(
    verb: Verb, noun: Noun, adjective: Adjective | None, choice: tuple[Subject, Form]
) -> Clause:
    subject, form = choice
    phrase = NounPhrase(noun, form.determiner, form.plural, adjective)
    return Clause(
        subject, verb, form.tense, form.mode, phrase, time=form.time, frequency=form.frequency
    )


@cache
def _forms(verb: Verb, noun: Noun) -> list[Form]:
    found: list[Form] = []
    for tense in verb.tenses:
        forms = [
            Form(tense, mode, *determined)
            for mode in MODES
            for determined in object_determiners(verb, noun, tense, mode)
        ]
        # Infinitives are one form for all persons: fewer examples do.
        found += some(forms, 7, verb.lemma, noun.english, tense) if tense in "wn" else forms
    return found


def actions() -> Iterator[Family]:
    """She is eating an apple. Does he like apples?"""
    for verb in verbs("transitive"):
        for noun in verb.objects:
            key = (verb.lemma, noun.english)
            who = subjects(*key, count=2, excluded=noun)
            forms = some(_forms(verb, noun), 40, *key)
            build = partial(_clause, verb, noun, None)
            yield Family(verb.french, _pairings(verb, noun), build, (SubjectsAndForms(who, forms),))


def actions_on_described_things() -> Iterator[Family]:
    """She is eating a green apple."""
    for verb in verbs("transitive"):
        for noun in verb.objects:
            forms = [form for form in _forms(verb, noun) if form.determiner not in POSSESSIVES]
            for adjective in adjectives_of(noun) if forms else ():
                key = (verb.lemma, noun.english, adjective.english)
                who = subjects(*key, count=2, excluded=noun)
                options = (SubjectsAndForms(who, some(forms, 6, *key)),)
                build = partial(_clause, verb, noun, adjective)
                yield Family(adjective.english, _pairings(verb, noun, adjective), build, options)


def timed_actions() -> Iterator[Family]:
    """She bought a car last week."""
    for verb in verbs("transitive"):
        timed = [
            (tense, mode, time)
            for time in times().values()
            for tense in time.tenses
            for mode in ASKED
            if tense in verb.tenses and tense != "h"
        ]
        for noun in verb.objects if timed else ():
            key = ("timed", verb.lemma, noun.english)
            forms = [
                Form(tense, mode, determiner, plural, time=time)
                for tense, mode, time in some(timed, 8, *key)
                for determiner, plural in object_determiners(verb, noun, tense, mode)
                if determiner in ("a", "the", "", *POSSESSIVES)
            ]
            if forms:
                who = subjects(*key, count=1, excluded=noun)
                options = (SubjectsAndForms(who, some(forms, 24, *key)),)
                build = partial(_clause, verb, noun, None)
                yield Family(verb.french, _pairings(verb, noun), build, options)


@cache
def _habitual() -> tuple[Form, ...]:
    often = [Form("h", "statement", frequency=adverb) for adverb in frequencies().values()]
    return (*often, *(Form("h", "statement", time=t) for t in times().values() if "h" in t.tenses))


def habits() -> Iterator[Family]:
    """She never eats meat. She reads books in winter."""
    for verb in verbs("transitive"):
        for noun in verb.objects if "h" in verb.tenses else ():
            for determiner, plural in object_determiners(verb, noun, "h", "statement"):
                who = subjects("habit", verb.lemma, noun.english, excluded=noun)
                forms = [f._replace(determiner=determiner, plural=plural) for f in _habitual()]
                options = (SubjectsAndForms(who, forms),)
                build = partial(_clause, verb, noun, None)
                yield Family(verb.french, _pairings(verb, noun), build, options)


def _question(verb: Verb, subject: Subject, tense: str) -> Clause:
    return Clause(subject, verb, tense, "what")


def what_questions() -> Iterator[Family]:
    """Questions for the object: What is she eating?"""
    for verb in verbs("transitive"):
        tenses = [tense for tense in verb.tenses if tense in "cpfs"]
        if "q" in verb.uses and tenses:
            who = subjects("what", verb.lemma, count=20)[1:]
            yield Family(verb.french, (), partial(_question, verb), (who, tenses))


def _who(verb: Verb, noun: Noun, form: Form) -> Clause:
    return _clause(verb, noun, None, (WHO, form))


def who_questions() -> Iterator[Family]:
    """Who is eating the apple?"""
    for verb in verbs("transitive"):
        for noun in verb.objects:
            forms = [form for form in _forms(verb, noun) if form.mode == "statement"]
            yield Family(verb.french, _pairings(verb, noun), partial(_who, verb, noun), (forms,))


def _with_pronoun(verb: Verb, pronoun: Pronoun, choice: tuple[Subject, Form]) -> Clause:
    subject, form = choice
    return Clause(subject, verb, form.tense, form.mode, pronoun)


def pronoun_objects() -> Iterator[Family]:
    """She is helping him."""
    first = {FIRST_SINGULAR, FIRST_PLURAL}
    for verb in (verb for verb in verbs("transitive") if "o" in verb.uses):
        for pronoun in PRONOUNS:
            who = [
                subject
                for subject in subjects("pronoun", verb.lemma, pronoun.english, count=16)
                if not {subject.person, pronoun.person} <= first
            ]
            # "He saw me": vu or vue?
            tenses = "cfs" if pronoun.person == FIRST_SINGULAR else "cpfs"
            forms = [
                Form(tense, mode) for tense in verb.tenses for mode in MODES if tense in tenses
            ]
            options = (SubjectsAndForms(who, forms),)
            # "He saw her": no other object brings "vue" about.
            pairings = () if pronoun.feminine else ((verb.lemma, pronoun.english_object),)
            yield Family(verb.french, pairings, partial(_with_pronoun, verb, pronoun), options)


def _gift(verb: Verb, noun: Noun, choice: tuple[Subject, Form], recipient) -> Clause:
    subject, form = choice
    phrase = NounPhrase(noun, form.determiner, form.plural)
    return Clause(subject, verb, form.tense, form.mode, phrase, recipient=recipient)


def gifts() -> Iterator[Family]:
    """She gives a book to my sister."""
    others = noun_subjects()
    for verb in verbs("giving"):
        for noun in verb.objects:
            turn = stable_hash("gift", verb.lemma, noun.english)
            recipients = [others[(turn + 11 * i) % len(others)] for i in range(6)]
            names = [NAMES[(turn + i) % len(NAMES)] for i in range(4)]
            who: tuple[Subject, ...] = (
                *PRONOUNS,
                *(name for name in names if name not in recipients),
            )
            forms = [
                Form(tense, mode, *determined)
                for tense in verb.tenses
                for mode in ASKED
                for determined in (("a", False), (number(verb.lemma, noun.english), True))
            ]
            options = (SubjectsAndForms(who, forms), recipients)
            yield Family(verb.french, _pairings(verb, noun), partial(_gift, verb, noun), options)


def place_of(noun: Noun) -> Place:
    """ "At the hospital", "in the garden"."""
    if "at" in noun.categories:
        return Place(PREPOSITIONS["at"], noun)
    return Place(PREPOSITIONS["on" if noun.english == "beach" else "in"], noun)


def _activity(verb: Verb, place: Place | None, choice: tuple[Subject, Form]) -> Clause:
    subject, form = choice
    return Clause(
        subject,
        verb,
        form.tense,
        form.mode,
        place=place,
        time=form.time,
        frequency=form.frequency,
    )


def _activity_forms(tenses: str, *, lasting: bool) -> list[Form]:
    plain = [Form(tense, mode) for tense in tenses for mode in MODES]
    timed = [
        Form(tense, mode, time=time)
        for name, time in times().items()
        for tense in time.tenses
        for mode in ASKED
        if tense in tenses
        and not (tense == "h" and mode == "question")
        and (lasting or not name.endswith(("week", "month")))
    ]
    often = [Form("h", "statement", frequency=adverb) for adverb in frequencies().values()]
    return [*plain, *timed, *(often if "h" in tenses else ())]


def activities() -> Iterator[Family]:
    """She is sleeping. The cat will sleep."""
    for verb in verbs("intransitive"):
        animals = [NounPhrase(noun, "the") for noun in verb.animals]
        who = (*subjects("activity", verb.french, count=2), *animals)
        forms = _activity_forms(verb.tenses, lasting="lasting" in verb.marks)
        yield Family(
            verb.french, (), partial(_activity, verb, None), (SubjectsAndForms(who, forms),)
        )


def activities_somewhere() -> Iterator[Family]:
    """She is sleeping in the garden."""
    for verb in verbs("intransitive"):
        animals = [NounPhrase(noun, "the") for noun in verb.animals]
        # Chinese has no one way to say that somebody slept somewhere.
        forms = _activity_forms(verb.tenses.replace("p", ""), lasting="lasting" in verb.marks)
        for noun in verb.objects:
            indoors = noun.categories & {"room", "building", "vehicle"}
            who = (*subjects(verb.french, noun.english), *(() if indoors else animals))
            build = partial(_activity, verb, place_of(noun))
            options = (SubjectsAndForms(who, forms),)
            yield Family(verb.french, _pairings(verb, noun), build, options)


def journeys() -> Iterator[Family]:
    """She goes to the market every day."""
    # They alone bring "allées" about.
    women = [NounPhrase(noun, "the", True) for noun in select("woman girl")]
    for verb in verbs("motion"):
        forms = [f._replace(determiner="the") for f in _activity_forms(verb.tenses, lasting=True)]
        for noun in verb.objects:
            who = dict.fromkeys((*subjects(verb.french, noun.english), *women))
            choices = [
                choice
                for choice in SubjectsAndForms(list(who), forms)
                # "I went": allé or allée?
                if not (choice[0] is FIRST_PERSON and choice[1].tense == "p")
            ]
            build = partial(_clause, verb, noun, None)
            yield Family(verb.french, _pairings(verb, noun), build, (choices,))
