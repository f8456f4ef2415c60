"""Lists of words with phones: other separators, notes, and phones that look wrong."""

import re
import subprocess
from pathlib import Path

import pytest

from serving.portable.read import read_columns
from tests.training.data.files import write
from training.data.read import _pairs as lines
from training.data.read._files import read_blocks
from training.data.read._specs import CorpusError, Spec
from training.data.read.texts import survey_training

WORDS = [a + b + c for a in "bdgk" for b in "aeiou" for c in "lmnrst"]
PHONES = [f"{word[0]} ɒː {word[2]}" for word in WORDS]


def read_split(spec):
    return lines.read_split(Spec.of(spec), read_blocks(Spec.of(spec)))


def surveyed(spec):
    return survey_training(Spec.of(spec))


def run(command, path):
    """Run a repair command, which writes another file than new.tsv; return its pairs."""
    new = path.with_name("repaired.tsv")
    subprocess.run(["bash", "-c", command.replace("new.tsv", str(new))], check=True)
    return read_split(f"tsv:{new}").pairs()


SIGNS = [
    *(",", ", ", ";", " ; ", "|", " | ", "=", ": ", ":", " ||| ", " || ", " -> ", " => ", "→"),
    *(" - ", " – ", " / ", "~", "\\t", "，", "、", "：", "； ", "｜", "، ", "؛ "),
]


@pytest.mark.parametrize("file", ["my list.txt", "list.gz"])
@pytest.mark.parametrize("sign", SIGNS)
def test_a_list_with_another_sign_between_word_and_phones_is_refused(tmp_path, sign, file):
    path = write(
        tmp_path / file, "".join(f"{a}{sign}{b}\n" for a, b in zip(WORDS, PHONES, strict=True))
    )
    with pytest.raises(CorpusError, match="To write tabs: ") as trained:
        read_split(f"tsv:{path}")
    with pytest.raises(ValueError, match=r"instead of tabs.* To write tabs: ") as listed:
        read_columns(path)
    for error, before in ((trained, "To write tabs: "), (listed, "To write tabs: ")):
        command = str(error.value).partition(before)[2]
        assert run(command, path) == [*zip(WORDS, PHONES, strict=True)]


@pytest.mark.parametrize(
    "form",
    [
        *("{word} 1.0\t{phones}", "{word} 1\t{phones}", "{word} 1.0 {phones}"),
        *("{word} 1e-05\t{phones}", "{word} 0,5\t{phones}", "{word}\t0,5\t{phones}"),
        *("{word}\u3000{phones}", "{word}\xa0{phones}", "{word} \u3000 {phones}"),
    ],
)
@pytest.mark.parametrize("lacking", [0, 9])
def test_notes_and_spaces_of_any_kind_are_no_part_of_a_word(tmp_path, form, lacking):
    """Also if some entries, each ninth, have no probability."""
    plain = "{word} {phones}" if "\t" not in form else "{word}\t{phones}"
    if lacking and form not in ("{word} 1.0\t{phones}", "{word} 1e-05\t{phones}"):
        lacking = 0  # whole numbers of some entries alone belong to words
    rows = (
        (plain if lacking and n % lacking == 1 else form).format(word=word, phones=phones)
        for n, (word, phones) in enumerate(zip(WORDS, PHONES, strict=True))
    )
    path = write(tmp_path / "list.txt", "".join(f"{row}\n" for row in rows))
    assert read_split(f"tsv:{path}").pairs() == [*zip(WORDS, PHONES, strict=True)]
    assert read_columns(path) == {a: [b.split()] for a, b in zip(WORDS, PHONES, strict=True)}


def noted(path, rows):
    write(path, "".join(f"{word}\t{phones}\n" for word, phones in rows))
    return surveyed(f"tsv:{path}").notes


ENCLOSED = "phones are in slashes or brackets, as in "
FORMS = [
    *(
        (form, ENCLOSED)
        for form in ("/{}/", "[{}]", "/ {} /", "\\{}\\", "<{}>", "{{{}}}", "({})", "|{}|")
    ),
    ("{joined}", "phones have no spaces between them, as in "),
    *(
        (form, f"phones have {sign!r} between them")
        for sign in ".-,|"
        for form in (f"{{0:{sign}}}", f"{{0:{sign} }}", f"{{0: {sign} }}")
        if form not in ("{0:. }", "{0:- }")
    ),
]


class Phones:
    """Phones that a form can join by any sign: `{0:SIGN}`."""

    def __init__(self, phones):
        self.phones = phones.split()

    def __format__(self, sign):
        return (sign or " ").join(self.phones)


@pytest.mark.parametrize("kind", ["tsv", "spaces", "gz", "parallel"])
@pytest.mark.parametrize(("form", "said"), FORMS)
def test_phones_of_another_form_are_told_with_a_command(tmp_path, form, said, kind):
    looks = [form.format(Phones(phones), joined=phones.replace(" ", "")) for phones in PHONES]
    if kind == "parallel":
        words = write(tmp_path / "words.txt", "".join(f"{word}\n" for word in WORDS))
        path = write(tmp_path / "phones.txt", "".join(f"{look}\n" for look in looks))
        spec = f"parallel:{words},{path}"
    else:
        tab = " " if kind == "spaces" and said == ENCLOSED else "\t"
        rows = "".join(f"{word}{tab}{look}\n" for word, look in zip(WORDS, looks, strict=True))
        path = write(tmp_path / ("my list.gz" if kind == "gz" else "list.tsv"), rows)
        spec = f"tsv:{path}"
    (note,) = (note for note in surveyed(spec).notes if "phones" in note)
    assert said in note
    if "new.tsv" not in note:  # this guide has the command
        guide = Path(__file__).parents[3] / "docs" / "guides" / "pronouncer.md"
        text = guide.read_text(encoding="utf-8")
        (note,) = re.findall(r"^perl .*new\.tsv$", text, re.MULTILINE)
        if kind != "tsv":
            return
        note = note.replace("my.tsv", str(path))
    command = re.search(r"(?:gzip|perl) .*", note)[0]
    if kind == "parallel":
        new = write(tmp_path / "repaired.txt", "")
        subprocess.run(["bash", "-c", command.replace("new.tsv", str(new))], check=True)
        found = [" ".join(line.split()) for line in new.read_text().splitlines()]
        assert found == PHONES
    else:
        assert run(command, path) == [*zip(WORDS, PHONES, strict=True)]


def test_counts_of_words_are_told_with_a_command(tmp_path):
    path = tmp_path / "my list.tsv"
    rows = [
        (f"{word} {n * 37 % 97 + 2}", phones)
        for n, (word, phones) in enumerate(zip(WORDS, PHONES, strict=True))
    ]
    (note,) = noted(path, rows)
    assert "words end in numbers, as in 'bal 2'. If these are counts: " in note
    assert run(note.partition("counts: ")[2], path) == [*zip(WORDS, PHONES, strict=True)]
    rooms = [(f"room {n * 37 % 97}", f"Raum Nummer {n * 37 % 97}") for n in range(97)]
    assert noted(path, rooms) == ()


@pytest.mark.parametrize(
    "phones", ["<s> {} </s>", "# {} #", '" {}', "ˈ {}", "{} .", "{{ {}", "k . {}"]
)
def test_right_lists_have_no_message(tmp_path, phones):
    rows = [(word, phones.format(each)) for word, each in zip(WORDS, PHONES, strict=True)]
    assert [note for note in noted(tmp_path / "list.tsv", rows) if "phones " in note] == []
    path = write(tmp_path / "list.txt", "".join(f"{a} {b}\n" for a, b in rows))
    assert read_split(f"tsv:{path}").pairs() == rows


def test_a_raw_quote_next_to_quoted_words_is_told(tmp_path):
    """Words would have quotes, and no text would have them."""
    rows = "".join(f'"{a}"\t"{b}"\n' for a, b in [*zip(WORDS, PHONES, strict=True)][:12])
    path = write(tmp_path / "list.tsv", f'{rows}5" pipe\tp a\n')
    with pytest.raises(ValueError, match=r'because 1 text has a quote of another form: 5" pipe'):
        read_columns(path)
    assert "of another form" in str(surveyed(f"tsv:{path}").notes)


def test_phones_of_one_word_are_told_and_right_lists_are_not(tmp_path):
    rows = [*zip(WORDS, PHONES, strict=True)]
    assert noted(tmp_path / "list.tsv", rows) == ()
    (note,) = noted(tmp_path / "list.tsv", [*rows, ("baq", "b ɒː q"), ("bax", "b ɒː: x")])
    wanted = ["3 phones occur in one word only", "q (baq)", "ɒː: (bax)", "x (bax)"]
    assert [each in note for each in wanted] == [True] * 4
    assert noted(tmp_path / "words.tsv", [(word, word.upper()) for word in WORDS]) == ()
