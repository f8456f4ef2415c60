"""Headers, told from ordinary first lines by shuffling files in five alphabets."""

import random
import unicodedata

import pytest

from tests.training.data.files import write
from training.data.read._specs import Spec
from training.data.read.texts import Texts, load, read_texts, survey_training

ROWS = 397


def word(draw, letters, least=1, most=5):
    """Return a word; as in texts, a few letters are frequent and most are rare."""
    size = len(letters)
    return "".join(
        letters[int(size * draw.random() ** 3)] for _ in range(draw.randint(least, most))
    )


def spelled(letters, symbols):
    """Return words of an alphabet with a symbol for each part of a letter, as phones have."""
    draw, pairs = random.Random(0), {}
    while len(pairs) < ROWS:
        text = word(draw, letters)
        parts = unicodedata.normalize("NFD", text)
        pairs[text] = " ".join(symbols[ord(part) % len(symbols)] for part in parts)
    return [*pairs.items()]


def sentences(letters, others, spaces=" "):
    draw = random.Random(0)
    rows = range(ROWS)
    lines = [
        tuple(
            gap.join(word(draw, side) for _ in range(draw.randint(1, 7)))
            for side, gap in ((letters, spaces), (others, " "))
        )
        for _ in rows
    ]
    return lines[:-7] + [("TV", word(draw, others)) for _ in range(7)]


HANGUL = [chr(code) for code in range(0xAC00, 0xD7A4, 7)]
HAN = [chr(code) for code in range(0x4E00, 0x9000, 5)]
LATIN = list("enistradhulcgmobwfkzpvüäöjyxqéßçñøåæœëïâêîôû")
CYRILLIC = list("оеаинтсрвлкмдпуяызьбгчйхжшюцщэфъё")
ARABIC = list("ايلمنوتربةعدسفحكقهجشطصخأىضءزغذئثظإآؤ")
PHONES = ["tɕ", *"aeioupkbdɡmnŋlsʃhjwɾ"]
THAI = [a + b for a in "กขคงจชดตทนบปพมยรลวสหอ" for b in ("", "ิ", "ี", "ุ", "่", "้", "์")]
PINYIN = [a + b for a in "mshdyn" for b in ("a", "i", "e", "ou", "ang")]
FILES = {
    "Hangul": spelled(HANGUL, PHONES),
    "Han": spelled(HAN, PINYIN),
    "Latin": spelled(LATIN, PHONES),
    "Cyrillic": spelled(CYRILLIC, PHONES),
    "Arabic": spelled(ARABIC, PHONES),
    "Thai sentences": sentences(THAI, LATIN, ""),
    "Hangul sentences": sentences(HANGUL, LATIN),
    "Han sentences": sentences(HAN, LATIN, ""),
    "Hangul to Han": sentences(HANGUL, HAN),
    "Cyrillic sentences": sentences(CYRILLIC, LATIN),
    "Arabic sentences": sentences(ARABIC, LATIN),
}


@pytest.mark.parametrize("name", FILES)
def test_an_ordinary_first_line_is_no_header(tmp_path, capsys, name):
    rows, path = list(FILES[name]), tmp_path / "my.tsv"
    for shuffle in range(60):
        random.Random(shuffle).shuffle(rows)
        write(path, "".join(f"{source}\t{target}\n" for source, target in rows))
        load(f"tsv:{path}", "train")
    assert "is read as a pair" not in capsys.readouterr().out


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "header",
    [
        *("word\tpronunciation", "단어\t발음", "слово\tперевод", "Wort (Duden)\tIPA [broad]"),
        *("คำ\tการออกเสียง", "शब्द\tउच्चारण"),  # their vowels are marks
    ],
)
def test_a_header_is_found_in_every_alphabet(tmp_path, capsys, name, header):
    lines = [header, *map("\t".join, FILES[name])]
    path = write(tmp_path / "my.tsv", "".join(f"{line}\n" for line in lines))
    load(f"tsv:{path}", "train")
    shown = header.replace("\t", " TAB ")
    assert f"line 1, {shown}, is read as a pair" in capsys.readouterr().out


def test_usual_names_are_no_header_where_they_are_words(tmp_path, capsys):
    pairs = ["word\tmot", "sentence\tphrase", "translation\ttraduction", "English\tanglais"]
    path = write(tmp_path / "my.tsv", "\n".join(pairs * 2 + ["house\tmaison"] * 97) + "\n")
    load(f"tsv:{path}", "train")
    assert capsys.readouterr().out == ""


def notes(tmp_path, rows):
    path = write(tmp_path / "my.tsv", "".join(f"{left}\t{right}\n" for left, right in rows))
    spec = Spec.of(f"tsv:{path}")
    return survey_training(spec).notes


def test_running_numbers_are_told(tmp_path):
    texts = [f"text number {row % 7} of 7" for row in range(397)]
    for name in ("{}", "{:05}", "row-{}"):
        ids = [name.format(row + 10) for row in range(397)]
        (note,) = notes(tmp_path, zip(ids, texts, strict=True))
        shown = name.format(10)
        assert f"sources are running numbers ({shown}, " in note
        assert "is that an id?" in note
        (note,) = notes(tmp_path, zip(texts, ids, strict=True))
        assert "targets are running numbers" in note
    first, second, *_ = notes(tmp_path, [("id", "sentence"), *enumerate(texts)])
    assert "line 1, id TAB sentence, is read as a pair" in first
    assert "sources are running numbers (0, 1, 2, …)" in second
    drawn = random.Random(0).sample(range(9973), 397)  # numbers that are spelled, in any order
    for numbers in (drawn, (row % 7 for row in range(397))):
        assert "running numbers (" not in str(notes(tmp_path, zip(numbers, texts, strict=True)))


@pytest.mark.parametrize("data", ["tsv", "parallel"])
def test_the_first_pair_is_shown(tmp_path, capsys, data):
    rows = [
        ("Freitext des Kunden", "date\u200b"),
        *((f"a b {n % 7}", f"c {n}") for n in range(397)),
    ]
    long = "a" * 97
    for first in (rows[0], (long, long)):
        lines = [first, *rows[1:]]
        write(tmp_path / "my.tsv", "".join(f"{left}\t{right}\n" for left, right in lines))
        for side in (0, 1):
            write(tmp_path / str(side), "".join(f"{row[side]}\n" for row in lines))
        spec = f"tsv:{tmp_path / 'my.tsv'}"
        if data == "parallel":
            spec = f"parallel:{tmp_path / '0'},{tmp_path / '1'}"
        read_texts(Texts(Spec.of(spec)))
        said = capsys.readouterr().out
        if first is rows[0]:
            assert "  first pair Freitext des Kunden → date<U+200B>\n" in said
        else:
            assert f"  first pair {long[:32]}… →" in said
            assert long not in said
