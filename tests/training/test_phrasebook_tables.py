"""The tables of words: what their cells may hold."""

import re

import pytest

from training.phrasebook import tables
from training.phrasebook.nouns import select
from training.phrasebook.tables import rows

NAMES = sorted(path.stem for path in tables.WORDS.iterdir())
# The marks that the docstrings list and the grammar asks for.
MARKS = {
    "adjectives": {"before", "invariable", "linked", "classifying", "attributive"},
    "verbs": {"taste", "definite", "generic", "known", "owning", "lasting"},
}
LATIN, CHINESE = r"[a-zéèêëàâîïôûçœ' \-_]", r"[\u4e00-\u9fff]"
COLUMNS = {
    "english": rf"(?i){LATIN}+|{LATIN}+[\d/?A-Za-z ]*",
    "french": rf"(?i){LATIN}+|{LATIN}+[\d/?a-zéèêàûç ]*",
    "chinese": rf"({CHINESE}+(/\d+)?( |$))*",
    "measure": rf"{CHINESE}?",
    "gender": "[mf]?",
    "uses": "(?!.*(.).*\\1)[cpfwnhsqo]+",
    "tenses": "[cpfwnhs]*",
    "degrees": "(very( too)?)?",
    "auxiliary": "(être)?",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_table_has_its_columns_and_distinct_rows(name):
    lines = (tables.WORDS / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
    width = lines[0].count("\t")
    assert [line for line in lines if line.count("\t") != width or '"' in line] == []
    assert len(set(lines)) == len(lines) > 5
    for row in rows(name):
        assert None not in row
        assert [cell for cell in row.values() if cell != " ".join(cell.split())] == []
        for column, form in COLUMNS.items():
            assert re.fullmatch(form, row.get(column, "c")) or column not in row, (column, row)


@pytest.mark.parametrize("name", MARKS)
def test_marks_are_those_of_the_grammar(name):
    found = {mark for row in rows(name) for mark in row["marks"].split()}
    assert found == MARKS[name]


def test_another_chinese_word_is_for_nouns_that_the_row_names():
    for row in [*rows("adjectives"), *rows("verbs")]:
        _, _, exceptions = row["chinese_for"].partition("=")
        nouns = select(row.get("nouns") or row.get("objects", ""))
        assert not exceptions or set(select(exceptions)) & set(nouns), row


def test_no_noun_is_there_twice():
    english = [row["english"] for row in rows("nouns")]
    assert len(set(english)) == len(english)
