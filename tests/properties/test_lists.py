"""Lists of words: the client reads the same words and phones as training, whatever the form."""

import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.portable.read import read_columns
from tests.properties.executions import examples
from tests.training.data.files import DICTIONARIES, LEXICON
from training.data.read.texts import load

MARK = "\ufeff"
LETTERS = "bdgklmnprst", "aeiouéő"


def entries(rng, count=60):
    """Words with phones of one letter; each phone occurs often enough for a dictionary."""
    words = {"".join(rng.choice(side) for side in LETTERS * rng.randint(1, 3)) for _ in range(999)}
    return [(word, " ".join(word.upper())) for word in sorted(words)[:count]]


FORMS = {
    "tab": "{word}\t{phones}",
    "space": "{word} {phones}",
    "two spaces": "{word}  {phones}",
    "quotes": '"{word}"\t"{phones}"',
    "lexiconp": "{word} 0.5 {phones}",
    "lexiconp, tab before the phones": "{word} 1.0\t{phones}",
    "lexiconp, whole numbers": "{word} 1\t{phones}",
    "lexiconp, tabs": "{word}\t1.0\t{phones}",
    "lexiconp_silprob": "{word} 1 0.2 1.1 0.9\t{phones}",
    "mfa": "{word}\t0.99\t0.2\t1.0\t1.0\t{phones}",
    "variant": "{word}(2)  {phones}",
    "comment": "{word} {phones} # a note on it",
}
NOISE = st.sampled_from(
    [
        *(";;; a comment", ";;; a\tcomment", "## old", "# new", "", " ", "\t", "\u3000", MARK),
        *(MARK + ";;; a comment", "// of C"),
    ]
)


def trained(path):
    return {(word, phones) for word, phones in load(f"tsv:{path}", "train").pairs()}


def listed(path):
    return {(word, " ".join(row)) for word, rows in read_columns(path).items() for row in rows}


@pytest.mark.parametrize("form", FORMS)
@examples(20)
@given(
    seed=st.integers(0, 999),
    noise=st.lists(st.tuples(st.integers(0, 59), NOISE), max_size=4),
    marks=st.lists(st.integers(0, 59), max_size=3),
    crlf=st.booleans(),
    unicode=st.sampled_from(["NFC", "NFD"]),
)
def test_the_client_reads_a_list_as_training_reads_it(
    tmp_path_factory, form, seed, noise, marks, crlf, unicode
):
    pairs = entries(random.Random(seed))
    lines = [FORMS[form].format(word=word, phones=phones) for word, phones in pairs]
    lines = [MARK * (number in marks) + line for number, line in enumerate(lines)]
    for place, line in sorted(noise, reverse=True):
        if form != "quotes" or "\t" not in line:  # a table's comments have no tabs
            lines.insert(place, line)
    text = unicodedata.normalize(unicode, ("\r\n" if crlf else "\n").join([*lines, ""]))
    path = tmp_path_factory.mktemp("lists") / "list.txt"
    path.write_bytes(text.encode())
    assert listed(path) == trained(path) == {*pairs}


@pytest.mark.parametrize("name", DICTIONARIES)
def test_dictionaries_of_programs_are_read_the_same(tmp_path, name):
    path = tmp_path / "list.dict"
    path.write_text(DICTIONARIES[name] * 9, encoding="utf-8")
    assert listed(path) == trained(path) == {*LEXICON}


@pytest.mark.parametrize(
    "line", ['"a""b"\tA B', "家\tA\u3000B", "a\tA B\tnoun", "a A B", "ice cream\tA B", " a\tA  B "]
)
def test_odd_lines_are_read_the_same(tmp_path, line):
    pairs = entries(random.Random(5))
    (path := tmp_path / "list.tsv").write_text(
        "".join(f"{word}\t{phones}\n" for word, phones in pairs) + f"{line}\n", encoding="utf-8"
    )
    assert listed(path) == trained(path)
    assert len(listed(path)) == len(pairs) + 1
