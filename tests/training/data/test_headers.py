"""Headers, told from ordinary first lines by shuffling files in five alphabets."""

import random
import unicodedata

import pytest

from tests.training.data.files import write, write_sides
from training.data.read._specs import Spec
from training.data.read.texts import Texts, load, read_texts, survey_training

ROWS = 397


def word(draw, letters, least=1, most=5):
    """Return a word; as in texts, a few letters are frequent and most are rare."""
    places = (int(len(letters) * draw.random() ** 3) for _ in range(draw.randint(least, most)))
    return "".join(letters[place] for place in places)


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

    def sentence(side, gap):
        return gap.join(word(draw, side) for _ in range(draw.randint(1, 7)))

    lines = [(sentence(letters, spaces), sentence(others, " ")) for _ in range(ROWS)]
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


def told(capsys, rows, path):
    """What is printed when a file of these rows is read."""
    load(f"tsv:{write(path, rows)}", "train")
    return capsys.readouterr().out


@pytest.mark.parametrize("name", FILES)
def test_an_ordinary_first_line_is_no_header(tmp_path, capsys, name):
    rows = list(FILES[name])
    for shuffle in range(20):
        random.Random(shuffle).shuffle(rows)
        assert "is read as a pair" not in told(capsys, rows, tmp_path / "my.tsv")


@pytest.mark.parametrize("name", FILES)
def test_a_header_is_found_in_every_alphabet(tmp_path, capsys, name):
    """Also one whose vowels are marks."""
    headers = [("word", "pronunciation"), ("단어", "발음"), ("слово", "перевод")]
    headers += [("Wort (Duden)", "IPA [broad]"), ("คำ", "การออกเสียง"), ("शब्द", "उच्चारण")]
    for header in headers:
        said = told(capsys, [header, *FILES[name]], tmp_path / "my.tsv")
        assert f"line 1, {header[0]} TAB {header[1]}, is read as a pair" in said


NUMBERED = [(f"a {i}", f"b {i}") for i in range(97)]
LIST = [("ab", "A B"), ("ba", "B A")] * 31
NAMES = """source target | en fr | English French | Quelle Ziel | anglais français | 0 1
| src_text tgt_text | en_US cy_GB | #source target | word pronunciation | mot prononciation | w p"""
HEADERS = [
    *((tuple(names.split()), NUMBERED) for names in NAMES.split("|")[:9]),
    (("Source text", "Target sentence"), NUMBERED),
    (('"Word"', '"Phones"'), [(f'"{a}"', f'"{b}"') for a, b in NUMBERED]),
    *((tuple(names.split()), [*LIST, ("a", "A")]) for names in NAMES.split("|")[9:]),
]


@pytest.mark.parametrize(("header", "rows"), HEADERS, ids=[row[0][0] for row in HEADERS])
def test_a_header_that_is_learned_is_told(tmp_path, capsys, header, rows):
    path, names = tmp_path / "pairs.tsv", [name.strip('"') for name in header]
    for form in ("tsv", "multiref"):
        split = load(f"{form}:{write(path, [header, *rows])}", "train")
        assert split.pairs()[0] == (*names,)
        said = f"{form}:{path}: line 1, {' TAB '.join(names)}, is read as a pair"
        assert said in capsys.readouterr().out
    if names[0].lower() in ("source", "word", "en", "english"):
        load(write_sides(tmp_path, [names, *[("a text", "a text")] * 5]), "train")
        assert "line 1" in capsys.readouterr().out


WORDS = [("word", "mot"), ("sentence", "phrase"), ("translation", "traduction")]


@pytest.mark.parametrize(
    "rows",
    [
        [("Hello.", "Salut."), *NUMBERED],
        [("aq", "A Q"), *LIST],
        [("a", "A"), *LIST],
        [*WORDS, ("English", "anglais")] * 2 + [("house", "maison")] * 97,  # usual names as words
    ],
)
def test_a_pair_is_no_header(tmp_path, capsys, rows):
    assert told(capsys, rows, tmp_path / "pairs.tsv") == ""


def test_running_numbers_are_told(tmp_path):
    def notes(left, right):
        rows = list(zip(left, right, strict=True))
        return survey_training(Spec.of(f"tsv:{write(tmp_path / 'my.tsv', rows)}")).notes

    texts = [f"text number {row % 7} of 7" for row in range(ROWS)]
    for name in ("{}", "{:05}", "row-{}"):
        ids = [name.format(row + 10) for row in range(ROWS)]
        (note,) = notes(ids, texts)
        assert f"sources are running numbers ({ids[0]}, " in note
        assert "is that an id?" in note
        (note,) = notes(texts, ids)
        assert "targets are running numbers" in note
    first, second, *_ = notes(["id", *range(ROWS)], ["sentence", *texts])
    assert "line 1, id TAB sentence, is read as a pair" in first
    assert "sources are running numbers (0, 1, 2, …)" in second
    drawn = random.Random(0).sample(range(9973), ROWS)  # numbers that are spelled, in any order
    for numbers in (drawn, [row % 7 for row in range(ROWS)]):
        assert "running numbers (" not in str(notes(numbers, texts))


@pytest.mark.parametrize("form", ["tsv", "parallel"])
@pytest.mark.parametrize(
    ("first", "shown"),
    [
        (("Freitext des Kunden", "date\u200b"), "Freitext des Kunden → date<U+200B>\n"),
        (("a" * 97, "a" * 97), f"{'a' * 32}… →\n"),
    ],
)
def test_the_first_pair_is_shown(tmp_path, capsys, form, first, shown):
    rows = [first, *((f"a b {n % 7}", f"c {n}") for n in range(ROWS))]
    spec = f"tsv:{write(tmp_path / 'my.tsv', rows)}"
    read_texts(Texts(Spec.of(write_sides(tmp_path, rows) if form == "parallel" else spec)))
    assert f"  first pair {shown}" in capsys.readouterr().out
