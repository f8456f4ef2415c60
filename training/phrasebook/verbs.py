"""The verbs, of words/verbs.tsv, with their uses and the objects or places that go with them.

`kind` tells what the objects are: things (`transitive`), places where it is done (`intransitive`),
places one goes to (`motion`), things that somebody gets (`giving`). `particle` is the second
English word, as in "look for", `past` an irregular past, `preposition` that before the French
object; `jouer_de` and `jouer_à` are two verbs. `chinese_for` gives another word for some objects,
as in `戴=worn`. `animals` do it too. The uses are the tenses and two more:

    c  is eating        p  ate           f  will eat      w  wants to eat
    n  can eat          h  eats, of a habit               s  likes, of a state
    q  what is she eating?                                o  she is helping him

The marks:

    taste      its objects are whole kinds: "I like apples"
    definite   French takes the definite article where English has none, as with `taste`
    generic    its object is "the" one of a habit too: "she takes the bus"
    known      the places that one crosses and leaves are known: no "a"
    owning     its object is indefinite
    lasting    done for so long, or so rarely, that "last week" and "next month" suit it
"""

from dataclasses import dataclass
from functools import cache
from typing import Literal

from training.phrasebook.nouns import Noun, select, words_for
from training.phrasebook.tables import Row, rows

TENSES = "cpfwnhs"

Kind = Literal["transitive", "intransitive", "motion", "giving"]


@dataclass(frozen=True, eq=False)
class Verb:
    """A verb in the three languages; `tenses` are those of its uses that are tenses."""

    english: str
    english_past: str
    particle: str
    french: str
    preposition: str
    chinese: str
    chinese_by_object: dict[str, str]
    tenses: str
    uses: str
    marks: frozenset[str]
    objects: tuple[Noun, ...]
    animals: tuple[Noun, ...]

    @property
    def lemma(self) -> str:
        """The English infinitive: "look for"."""
        return f"{self.english} {self.particle}".rstrip()

    @property
    def infinitive(self) -> str:
        """The French infinitive, without what tells two verbs apart."""
        return self.french.partition("_")[0]


def english_past(verb: str) -> str:
    """The regular past."""
    if verb.endswith("e"):
        return verb + "d"
    if verb[-1] == "y" and verb[-2] not in "aeo":
        return verb[:-1] + "ied"
    return verb + "ed"


def _read(row: Row) -> Verb:
    return Verb(
        english=row["english"],
        english_past=row["past"] or english_past(row["english"]),
        particle=row["particle"],
        french=row["french"],
        preposition=row["preposition"],
        chinese=row["chinese"],
        chinese_by_object=words_for(row["chinese_for"]),
        tenses="".join(use for use in row["uses"] if use in TENSES),
        uses=row["uses"],
        marks=frozenset(row["marks"].split()),
        objects=tuple(select(row["objects"])),
        animals=tuple(select(row["animals"])),
    )


@cache
def verbs(kind: Kind) -> tuple[Verb, ...]:
    """The verbs of a kind."""
    return tuple(_read(row) for row in rows("verbs") if row["kind"] == kind)
