"""French conjugation: present, future and past participle of the grammar's verbs.

words/conjugations.tsv has the irregular verbs, and those whose past takes "être": the present for
je, il, nous and ils, the stem of the future, and the participle.
"""

from dataclasses import dataclass
from functools import cache

from training.phrasebook.tables import rows

PERSONS = ("je", "il", "nous", "ils")
FUTURE_ENDINGS = ("ai", "a", "ons", "ont")


@dataclass(frozen=True)
class Conjugation:
    """Forms for je, il, nous, ils; `etre` verbs build their past with être."""

    infinitive: str
    present: tuple[str, ...]
    future: tuple[str, ...]
    past_participle: str
    etre: bool


def _regular(verb: str) -> tuple[tuple[str, ...], str, str]:
    """Present, stem of the future, and participle of verbs in -er and of those like finir."""
    stem = verb[:-2]
    if verb.endswith("ir"):
        return (stem + "is", stem + "it", stem + "issons", stem + "issent"), verb, stem + "i"
    if not verb.endswith("er"):
        raise ValueError(f"{verb!r} needs a row among the irregular verbs")
    singular, future = stem, verb
    if verb.endswith("oyer"):
        singular = stem[:-1] + "i"
        future = singular + "er"
    plural = stem
    if stem.endswith("g"):
        plural = stem + "e"
    elif stem.endswith("c"):
        plural = stem[:-1] + "ç"
    return (singular + "e", singular + "e", plural + "ons", singular + "ent"), future, stem + "é"


@cache
def _irregular() -> dict[str, Conjugation]:
    return {
        row["infinitive"]: _conjugation(
            row["infinitive"],
            tuple(row[person] for person in PERSONS),
            row["future"],
            row["participle"],
            etre=row["auxiliary"] == "être",
        )
        for row in rows("conjugations")
    }


def _conjugation(
    verb: str, present: tuple[str, ...], future: str, participle: str, *, etre: bool = False
) -> Conjugation:
    futures = tuple(future + ending for ending in FUTURE_ENDINGS)
    return Conjugation(verb, present, futures, participle, etre)


@cache
def conjugate(verb: str) -> Conjugation:
    """The forms of a verb, given its infinitive."""
    return _irregular().get(verb) or _conjugation(verb, *_regular(verb))
