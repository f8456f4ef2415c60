"""Sentences in French.

"They" is always "ils" and a question always has "est-ce que", so that the English determines the
French.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from training.phrasebook.adjectives import Adjective
from training.phrasebook.french_verbs import conjugate
from training.phrasebook.nouns import Noun
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
    frequencies,
)
from training.phrasebook.tables import rows

VOWELS = frozenset("aàâeéèêëiîïoôuùûœh")  # no h of the lexicon is aspirated
ELIDED = {word: word[:-1] + "'" for word in ("je", "me", "ne", "le", "de", "que")} | {"la": "l'"}
# The forms of numbers and possessives: masculine, feminine, plural.
DETERMINERS = {
    row["english"]: (row["masculine"], row["feminine"], row["plural"])
    for row in rows("determiners")
}
# The words that turn a statement into a question.
QUESTION = (("est-ce", "q?"), ("que", "q?"))
# The verb before a participle or an infinitive; some participles take "être".
AUXILIARIES = {"p": "avoir", "w": "vouloir", "n": "pouvoir"}


def starts_with_vowel(word: str) -> bool:
    """Whether the word makes "le" or "je" lose its vowel."""
    return word[0].lower() in VOWELS or word == "y"


def plural(word: str) -> str:
    """The plural of a noun or adjective: livres, chevaux, gâteaux, bras."""
    if word.endswith(("s", "x", "z")):
        return word
    if word.endswith("al"):
        return word[:-1] + "ux"
    if word.endswith(("au", "eu")) and word != "bleu":
        return word + "x"
    if word.startswith("grand-"):
        return "grands-" + word.removeprefix("grand-") + "s"
    return word + "s"


def adjective_form(
    adjective: Adjective, feminine: bool, is_plural: bool, following: str = "."
) -> str:
    """The adjective agreeing with its noun, before the word `following`."""
    if adjective.invariable:
        return adjective.french[0]
    form = adjective.french[feminine]
    if is_plural:
        return plural(form)
    if not feminine and starts_with_vowel(following):
        return adjective.french[2]
    return form


def _determiner(phrase: NounPhrase, following: str, definite: bool, negated: bool) -> list[str]:
    """The article or other determiner before the word `following`."""
    determiner, noun, feminine = phrase.determiner, phrase.noun, phrase.noun.feminine
    before_vowel = starts_with_vowel(following)
    if determiner == "this":
        singular = "cette" if feminine else "cet" if before_vowel else "ce"
        return ["ces" if phrase.plural else singular]
    if determiner in DETERMINERS:
        masculine_form, feminine_form, plural_form = DETERMINERS[determiner]
        if phrase.plural:
            return [plural_form]
        return [feminine_form if feminine and not before_vowel else masculine_form]
    definite = definite or bool(noun.categories & {"language", "sport"})
    indefinite = determiner in ("a", "some", "any") or (determiner == "" and not definite)
    if indefinite and phrase.owner is None:
        if negated:
            return ["de"]
        if phrase.plural:
            before_adjective = phrase.adjective is not None and phrase.adjective.french_before
            return ["de" if before_adjective else "des"]
        if noun.mass:
            return ["de", "la"] if feminine or before_vowel else ["du"]
        return ["une" if feminine else "un"]
    return ["les" if phrase.plural else "la" if feminine else "le"]


@cache
def noun_phrase(
    phrase: NounPhrase,
    roles: str,
    *,
    definite: bool = False,
    negated: bool = False,
    preposition: str = "",
    preposition_tag: str = "",
) -> tuple[Word, ...]:
    """Words of a noun phrase; `roles` are the tags of determiner, adjective and noun.

    `definite` puts the definite article where English has none, `negated` "de" for an indefinite
    one; a preposition "à" or "de" melts into "le" and "les".
    """
    noun, adjective = phrase.noun, phrase.adjective
    french = plural(noun.french) if phrase.plural else noun.french
    words = [(french, roles[2])]
    if adjective and adjective.french_before:
        form = adjective_form(adjective, noun.feminine, phrase.plural, french)
        words.insert(0, (form, roles[1]))
    elif adjective:
        form = adjective_form(adjective, noun.feminine, phrase.plural)
        words.append((form, roles[1]))
    if phrase.owner:
        words += [("de", "o?"), (phrase.owner.text, "o")]
    following = words[0][0]
    determiner = _determiner(phrase, following, definite, negated)
    tag = roles[0] if phrase.determiner else roles[2] + "?"
    if preposition in ("à", "de"):
        melted = {"àle": "au", "àles": "aux", "dele": "du", "deles": "des"}
        whole = melted.get(preposition + determiner[0])
        if whole and not (determiner[0] == "le" and starts_with_vowel(following)):
            determiner, tag = [whole], tag + preposition_tag
            preposition = ""
    before = [(preposition, preposition_tag)] if preposition else []
    *partitive, article = determiner
    before += [(word, tag.rstrip("?") + "?") for word in partitive]
    return (*before, (article, tag), *words)


def _subject_words(subject: Subject) -> tuple[Word, ...]:
    if isinstance(subject, NounPhrase):
        return noun_phrase(subject, "das")
    if isinstance(subject, Name):
        return ((subject.text, "s"),)
    return ((subject.french, subject.tag),)


def _place_words(place: Place) -> tuple[Word, ...]:
    *before, (preposition, tag) = place.preposition.french
    phrase = NounPhrase(place.noun, "the")
    last = noun_phrase(phrase, "eeP", preposition=preposition, preposition_tag=tag)
    return (*before, *last)


def _never(clause: Clause) -> bool:
    return clause.frequency is frequencies()["never"]


def _verb(clause: Clause) -> list[Word]:
    """The verb group: negation, object pronoun, auxiliary, adverb of frequency, verb."""
    verb = conjugate(clause.verb.infinitive)
    subject, tense = clause.subject, clause.tense
    person = subject.person
    if tense in AUXILIARIES:
        auxiliary = "être" if tense == "p" and verb.etre else AUXILIARIES[tense]
        group = [(conjugate(auxiliary).present[person], "x?" if tense == "p" else "x")]
        main = [(_participle(clause) if tense == "p" else verb.infinitive, "v")]
    else:
        forms = verb.future if tense == "f" else verb.present
        group, main = [(forms[person], "vx")], []
    if isinstance(clause.object, Pronoun):
        group.insert(0, (clause.object.french_object, "S"))
    if clause.mode == "negative":
        group = [("ne", "n?"), *group, ("pas", "n")]
    elif _never(clause):
        group.insert(0, ("ne", "f?"))
    if clause.frequency:
        group += clause.frequency.french
    return group + main


def _participle(clause: Clause) -> str:
    """The participle, which agrees with an object before it, or with the subject of être."""
    verb = conjugate(clause.verb.infinitive)
    if verb.etre:
        agreeing = clause.subject
    elif isinstance(clause.object, Pronoun):
        agreeing = clause.object
    else:
        return verb.past_participle
    form = verb.past_participle + ("e" if agreeing.feminine else "")
    return plural(form) if agreeing.person > THIRD_SINGULAR else form


def _object(clause: Clause) -> tuple[Word, ...]:
    verb = clause.verb
    return noun_phrase(
        clause.object,
        "DAS",
        definite=bool(verb.marks & {"taste", "definite"}),
        negated=clause.mode == "negative" or _never(clause),
        preposition=verb.preposition,
        preposition_tag="v?",
    )


def _clause(clause: Clause) -> list[Word]:
    words: list[Word] = []
    if clause.mode == "question":
        words = [*QUESTION]
    elif clause.mode == "what":
        words = [("que", "w"), *QUESTION]
    words += _subject_words(clause.subject)
    words += _verb(clause)
    if isinstance(clause.object, NounPhrase):
        words += _object(clause)
    if isinstance(clause.recipient, Name):
        words += [("à", "r"), (clause.recipient.text, "I")]
    elif clause.recipient:
        words += noun_phrase(clause.recipient, "RRI", preposition="à", preposition_tag="r")
    if clause.place:
        words += _place_words(clause.place)
    if clause.time:
        words += clause.time.french
    question = clause.mode in ("question", "what") or clause.subject is WHO
    words.append(("?" if question else ".", "."))
    return words


def _be(subject: Subject, mode: str) -> list[Word]:
    be = (conjugate("être").present[subject.person], "x")
    verb = [("ne", "n?"), be, ("pas", "n")] if mode == "negative" else [be]
    asking = QUESTION if mode == "question" else ()
    return [*asking, *_subject_words(subject), *verb]


def _mark(mode: str) -> Word:
    return ("?" if mode in ("question", "where") else ".", ".")


def _predication(sentence: Predication) -> list[Word]:
    subject = sentence.subject
    words = _be(subject, sentence.mode)
    if sentence.degree:
        words += sentence.degree.french
    form = adjective_form(sentence.adjective, subject.feminine, subject.person > THIRD_SINGULAR)
    return [*words, (form, "j"), _mark(sentence.mode)]


def _job_form(job: Noun, feminine: bool, is_plural: bool) -> str:
    form = job.french_of_a_woman if feminine else job.french
    return plural(form) if is_plural else form


def _identity(sentence: Identity) -> list[Word]:
    subject = sentence.subject
    job = _job_form(sentence.job, subject.feminine, subject.person > THIRD_SINGULAR)
    return [*_be(subject, sentence.mode), (job, "j"), _mark(sentence.mode)]


def _existence(sentence: Existence) -> list[Word]:
    negative = sentence.mode == "negative"
    asking = QUESTION if sentence.mode == "question" else ()
    ne, pas = ([("ne", "n?")], [("pas", "n")]) if negative else ([], [])
    words = [*asking, ("il", "x?"), *ne, ("y", "x?"), ("a", "x"), *pas]
    words += noun_phrase(sentence.phrase, "DAS", negated=negative)
    return [*words, *_place_words(sentence.place), _mark(sentence.mode)]


def _location(sentence: Location) -> list[Word]:
    if sentence.mode == "where":
        be = (conjugate("être").present[sentence.subject.person], "x")
        return [("où", "w"), be, *_subject_words(sentence.subject), ("?", ".")]
    words = _be(sentence.subject, sentence.mode)
    return [*words, *_place_words(sentence.place), _mark(sentence.mode)]


_REALISERS: dict[type, Callable[[Any], list[Word]]] = {
    Clause: _clause,
    Predication: _predication,
    Identity: _identity,
    Existence: _existence,
    Location: _location,
}


def words(sentence: Sentence) -> list[Word]:
    """The sentence's words with their tags, elided, in lower case but for names."""
    words = _REALISERS[type(sentence)](sentence)
    for i, (word, tags) in enumerate(words):
        if word in ELIDED and starts_with_vowel(words[i + 1][0]):
            words[i] = (ELIDED[word], tags)
    return words


def text(words: list[str]) -> str:
    """The words as written: none between an elided word and the next, one before "?"."""
    spaced = " ".join(words[:-1]).replace("' ", "'")
    return spaced + (" ?" if words[-1] == "?" else words[-1])
