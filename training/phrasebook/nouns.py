"""The nouns, of words/nouns.tsv.

`plural` is an irregular English plural, `gender` the French one, `feminine` the French word for a
woman, `measure` the Chinese measure word. Of the categories, `mass` nouns are not counted, `paired`
ones are said in the plural, `ruler` in the singular; one is "at" an `at`, not in it; `worn` and
`kin` change a verb or a possessive in Chinese.
"""

from dataclasses import dataclass
from functools import cache

from training.phrasebook.tables import rows


@dataclass(frozen=True, eq=False)
class Noun:
    """A noun in the three languages.

    `french_of_a_woman` differs for some jobs; `measure` is the Chinese measure word.
    """

    english: str
    english_plural: str
    french: str
    french_of_a_woman: str
    feminine: bool
    chinese: str
    measure: str
    categories: frozenset[str]

    @property
    def mass(self) -> bool:
        """Whether the noun is not counted."""
        return "mass" in self.categories


def english_plural(noun: str) -> str:
    """The regular plural: the table spells out knives and mice."""
    return noun[:-1] + "ies" if noun[-1] == "y" and noun[-2] not in "aeo" else noun + "s"


@cache
def nouns() -> dict[str, Noun]:
    """Every noun, by its English singular."""
    return {
        row["english"]: Noun(
            english=row["english"],
            english_plural=row["plural"] or english_plural(row["english"]),
            french=row["french"],
            french_of_a_woman=row["feminine"] or row["french"],
            feminine=row["gender"] == "f",
            chinese=row["chinese"],
            measure=row["measure"],
            categories=frozenset(row["categories"].split()),
        )
        for row in rows("nouns")
    }


@cache
def _members() -> dict[str, list[Noun]]:
    """Nouns by name and by category."""
    members: dict[str, list[Noun]] = {}
    for noun in nouns().values():
        for name in (noun.english, *noun.categories):
            members.setdefault(name, []).append(noun)
    return members


def select(specification: str) -> list[Noun]:
    """The nouns of a list of categories and single nouns; `-x` takes category or noun x out."""
    chosen: dict[str, Noun] = {}
    for word in specification.split():
        for noun in _members()[word.removeprefix("-")]:
            if word.startswith("-"):
                chosen.pop(noun.english, None)
            else:
                chosen[noun.english] = noun
    return list(chosen.values())


def words_for(rule: str) -> dict[str, str]:
    """A word for some nouns, by the nouns' English, of a rule as "戴=worn"; empty for ""."""
    word, _, names = rule.partition("=")
    return {noun.english: word for noun in select(names)}
