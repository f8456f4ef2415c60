"""Lines of files, held to what Python's csv module and unicodedata make of them, and to lists."""

import bz2
import csv
import gzip
import io
import lzma
import os
import random
import re
import subprocess
import zipfile
from functools import partial

import pytest

from tests.training.data.files import DICTIONARIES, LEXICON, lines_of, write, write_sides
from training.data.read import _files as files
from training.data.read import _pairs as lines
from training.data.read._specs import CorpusError, Spec
from training.data.read.texts import sample_pairs

PAIRS = [('He said "hi".', "Il dit « salut »."), ("Go!", 'Va "vite" !'), ("No", "Non")] * 31


def read_split(spec):
    return lines.read_split(Spec.of(spec), files.read_blocks(Spec.of(spec)))


def read_blocks(spec, size):
    return files.read_blocks(Spec.of(spec), size)


def surveyed(spec, size=1 << 20):
    return lines.survey(Spec.of(spec), partial(read_blocks, spec, size))


def as_csv(rows, **options):
    csv.writer(text := io.StringIO(), delimiter="\t", **options).writerows(rows)
    return text.getvalue()


QUOTES = [('"Hi," he said', '"Oui", dit-il'), ('"All of it."', '"Tout."'), ("No", "Non")] * 31
APART = [("One", "Un"), ('"I came.', "Je vins."), ("I saw.", "Je vis."), ('I won."', "Fini.")]
NOTES = [(f"f({i}) x", f"Nummer {i} # von vielen, ;;; {i}") for i in range(300)]
SIGNS = [("ab", "a # b #"), ("abc", "a # b c"), ("bc", "b # c #")] * 5
ENDS = "".join(f"a{end}b\tc\r\n" for end in "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e")
MARKS = "\ufeff cafe\u0301  noir\tÇa\u202fva\u00a0? \n\ufeffc\td\ne\tf\ufeffg\th\n"
CR = "a\tb\r\n" * 7 + "c\td\re\tf\r\n"
FILES = {  # what a file holds, the pairs that are read, and what is told
    "all in quotes": (as_csv(PAIRS, quoting=csv.QUOTE_ALL), PAIRS, "in quotes"),
    "some in quotes": ("\ufeff" + as_csv(PAIRS), PAIRS, "in quotes"),
    "quotes of the texts": (lines_of(QUOTES), QUOTES, ""),
    "a quote over lines of texts": (lines_of(APART), APART, ""),
    "other line ends": (ENDS, [("a b", "c")] * 8, ""),
    "line ends of Macs within": (
        CR,
        [("a", "b")] * 7 + [("c", "d e")],
        "1 CR within lines end n",
    ),
    "NFC, single spaces, no marks": (
        MARKS,
        [("café noir", "Ça va ?"), ("c", "d"), ("e", "fg")],
        "",
    ),
    "like notes, but no dictionary": (lines_of(NOTES), NOTES, ""),
    "a phone that is a sign of notes": (lines_of(SIGNS), SIGNS, ""),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_as_pairs(tmp_path, name, capsys):
    content, pairs, told = FILES[name]
    spec = f"tsv:{write(tmp_path / 'pairs.tsv', content)}"
    assert read_split(spec).pairs() == sample_pairs(spec)[1] == pairs
    for said in (capsys.readouterr().out, "".join(surveyed(spec).notes)):
        assert told in said
        assert bool(told) == bool(said)


@pytest.mark.parametrize("within", ["\n", "\r\n", "\t", '"\n\t'])
def test_a_quoted_text_may_have_tabs_and_line_ends(tmp_path, within):
    pairs = [(f"a {n}{within}b", f"c{within} {n}") for n in range(97)]
    text = as_csv([*pairs, ("no target", "")])
    spec = f"tsv:{write(tmp_path / 'pairs.tsv', text)}"
    for size in (101, 1 << 20):
        assert sum(block.lines for block in read_blocks(spec, size)) == text.count("\n")
    expected = [tuple(" ".join(side.split()) for side in pair) for pair in pairs]
    assert (read_split(spec).pairs(), read_split(spec).unusable) == (expected, 1)
    write(tmp_path / "pairs.tsv", text + 'a\t"b\n' + "x\ty\n" * 40_000)
    with pytest.raises(CorpusError, match=r"line \d+: field larger than field limit"):
        read_split(spec)


def in_archive(data):
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr("sheet1.xml", data)
    return file.getvalue()


def encoded(name):
    return lambda text: text.decode().encode(name)


NUL = r"NUL characters. Remove them: tr -d '\000'"
WIDE = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        *((encoded(name), "iconv -f UTF-16") for name in WIDE),
        *((encoded(name), "iconv -f LATIN1") for name in ("latin-1", "cp1252")),
        (gzip.compress, "compressed by gzip. Give it a name that ends in .gz"),
        (bz2.compress, "compressed by bzip2. Decompress it with bunzip2"),
        (lzma.compress, "compressed by xz. Decompress it with unxz"),
        (in_archive, "a ZIP archive, such as a spreadsheet. Save it as text"),
        (lambda data: data + b"a\0b\tc\n", NUL),
        (lambda data: b"\0" + data, NUL),
    ],
)
def test_files_that_are_no_text_in_utf_8_are_called_what_they_are(tmp_path, made, said):
    text = "".join(f"{a}\té{b}\n" for a, b in PAIRS)
    path = write(tmp_path / "pairs.tsv", made(text.encode()))
    for read in (read_split, surveyed, sample_pairs):
        with pytest.raises(CorpusError, match=rf"line \d+ is not UTF-8 text.*{re.escape(said)}"):
            read(f"tsv:{path}")


def test_a_third_column_is_told_or_refused(tmp_path):
    path = write(tmp_path / "pairs.tsv", [(f"s{i}s", f"t{i}t", f"CC {i}") for i in range(97)])
    (note,) = surveyed(f"tsv:{path}").notes
    assert note.startswith(
        f"tsv:{path}: only the first two columns are read. Choose others: cut -f"
    )
    assert surveyed(f"multiref:{path}").notes == ()
    write(path, [(f"lemma{i % 13}", f"form{i}", f"V;{i % 7}") for i in range(91)])
    with pytest.raises(CorpusError, match="91 of 91 lines have a source with several targets"):
        surveyed(f"tsv:{path}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("macs.tsv", "has the line ends of old Macs"),
        ("plain.tsv.gz", "Not a gzipped file.*rename it where it is not packed"),
        ("pipe", "is a pipe, but the trainer reads data several times"),
        ("/dev/zero", "is a pipe, but the trainer reads data several times"),
    ],
)
def test_a_file_of_another_kind_is_refused_at_once(tmp_path, name, said):
    os.mkfifo(tmp_path / "pipe")
    for each in ("macs.tsv", "plain.tsv.gz"):
        (tmp_path / each).write_bytes(b"a\tb\rc\td\r")
    with pytest.raises(CorpusError, match=said):
        read_split(f"tsv:{tmp_path / name}")


def test_a_home_directory_is_found(tmp_path, monkeypatch):
    write(tmp_path / "pairs.tsv", "a\tb\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_split("tsv:~/pairs.tsv").pairs() == [("a", "b")]


@pytest.mark.parametrize("content", [b"\0", b"\n"])
def test_a_large_file_without_pairs_is_not_read_whole(tmp_path, monkeypatch, content):
    """One pass finds its form, and the first block of a pass that there is no pair."""
    path, taken = write(tmp_path / "pairs.tsv.gz", content * (16 << 20)), []

    class Counted(gzip.GzipFile):
        def read(self, size=-1):
            data = super().read(size)
            taken.append(len(data))
            return data

    monkeypatch.setattr(gzip, "GzipFile", Counted)
    for read in (surveyed, read_split):
        with pytest.raises(CorpusError):
            read(f"tsv:{path}")
    assert 0 < sum(taken) <= 24 << 20


@pytest.mark.parametrize("size", [1, 97, 1 << 20])
def test_blocks_have_all_lines_in_their_order(tmp_path, size):
    rng = random.Random(5)
    lines = ["a" * rng.randint(0, 40) + "\t" + "b" * rng.randint(1, 9) for _ in range(211)]
    path = write(tmp_path / "pairs.tsv.gz", "\n".join(lines))
    blocks = list(read_blocks(f"tsv:{path}", size))
    assert b"".join(block.data for block in blocks).decode().split("\n")[:211] == lines
    counts = [block.data.rstrip(b"\n").count(b"\n") + 1 for block in blocks]
    assert [block.first for block in blocks] == [1 + sum(counts[:i]) for i in range(len(counts))]


def test_a_sample_is_drawn_evenly(tmp_path, monkeypatch):
    path = write(tmp_path / "pairs.tsv", "".join(f"s{i:06d}\tt\n" for i in range(20_011)))
    monkeypatch.setattr("training.data.read._pairs.SAMPLE_BYTES", 20_000)
    source = surveyed(f"tsv:{path}", 5003)
    rows = [int(line[1:7]) for line in source.sample.data.splitlines()]
    assert rows == sorted(set(rows))
    assert 8_500 < sum(rows) / len(rows) < 11_500
    count, pairs = sample_pairs(f"tsv:{path}")
    assert source.lines == count == 20_011
    assert 1500 < min(len(rows), len(pairs)) <= max(len(rows), len(pairs)) < 2500


def test_a_long_line_is_left_out(tmp_path):
    rows = [*((f"s{i}", f"t{i}") for i in range(40)), ("long " * 20_000, "x"), ("s", "t")]
    split = read_split(f"tsv:{write(tmp_path / 'pairs.tsv.gz', rows)}")
    assert (len(split.sources), split.unusable) == (41, 1)


@pytest.mark.parametrize("place", [3, 5990])
def test_quotes_are_decided_from_the_whole_file(tmp_path, place):
    pairs = [(f"source number {i} of many", f"cible numéro {i}") for i in range(6000)]
    pairs[place] = ('He said "no".', 'Il a dit "non".')
    for name in ("pairs.tsv", "pairs.tsv.gz"):
        path = write(tmp_path / name, as_csv(pairs, lineterminator="\n"))
        assert read_split(f"tsv:{path}").pairs() == pairs
    assert sample_pairs(f"tsv:{path}")[1] == pairs
    natural = ('"Yes," he said', "Oui")
    assert natural in read_split(f"tsv:{write(path, [*pairs, natural, natural])}").pairs()


@pytest.mark.parametrize("name", DICTIONARIES)
@pytest.mark.parametrize("times", [3, 400])
def test_dictionaries_are_read_without_their_notes(tmp_path, capsys, name, times):
    spec = f"tsv:{write(tmp_path / 'list.dict', DICTIONARIES[name] * times)}"
    assert read_split(spec).pairs() == sample_pairs(spec)[1] == LEXICON * times
    noted = any(sign in DICTIONARIES[name] for sign in ("(", "#", "0.2", "1e-3", ";", "[", "0.5"))
    assert ("a pronouncing dictionary" in capsys.readouterr().out) == noted


@pytest.mark.parametrize("pair", [("word(2)", "W ER D"), ('"a"', '"b ""c"""')])
def test_two_files_are_read_as_they_are(tmp_path, capsys, pair):
    rows = [pair, ("ab", "A B"), ("ba", "B A")] if "word" in pair[0] else [pair] * 3
    assert pair not in read_split(f"tsv:{write(tmp_path / 'pairs.tsv', rows * 40)}").pairs()
    assert "parallel:SOURCE,TARGET, are read as they are" in capsys.readouterr().out
    assert read_split(write_sides(tmp_path, rows * 40)).pairs() == rows * 40
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_raw_quote_next_to_quoted_texts_is_told(tmp_path, capsys, place):
    """All quotes are learned then: whether they enclose texts is not sure."""
    rows = [f'"a house {i}"\t"une maison {i}"\n' for i in range(6)]
    raw = 'a 5" pipe \u200b\tun tuyau\n'
    doubled = [f'"a ""house"" {i}"\tune maison {i}\n' for i in range(12)]
    for quoted in (rows, doubled):
        path = write(tmp_path / "my.tsv", "".join([*quoted[:place], raw, *quoted[place:]]))
        assert read_split(f"tsv:{path}").pairs()[place][0].startswith('a 5" pipe')
        said = capsys.readouterr().out
        assert "quotes around 12 texts are read as parts of them, because 1 text has" in said
        assert 'of another form: a 5" pipe <U+200B>. ' in said
        read_split(f"tsv:{write(path, ''.join(quoted))}")
        assert "are read as parts of them, because" not in capsys.readouterr().out


SEPARATED = [  # and other signs in test_lists.py
    ("hello,bonjour le monde {}", "commas", ("hello", "bonjour le monde {}")),
    ("hello, bonjour le monde {}\r", "commas", ("hello", "bonjour le monde {}")),
    ('"a house, {}",une maison', "commas", ("a house, {}", "une maison")),
    ('a house {}, "une, maison"', "commas", ("a house {}", "une, maison")),
    ('"a ""house"" {}",une maison', "commas", ('a "house" {}', "une maison")),
    ('"a house; {}";"une maison"', "semicolons", ("a house; {}", "une maison")),
    ("3,5 May {};2024-05-03", "semicolons", ("3,5 May {}", "2024-05-03")),
    ('a house | "une | maison" {}', "bars", ("a house", "une | maison {}")),
    ("a house number {}    une maison", "spaces", ("a house number {}", "une maison")),
    ("hello bonjour{}", "spaces", ("hello", "bonjour{}")),
    ("家\u3000une maison {}", "spaces", ("家", "une maison {}")),
    ("a house = une maison {}", "equals signs", ("a house", "une maison {}")),
    ("a house || une maison {}", "triple bars", ("a house", "une maison {}")),
    ("a house ||| une maison ||| {}", "triple bars", ("a house", "une maison")),
    ('{{"en": "a house", "fr": "une maison {}"}},', "braces of JSON", ("a house", "une maison {}")),
    ('["a house, {}", "une maison"]', "braces of JSON", ("a house, {}", "une maison")),
]


@pytest.mark.parametrize(("line", "name", "pair"), SEPARATED, ids=[row[0] for row in SEPARATED])
def test_other_separators_are_told_with_the_command_that_makes_tabs(tmp_path, line, name, pair):
    for file in ("my pairs.csv", "pairs.csv.gz"):
        text = "\ufeff" + "".join(line.format(i) + "\n" for i in range(97))
        path = write(tmp_path / file, text)
        for read in (read_split, surveyed, sample_pairs):
            with pytest.raises(CorpusError, match=f"They have {name} instead of tabs") as error:
                read(f"tsv:{path}")
        command = re.search(r"To write tabs: (.*)", str(error.value))[1]
        subprocess.run(["bash", "-c", command], check=True, cwd=tmp_path)
        repaired = read_split(f"tsv:{tmp_path / 'new.tsv'}").pairs()
        assert repaired == [tuple(text.format(i) for text in pair) for i in range(97)]


@pytest.mark.parametrize("form", ["A text, number {0}\n" * 2 + "of {0} words\n", "so: a: {}\n"])
def test_lines_of_texts_alone_have_no_separator(tmp_path, form):
    path = write(tmp_path / "pairs.tsv", "".join(form.format(i) for i in range(97)))
    with pytest.raises(CorpusError, match=r"lines are wrong$"):
        read_split(f"tsv:{path}")
