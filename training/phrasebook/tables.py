"""The tables of words: tab-separated files with a line of column names."""

import csv
from pathlib import Path

WORDS = Path(__file__).parent / "words"

Row = dict[str, str]


def rows(table: str) -> list[Row]:
    """The rows of a table by its name; an empty cell is ""."""
    with (WORDS / f"{table}.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, restval="", delimiter="\t", quoting=csv.QUOTE_NONE))
