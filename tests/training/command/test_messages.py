"""Messages show the invisible characters of the user's texts by their number."""

import sys

import pytest

from serving.api._printing import print_error
from serving.api._results import unseen
from serving.portable.read import _lexicon as lexicon
from tests.serving.javascript import call, needs_node
from tests.training.data.files import train_tokenizer
from training.command.errors import UserError
from training.command.options import Parser, main_guard
from training.command.progress import print_choice, print_note
from training.command.visible import visible
from training.data.read._notes import phone_notes
from training.data.tokens._vocabularies import check_texts

HIDDEN = "a\u200bb\u3164c\xa0d\x1be\ufe0ff\U000e0101g\u2028"  # each shows nothing, or other signs
NUMBERS = "a<U+200B>b<U+3164>c<U+00A0>d<U+001B>e<U+FE0F>f<U+E0101>g<U+2028>"


def error(kind):
    def fail():
        raise kind(HIDDEN)

    return lambda: main_guard(fail)


def letters():
    check_texts("dev", [f"abc{HIDDEN}"] * 2, train_tokenizer("letters", ["abc defg"], 100), 1.0)


def rare_phone():
    pairs = [(f"w{n}", "k a t s") for n in range(9)] + [(HIDDEN, "k a t s x\u200b")]
    for note in phone_notes(pairs, "list.tsv"):
        print_note(note)


WAYS = {
    "a note": lambda: print_note(HIDDEN),
    "a choice": lambda: print_choice("first pair", HIDDEN),
    "an error": error(UserError),
    "a file": error(OSError),
    "a wrong option": lambda: Parser(prog="x").parse_args([HIDDEN]),
    "an error of the client": lambda: print_error(HIDDEN),
    "letters that training never saw": lambda: print(unseen(HIDDEN)),
    "letters of data": letters,
    "phones of data": rare_phone,
    "words without a line": lambda: lexicon._warn("left out", [HIDDEN]),
}


@pytest.mark.parametrize("way", WAYS)
def test_invisible_characters_are_shown_by_number(way, capsys):
    try:
        WAYS[way]()
    except SystemExit as end:
        print(end.code, file=sys.stderr)
    said = "".join(capsys.readouterr()).replace("\n", "")
    wanted = "<U+200B>" if " of data" in way else NUMBERS
    assert wanted in (said.replace(" ", "") if way.startswith("letters") else said)
    assert visible(said) == said


@needs_node
def test_the_page_has_the_same_numbers():
    assert "".join(call("static/unknown.js", "visible", [[c] for c in HIDDEN])) == NUMBERS
    shown = "aé ж中👩"
    assert "".join(call("static/unknown.js", "visible", [[c] for c in shown])) == shown
