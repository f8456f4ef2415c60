"""Lists of words with phones: other separators, notes, and phones that look wrong."""

import re
import subprocess
from pathlib import Path

import pytest

from serving.portable.read import read_columns
from tests.training.data.files import write, write_sides
from training.data.read._specs import CorpusError, Spec
from training.data.read.texts import load, survey_training

WORDS = [a + b + c for a in "bdgk" for b in "aeiou" for c in "lmnrst"]
PHONES = [f"{word[0]} ɒː {word[2]}" for word in WORDS]
LIST = [*zip(WORDS, PHONES, strict=True)]
READ = {word: [phones.split()] for word, phones in LIST}  # as serving has it


def read_split(spec):
    return load(spec, "train").pairs()


def notes_of(spec):
    return survey_training(Spec.of(spec)).notes


def noted(path, rows):
    return notes_of(f"tsv:{write(path, rows)}")


def repaired(command, path):
    """Run a repair command, which writes another file than new.tsv; return this file."""
    new = path.with_name("repaired.tsv")
    subprocess.run(["bash", "-c", command.replace("new.tsv", str(new))], check=True)
    return new


SIGNS = {
    **{",": "commas", ", ": "commas", ";": "semicolons", " ; ": "semicolons", "|": "bars"},
    **{" | ": "bars", "=": "equals signs", ": ": "colons", ":": "colons", " ||| ": "triple bars"},
    **{" || ": "triple bars", " -> ": "arrows", " => ": "arrows", "→": "arrows", " - ": "dashes"},
    **{
        " – ": "dashes",
        " / ": "slashes",
        "~": "tildes",
        "\\t": "letters",
        "，": "full-width commas",
    },
    **{
        "、": "",
        "：": "full-width colons",
        "； ": "full-width semicolons",
        "｜": "full-width bars",
    },
    **{"، ": "Arabic commas", "؛ ": "Arabic semicolons"},
}


@pytest.mark.parametrize("sign", SIGNS)
def test_a_list_with_another_sign_between_word_and_phones_is_refused(tmp_path, sign):
    name = "list.gz" if len(sign) % 2 else "my list.txt"
    path = write(tmp_path / name, "".join(f"{a}{sign}{b}\n" for a, b in LIST))
    with pytest.raises(CorpusError, match=f"They have .*{SIGNS[sign]}") as trained:
        read_split(f"tsv:{path}")
    with pytest.raises(ValueError, match=r"instead of tabs.* To write tabs: ") as listed:
        read_columns(path)
    for error in (trained, listed):
        command = str(error.value).partition("To write tabs: ")[2]
        assert read_split(f"tsv:{repaired(command, path)}") == LIST


@pytest.mark.parametrize(
    ("form", "lacking"),
    [
        *(("{} 1.0\t{}", 0), ("{} 1.0\t{}", 9), ("{} 1e-05\t{}", 0), ("{} 1e-05\t{}", 9)),
        *(("{} 1\t{}", 0), ("{} 1.0 {}", 0), ("{} 0,5\t{}", 0), ("{}\t0,5\t{}", 0)),
        *(("{}\u3000{}", 0), ("{}\xa0{}", 0), ("{} \u3000 {}", 0)),
    ],
)
def test_notes_and_spaces_of_any_kind_are_no_part_of_a_word(tmp_path, form, lacking):
    """Also if some entries, each ninth, have no probability."""
    rows = [
        ("{}\t{}" if lacking and n % 9 == 1 else form).format(*row) for n, row in enumerate(LIST)
    ]
    path = write(tmp_path / "list.txt", "\n".join(rows) + "\n")
    assert read_split(f"tsv:{path}") == LIST
    assert read_columns(path) == READ


class Phones(str):
    """Phones that a form can join by any sign: `{:SIGN}`."""

    def __format__(self, sign):
        return {"": self, "x": self.replace(" ", "")}.get(sign, sign.join(self.split()))


ENCLOSED = "phones are in slashes or brackets, as in "
FORMS = {
    **dict.fromkeys(
        ("/{}/", "[{}]", "/ {} /", "\\{}\\", "<{}>", "{{{}}}", "({})", "|{}|"), ENCLOSED
    ),
    "{:x}": "phones have no spaces between them, as in ",
    **{
        f"{{:{form}}}": f"phones have {form.strip()!r} between them"
        for form in (".", " . ", "-", " - ", ",", ", ", " , ", "|", "| ", " | ")
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_phones_of_another_form_are_told_with_a_command(tmp_path, form):
    looks = [form.format(Phones(phones)) for phones in PHONES]
    rows = [*zip(WORDS, looks, strict=True)]
    spaced = "".join(f"{a} {b}\n" for a, b in rows) if FORMS[form] == ENCLOSED else rows
    guide = Path(__file__).parents[3] / "docs" / "guides" / "pronouncer.md"
    (of_guide,) = re.findall(r"^perl .*new\.tsv$", guide.read_text(encoding="utf-8"), re.MULTILINE)
    for name, content in (("list.tsv", rows), ("my list.gz", rows), ("list.txt", spaced)):
        path = write(tmp_path / name, content)
        (note,) = (note for note in notes_of(f"tsv:{path}") if "phones" in note)
        assert FORMS[form] in note
        command = re.search(r"(?:gzip|perl) .*new.tsv", note)
        if command or name == "list.tsv":  # if it has no command, the guide has it
            command = command[0] if command else of_guide.replace("my.tsv", str(path))
            assert read_split(f"tsv:{repaired(command, path)}") == LIST
    (note,) = (note for note in notes_of(write_sides(tmp_path, rows)) if "phones" in note)
    if command := re.search(r"perl .*", note):
        new = repaired(command[0], tmp_path / "t").read_text()
        assert [" ".join(line.split()) for line in new.splitlines()] == PHONES


def test_counts_of_words_are_told_with_a_command(tmp_path):
    path = tmp_path / "my list.tsv"
    (note,) = noted(path, [(f"{a} {n * 37 % 97 + 2}", b) for n, (a, b) in enumerate(LIST)])
    assert "words end in numbers, as in 'bal 2'. If these are counts: " in note
    assert read_split(f"tsv:{repaired(note.partition('counts: ')[2], path)}") == LIST
    rooms = [(f"room {n * 37 % 97}", f"Raum Nummer {n * 37 % 97}") for n in range(97)]
    assert noted(path, rooms) == ()


@pytest.mark.parametrize(
    "phones", ["{}", "<s> {} </s>", "# {} #", '" {}', "ˈ {}", "{} .", "{{ {}", "k . {}"]
)
def test_right_lists_have_no_message(tmp_path, phones):
    rows = [(word, phones.format(each)) for word, each in LIST]
    assert [note for note in noted(tmp_path / "list.tsv", rows) if "phones " in note] == []
    path = write(tmp_path / "list.txt", "".join(f"{a} {b}\n" for a, b in rows))
    assert read_split(f"tsv:{path}") == rows


def test_a_raw_quote_next_to_quoted_words_is_told(tmp_path):
    """Words would have quotes, and no text would have them."""
    rows = "".join(f'"{a}"\t"{b}"\n' for a, b in LIST[:12])
    path = write(tmp_path / "list.tsv", f'{rows}5" pipe\tp a\n')
    with pytest.raises(ValueError, match=r'because 1 text has a quote of another form: 5" pipe'):
        read_columns(path)
    assert "of another form" in str(notes_of(f"tsv:{path}"))


def test_phones_of_one_word_are_told_and_right_lists_are_not(tmp_path):
    (note,) = noted(tmp_path / "list.tsv", [*LIST, ("baq", "b ɒː q"), ("bax", "b ɒː: x")])
    for wanted in ("3 phones occur in one word only", "q (baq)", "ɒː: (bax)", "x (bax)"):
        assert wanted in note
    assert noted(tmp_path / "words.tsv", [(word, word.upper()) for word in WORDS]) == ()
