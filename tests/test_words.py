"""How pages read: README and how-to pages talk to the reader, in short sentences, without evidence.

Prose is paragraphs and lists, without code, tables, headings, HTML and addresses of links.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Evidence has dates, machines and commits; these pages have none.
EVIDENCE = [*DOCS.glob("results/*.md"), DOCS / "results.md", DOCS / "performance.md"]
PAGES = sorted({ROOT / "README.md", *DOCS.glob("*.md"), *DOCS.glob("*/*.md")} - {*EVIDENCE})
PAGES = [path for path in PAGES if "_site" not in path.parts]
HOW_TO = [
    *(ROOT / "README.md", DOCS / "index.md", DOCS / "questions.md", DOCS / "migration.md"),
    *(path for path in sorted(DOCS.glob("guides/*.md")) if path.stem != "fast"),
    *(DOCS / "scale.md", DOCS / "scale" / "devices.md", DOCS / "serving" / "load.md"),
]
WORD = r"\S*\w\S*"
EVIDENT = re.compile(
    r"\b20[12]\d-\d\d-\d\d\b|\bcommit [0-9a-f]{7}|\b(Xeon|EPYC|AVX-512)\b|TensorFlow 2\.\d+\.\d"
)
MOST_IN_CELL, LONG, MOST_LONG, MOST_COMMAS, LEAST_YOU = 20, 30, 0.05, 1.0, 10


def name(path):
    return path.relative_to(ROOT).as_posix()


def without_code(path):
    text = re.sub(r"\A---\n.*?\n---\n", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"^[ \t]*```.*?^[ \t]*```[ \t]*$", "\n", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"<!--.*?-->|</?[a-zA-Z][^>]*>", " ", text, flags=re.DOTALL)


def without_addresses(text):
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def prose(path):
    text = re.sub(r"^(#|\||:::|\{).*$", "\n", without_code(path), flags=re.MULTILINE)
    return without_addresses(text)


def sentences(text):
    """The sentences of prose that have three words or more."""
    for block in re.split(r"\n\s*\n|^\s*(?:[-*+]|\d+\.)\s+", text, flags=re.MULTILINE):
        line = re.sub(r"[*`]", "", " ".join(block.split()))
        line = re.sub(r"\b(e\.g|i\.e|etc|al|Fig|No)\.", r"\1", line)
        for sentence in re.split(r"(?<=[.!?:])[\"”)]*\s+(?=[\"“(A-Z0-9])", line):
            if len(re.findall(WORD, sentence)) >= 3:
                yield sentence


def cells(path):
    for line in without_code(path).splitlines():
        if line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", without_addresses(line).strip("|")):
                yield re.sub(r"`[^`]*`", "code", cell)


@pytest.mark.parametrize("path", HOW_TO, ids=name)
def test_a_how_to_talks_to_the_reader_in_short_sentences(path):
    text = prose(path)
    words = len(re.findall(WORD, text))
    all_of_them = list(sentences(text))
    long = [each for each in all_of_them if len(re.findall(WORD, each)) > LONG]
    assert len(long) <= MOST_LONG * len(all_of_them), long
    commas = sum(each.count(",") for each in all_of_them) / len(all_of_them)
    assert commas <= MOST_COMMAS, f"{commas:.2f} commas a sentence"
    you = len(re.findall(r"\b(you|yours?|we)\b", text, re.IGNORECASE)) / words * 1000
    assert you >= LEAST_YOU, f"{you:.1f} times `you` in 1,000 words"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_dates_commits_and_machines_are_evidence_and_cells_are_short(path):
    found = EVIDENT.findall(without_addresses(without_code(path)))
    assert not found, found
    long = [cell for cell in cells(path) if len(re.findall(WORD, cell)) > MOST_IN_CELL]
    assert not long, long
