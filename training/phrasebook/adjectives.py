"""The adjectives, of words/adjectives.tsv, with the nouns that they go with.

An adjective without nouns is a state, said of people alone: "She is tired." `degrees` are the
adverbs that go with it. French is masculine; `feminine` and `before_vowel` are irregular forms.
`chinese_for` gives another word for some nouns, as in `老=animal`. The marks:

    before        stands before its noun in French
    invariable    never changes in French
    linked        takes 的 before its noun in Chinese
    classifying   is a predicate as 是 … 的 in Chinese
    attributive   is no predicate: "the towel is new" would be "neuve"
"""

from dataclasses import dataclass
from functools import cache

from training.phrasebook.nouns import Noun, select, words_for
from training.phrasebook.tables import Row, rows


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective in the three languages.

    `french` holds masculine, feminine, and the masculine before a vowel; `french_before` tells that
    it stands before its noun. `linked` adjectives take 的, `classifying` ones 是 … 的. `degrees`
    are the adverbs that go with it.
    """

    english: str
    french: tuple[str, str, str]
    french_before: bool
    invariable: bool
    chinese: str
    chinese_by_noun: dict[str, str]
    linked: bool
    classifying: bool
    nouns: tuple[Noun, ...]
    degrees: tuple[str, ...]
    predicate: bool


def _read(row: Row) -> Adjective:
    marks, masculine = row["marks"].split(), row["french"]
    unchanged = "invariable" in marks or masculine.endswith("e")
    feminine = row["feminine"] or masculine + ("" if unchanged else "e")
    return Adjective(
        english=row["english"],
        french=(masculine, feminine, row["before_vowel"] or masculine),
        french_before="before" in marks,
        invariable="invariable" in marks,
        chinese=row["chinese"],
        chinese_by_noun=words_for(row["chinese_for"]),
        linked="linked" in marks,
        classifying="classifying" in marks,
        nouns=tuple(select(row["nouns"])),
        degrees=tuple(row["degrees"].split()),
        predicate="attributive" not in marks,
    )


@cache
def adjectives() -> dict[str, Adjective]:
    """The adjectives that go with nouns, by their English form."""
    return {row["english"]: _read(row) for row in rows("adjectives") if row["nouns"]}


@cache
def states() -> dict[str, Adjective]:
    """The adjectives said of people."""
    return {row["english"]: _read(row) for row in rows("adjectives") if not row["nouns"]}
